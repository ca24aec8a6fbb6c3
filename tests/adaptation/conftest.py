"""Networks that several tests share; they are made once per worker and never written to."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from tiny_libraries import pixels_support, random_library, texts_support, tiny_bert, tiny_vit, topic_library
from toy_suite import Domain, make_checkpoints
from toy_suite import make_library as make_toy_library

from smatter.library.library import Library
from smatter.tasks.support import Support


@dataclass(frozen=True)
class Toy:
    """The trained suite."""

    folder: Path
    domains: dict[str, Domain]
    library: Library


@pytest.fixture(scope="session")
def toy(tmp_path_factory) -> Toy:
    folder = tmp_path_factory.mktemp("toy")
    domains = make_checkpoints(folder)
    return Toy(folder, domains, make_toy_library(folder))


@pytest.fixture(scope="session")
def vit_library(tmp_path_factory) -> Library:
    return random_library(tmp_path_factory.mktemp("vit"), tiny_vit())


@pytest.fixture(scope="session")
def bert_library(tmp_path_factory) -> Library:
    return random_library(tmp_path_factory.mktemp("bert"), tiny_bert())


@pytest.fixture(scope="session")
def topics(tmp_path_factory) -> Library:
    return topic_library(tmp_path_factory.mktemp("topics"))


@pytest.fixture(params=["vit", "bert"])
def task(request, vit_library, bert_library) -> tuple[Library, Support]:
    """A random library and a task for it."""
    if request.param == "vit":
        return vit_library, pixels_support()
    return bert_library, texts_support("law")
