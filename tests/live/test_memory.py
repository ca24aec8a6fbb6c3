"""Memory of the solver: one network, one gradient and activations, however many sources there are."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import ViTConfig, ViTModel

from smatter.library.edit import add_source, init_library

PROGRAM = Path(__file__).parent / "memory_program.py"


def peak(folder: Path) -> float:
    done = subprocess.run([sys.executable, str(PROGRAM), str(folder)], capture_output=True, text=True, check=True)
    return float(done.stdout)


@pytest.mark.slow
def test_anonymous_memory_does_not_grow_with_the_number_of_sources(tmp_path: Path) -> None:
    config = ViTConfig(
        hidden_size=384,
        num_hidden_layers=4,
        num_attention_heads=6,
        intermediate_size=1536,
        image_size=32,
        patch_size=16,
    )
    base = ViTModel(config, add_pooling_layer=False).state_dict()
    network = sum(tensor.numel() for tensor in base.values()) * 4 / 1e6
    generator = torch.Generator().manual_seed(0)
    peaks = {}
    for n_sources in (2, 18):
        for number in range(n_sources):
            folder = tmp_path / f"s{number}"
            if not folder.exists():
                config.save_pretrained(folder)
                noisy = {name: t + 0.01 * torch.randn(t.shape, generator=generator) for name, t in base.items()}
                save_file(noisy, folder / "model.safetensors", metadata={"format": "pt"})
        library = init_library(tmp_path / f"library-{n_sources}", tmp_path / "s0")
        for number in range(1, n_sources):
            library, _ = add_source(library.folder, tmp_path / f"s{number}")
        peaks[n_sources] = peak(library.folder)
    assert network > 25
    assert peaks[18] - peaks[2] < 0.5 * network, (peaks, network)
    assert peaks[18] < 4.5 * network, (peaks, network)
