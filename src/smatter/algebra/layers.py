"""Layers of small networks whose first weights come from a generator."""

import torch
from torch import nn


def seeded_linear(n_in: int, n_out: int, generator: torch.Generator, scale: float = 1.0) -> nn.Linear:
    """A linear layer whose first weights come from a generator alone; biases are zero."""
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, n_in, n_out)
    with torch.no_grad():
        layer.weight.normal_(std=scale * n_in**-0.5, generator=generator)
        layer.bias.zero_()
    return layer
