"""How a learning rate rises and falls."""

import math


def rate_at(step: int, peak: float, n_steps: int, warm_up: float) -> float:
    """The rate of a step: a rise over the first steps, then half a cosine down to zero.

    Args:
        step: counted from zero.
        peak: the highest rate.
        n_steps: of the whole run.
        warm_up: share of the steps in which the rate rises.

    >>> [round(rate_at(step, 1.0, 10, 0.2), 2) for step in (0, 1, 2, 6, 9)]
    [0.5, 1.0, 1.0, 0.5, 0.04]
    """
    rise = max(1, round(warm_up * n_steps))
    if step < rise:
        return peak * (step + 1) / rise
    return 0.5 * peak * (1 + math.cos(math.pi * (step - rise) / max(1, n_steps - rise)))
