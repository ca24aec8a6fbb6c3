"""Libraries and suites that several tests share; what is made once per worker is never written to."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from small_networks import make_tensors, write_checkpoint
from small_suites import picture_suite
from tiny_libraries import pixels_support, random_library, texts_support, tiny_bert, tiny_vit, topic_library
from toy_suite import Domain, make_checkpoints
from toy_suite import make_library as make_toy_library

from smatter.library.edit import add_source, init_library
from smatter.library.library import Library, open_library
from smatter.tasks.suite import Suite
from smatter.tasks.support import Support

torch.set_num_threads(1)
N_SOURCES = 3


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


@dataclass(frozen=True)
class Toy:
    """The trained suite."""

    folder: Path
    domains: dict[str, Domain]
    library: Library


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    """Three synthetic domains of pictures, and a base and a specialist of each."""
    folder = tmp_path_factory.mktemp("toy")
    domains = make_checkpoints(folder)
    return Toy(folder, domains, make_toy_library(folder))


@pytest.fixture(scope="session")
def vit_library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """Random networks for pictures."""
    return random_library(tmp_path_factory.mktemp("vit"), tiny_vit())


@pytest.fixture(scope="session")
def bert_library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """Random networks for texts."""
    return random_library(tmp_path_factory.mktemp("bert"), tiny_bert())


@pytest.fixture(scope="session")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """A BERT, and one for each topic that knows its words."""
    return topic_library(tmp_path_factory.mktemp("topics"))


@pytest.fixture(params=["vit", "bert"])
def task(request: pytest.FixtureRequest, vit_library: Library, bert_library: Library) -> tuple[Library, Support]:
    """A random library and a task for it."""
    if request.param == "vit":
        return vit_library, pixels_support()
    return bert_library, texts_support("law")


@pytest.fixture(scope="session")
def tiny_library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """A ConvNext, and two that lie around it."""
    from transformers import ConvNextConfig, ConvNextModel

    folder = tmp_path_factory.mktemp("library")
    config = ConvNextConfig(
        num_channels=3, patch_size=2, num_stages=2, hidden_sizes=[8, 16], depths=[1, 1], image_size=8,
        layer_scale_init_value=0.5,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = ConvNextModel(config)
        for number in range(N_SOURCES):
            if number:
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter.add_(0.3 * parameter.std(correction=0) * torch.randn_like(parameter))
            model.save_pretrained(folder / f"s{number}")
            if number:
                add_source(folder, folder / f"s{number}")
            else:
                init_library(folder, folder / "s0")
    return open_library(folder)


@pytest.fixture(scope="session")
def tiny_suite() -> Suite:
    """Two domains to learn from."""
    made = picture_suite(n_classes=30, n_examples=12)
    return replace(made, domains=tuple(replace(domain, role="id") for domain in made.domains))
