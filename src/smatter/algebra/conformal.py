"""The conformal quantile: a number that a new one, exchangeable with those given, exceeds as rarely as one likes."""

import math

import numpy as np
from numpy.typing import ArrayLike


def conformal_rank(n: int, delta: float) -> int:
    """Which of n ordered numbers is the limit: ceil((n + 1)(1 - delta)); n + 1 stands for none."""
    return min(math.ceil(round((n + 1) * (1 - delta), 9)), n + 1)


def conformal_quantile(values: ArrayLike, delta: float) -> float:
    """The number that a new value exceeds with probability at most delta; infinite where there are too few.

    >>> conformal_quantile([1.0, 1.1, 1.2, 1.3], 0.25)
    1.3
    """
    ordered = np.sort(np.asarray(values, np.float64))
    rank = conformal_rank(len(ordered), delta)
    return float(ordered[rank - 1]) if 0 < rank <= len(ordered) else math.inf
