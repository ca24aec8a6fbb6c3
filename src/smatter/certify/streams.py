"""Bounds for streams: valid after every task at once, and for tasks that are not independent.

Three readings, from the narrowest bound to the fewest assumptions:

- `mean_sequence_betting`: every loss has the same expectation, given those before it;
- `block_mean_bound`: the stream is stationary, and far-apart tasks are nearly independent;
- `running_mean_sequence`: nothing is assumed. It bounds the average of what each loss was expected to be when its turn
  came, which is what a stream that drifts has instead of a mean.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from smatter.certify.betting import MOST, bets_at_any_time, running_spread
from smatter.certify.bound import Floats, UpperBound, check_delta, unit_losses
from smatter.certify.mean import MeanBound, mean_bound_betting
from smatter.errors import InvalidCertificate

N_MEANS = 1000
"""Means against which a gambler bets at once; a bound is rounded up to one of them."""

RATES = tuple(0.9 * 0.7**power for power in range(20))
"""Bets of the running mean's bound, all at once: the best is about 1 / (sd sqrt(n)), which is not known beforehand."""


def mean_sequence_betting(losses: ArrayLike, delta: float) -> Floats:
    """Upper bounds of the mean after each loss; all of them hold together with probability 1 - delta; (n,).

    A confidence sequence (Waudby-Smith and Ramdas, 2024): look at it after every task and stop whenever you like. The
    losses need not be independent, but the expectation of each, given those before it, must be the same.
    """
    check_delta(delta)
    found = unit_losses(losses)
    bets = bets_at_any_time(found, delta)
    bounds = np.ones(len(found))
    for mean in (np.arange(N_MEANS)[::-1] / N_MEANS).tolist():
        wealth = np.cumsum(np.log1p(np.minimum(bets, MOST / (1 - mean)) * (mean - found)))
        refuted = wealth >= np.log(1 / delta)
        if not refuted.any():  # wealth rises with the mean: nothing below is refuted either
            break
        bounds[int(refuted.argmax()) :] = mean
    return bounds


def running_mean_sequence(losses: ArrayLike, delta: float) -> Floats:
    """Upper bounds, after each loss, of the average so far of the losses' expectations given their pasts; (n,).

    All of them hold together with probability 1 - delta, for any stream of losses in [0, 1]. By Howard and others
    (2021), for every rate r in (0, 1) and predictable guess g_i of loss x_i,

        sum(E_i - x_i)  <=  (log(1/delta) + (-log(1 - r) - r) sum (x_i - g_i)^2) / r      at all times,

    here with several rates that share delta. The guess is the running mean.
    """
    check_delta(delta)
    found = unit_losses(losses)
    guesses, _ = running_spread(found)
    squares, count = np.cumsum((found - guesses) ** 2), np.arange(1, len(found) + 1)
    open_ends = [(np.log(len(RATES) / delta) + (-np.log1p(-rate) - rate) * squares) / rate for rate in RATES]
    return np.asarray(np.minimum((np.cumsum(found) + np.min(open_ends, axis=0)) / count, 1.0))


def block_mean_bound(
    losses: ArrayLike,
    length: int,
    gap: int,
    delta: float,
    *,
    mixing: float = 0.0,
    bound: MeanBound = mean_bound_betting,
) -> UpperBound:
    """A bound of the mean of a stationary stream, from means of blocks that are apart.

    Of every `length + gap` losses the first `length` make a block and the others are left out. If tasks more than `gap`
    apart are independent, so are the blocks, and any bound of a mean holds for them. Otherwise it holds with the
    stream's coefficient of beta-mixing at that distance subtracted from delta for each pair of neighbours (Yu, 1994).

    Args:
        losses: in the order of the stream, (n,).
        length: of a block.
        gap: between blocks.
        delta: how often the bound may fail.
        mixing: beta(gap); 0 for tasks that are independent beyond the gap.
        bound: of the mean of independent values.
    """
    check_delta(delta)
    found = unit_losses(losses, least=length)
    starts = range(0, len(found) - length + 1, length + gap)
    left = delta - (len(starts) - 1) * mixing
    if not left > 0:
        raise InvalidCertificate(f"mixing {mixing:g} of {len(starts)} blocks uses up delta {delta:g}: widen the gap")
    blocks = np.array([found[start : start + length].mean() for start in starts])
    made = bound(blocks, left)
    return replace(made, method=f"{made.method}, {len(starts)} blocks of {length}", delta=delta, n=len(found))
