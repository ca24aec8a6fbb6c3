"""What the benchmarks on tasks of Words share: a network and lists for each process."""

import os
import sys
from functools import cache

from common import PLAIN_PROCESS, ROOT

os.environ |= PLAIN_PROCESS
sys.path.insert(0, str(ROOT / "tools" / "common"))

import torch
from remembering import Remembering

from smatter.library.library import open_library
from smatter.tasks.lists import TaskList, read_list
from smatter.tasks.open import LISTS, open_suite
from smatter.tasks.suite import Suite

SUITE, LIBRARY, ROUTER = (ROOT / ".build" / name for name in ("words", "words-library", "words-router"))
"""As `make words`, `make sources-words` and `make router-words` leave them."""


@cache
def live() -> Remembering:
    """One network for each process."""
    torch.set_num_threads(1)
    return Remembering(open_library(LIBRARY))


@cache
def suite() -> Suite:
    """Words, read once in each process."""
    return open_suite(SUITE)


@cache
def tasks(name: str) -> TaskList:
    """A frozen list, read once in each process."""
    return read_list(SUITE / LISTS / f"{name}.json", suite())
