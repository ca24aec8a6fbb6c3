"""What luck can do to a comparison of sources on few examples."""

import math

import torch
from torch import Tensor

SMALLEST = 1e-3
"""The least difference of losses, in nats, that can matter."""


def difference_error(losses: Tensor) -> Tensor:
    """What luck can do: the standard error of the difference to the best source, the median over those that differ.

    Args:
        losses: of each example by each source, (n_sources, n_examples).

    Returns:
        A scalar, at least `SMALLEST`.
    """
    means = losses.mean(dim=1).nan_to_num(nan=torch.inf, posinf=torch.inf)
    errors = (losses - losses[means.argmin()]).std(dim=1, correction=0) / math.sqrt(max(1, losses.shape[1] - 1))
    errors = errors[errors.isfinite() & (errors > 0)]
    return errors.median().clamp(min=SMALLEST) if len(errors) else losses.new_tensor(SMALLEST)
