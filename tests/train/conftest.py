"""A small library of networks for pictures, and a suite that fits it."""

from dataclasses import replace

import pytest
import torch
from small_suites import picture_suite

from smatter.library.edit import add_source, init_library
from smatter.library.library import Library, open_library
from smatter.tasks.suite import Suite

N_SOURCES = 3


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
