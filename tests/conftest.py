"""A small library for every test that wants one."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from small_networks import make_tensors, write_checkpoint

from smatter.library.edit import add_source, init_library
from smatter.library.library import Library

torch.set_num_threads(1)


@pytest.fixture
def make_library(tmp_path: Path) -> Callable[..., Library]:
    """A library of a base and fine-tunes `a`, `b`, `c`, in one dtype."""

    def make(dtype: torch.dtype = torch.float32, name: str = "library", sources: str = "abc") -> Library:
        base = make_tensors(0, dtype)
        library = init_library(tmp_path / name, write_checkpoint(tmp_path / f"{name}-base", base), "base")
        for seed, source in enumerate(sources, 1):
            folder = write_checkpoint(tmp_path / f"{name}-{source}", make_tensors(seed, dtype, near=base), shards=seed)
            library, _ = add_source(tmp_path / name, folder, source)
        return library

    return make
