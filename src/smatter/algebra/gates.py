"""Hard-concrete gates: stochastic numbers in [0, 1] that are exactly 0 or 1 with positive probability.

Louizos, Welling and Kingma, 2018: a sigmoid of logits plus logistic noise, stretched beyond [0, 1] and clipped.
"""

import math

import torch
from torch import Tensor

LOW, HIGH = -0.1, 1.1
"""What the sigmoid is stretched to before it is clipped."""


def sample_gates(logits: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    """Random gates, differentiable in the logits."""
    noise = torch.rand(logits.shape, generator=generator, dtype=logits.dtype).clamp(1e-6, 1 - 1e-6)
    return _stretch(((logits + noise.log() - (-noise).log1p()) / temperature).sigmoid())


def mean_gates(logits: Tensor) -> Tensor:
    """Gates without noise, for use after training.

    >>> mean_gates(torch.tensor([-5.0, 0.0, 5.0]))
    tensor([0.0000, 0.5000, 1.0000])
    """
    return _stretch(logits.sigmoid())


def open_probability(logits: Tensor, temperature: float) -> Tensor:
    """How likely each gate is not zero; summed, the expected L0 norm."""
    return (logits - temperature * math.log(-LOW / HIGH)).sigmoid()


def _stretch(values: Tensor) -> Tensor:
    return (LOW + (HIGH - LOW) * values).clamp(0, 1)
