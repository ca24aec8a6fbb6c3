"""A network of random weights to profile a device with, where there is no library at hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from smatter.backbones.gate import transformers
from smatter.library.edit import add_source, init_library
from smatter.library.library import Library, open_library

if TYPE_CHECKING:
    from transformers import PreTrainedModel

N_SOURCES = 3


def sample_network() -> PreTrainedModel:
    """A ViT of 2.7 M parameters, drawn from torch's own generator."""
    library = transformers()
    config = library.ViTConfig(
        hidden_size=192, num_hidden_layers=6, num_attention_heads=3, intermediate_size=768, image_size=64, patch_size=8
    )
    network: PreTrainedModel = library.ViTModel(config, add_pooling_layer=False)
    return network


def make_sample_library(folder: Path) -> Library:
    """Such a network, and others like it, in an empty folder."""
    with torch.random.fork_rng(devices=[]):
        for number in range(N_SOURCES):
            torch.manual_seed(number)
            sample_network().save_pretrained(folder / f"random-{number}")
    init_library(folder, folder / "random-0")
    for number in range(1, N_SOURCES):
        add_source(folder, folder / f"random-{number}")
    return open_library(folder)
