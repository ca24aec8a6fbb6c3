"""Risks of a batch of tasks: the mean of the worst share rho (CVaR), mean and variance, the worst group.

    CVaR_rho(X) = min_t t + E (X - t)_+ / rho  =  max_q sum_i q_i x_i,  0 <= q_i <= p_i / rho,  sum_i q_i = 1

(Rockafellar and Uryasev, 2000; Bayes-routed paper, eqs. 2, 6, 10 and 11). At rho = 1 it is the mean. Tasks lie on the
last axis. A batch of B tasks sees nothing beyond its largest loss: where rho B < 1 the risk of the batch is too small
on average (4 uniform losses at rho = 0.1 give 0.80, and the truth is 0.95), and only a threshold from more tasks than
the batch, learnt or of a window, mends that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot, relu, softplus

from smatter.errors import InvalidSettings
from smatter.settings import check_at_least, check_limits, check_positive

BISECTIONS = 60
"""Halvings that find the smooth threshold to the last bit of a float64."""


def tail_weights(losses: Tensor, rho: float, task_weights: Tensor | None = None) -> Tensor:
    """What each task counts in the mean of the worst share: the largest q above. They sum to one; ties share alike.

    Args:
        losses: of each task, (..., n_tasks).
        rho: the share, above 0 and up to 1.
        task_weights: p, how much of the whole each task stands for, (n_tasks,); equal by default.

    >>> tail_weights(torch.tensor([3.0, 1.0, 2.0, 0.0]), 0.375)
    tensor([0.6667, 0.0000, 0.3333, 0.0000])
    """
    shares = _shares(losses, rho, task_weights)
    ordered, order = losses.detach().sort(dim=-1, descending=True)
    covered = shares.gather(-1, order).cumsum(dim=-1)
    last = (covered < covered[..., -1:].clamp(max=rho)).sum(dim=-1, keepdim=True)  # sums of shares are rounded
    threshold = ordered.gather(-1, last)
    above, at = shares * (losses > threshold), shares * (losses == threshold)
    room = (rho - above.sum(dim=-1, keepdim=True)).clamp(min=0)
    return (above + at * room / at.sum(dim=-1, keepdim=True)) / rho


def tail_risk(losses: Tensor, rho: float, task_weights: Tensor | None = None) -> Tensor:
    """CVaR_rho of the batch, (...); its gradient in the losses is `tail_weights`, so it never vanishes.

    >>> tail_risk(torch.tensor([3.0, 1.0, 2.0, 0.0]), 0.5)
    tensor(2.5000)
    """
    return (tail_weights(losses, rho, task_weights) * losses).sum(dim=-1)


def hinge_risk(losses: Tensor, threshold: Tensor, rho: float) -> Tensor:
    """t + mean (X - t)_+ / rho, (...): CVaR_rho at the best t, more at any other (eq. 6).

    Args:
        losses: of each task, (..., n_tasks).
        threshold: t, (...); a parameter that is learnt with the others, or a number that stays.
        rho: the share.
    """
    _check_share(rho)
    return threshold + relu(losses - threshold.unsqueeze(-1)).mean(dim=-1) / rho


def stopped_risk(losses: Tensor, rho: float) -> Tensor:
    """The risk with the batch's own order statistic as a threshold that passes no gradient on (eq. 11), (...).

    Its value is that of `tail_risk`. Its gradient leaves out the task at the threshold, and so has weights that sum to
    less than one: to nothing where the tail is a single task, which raises.
    """
    _check_share(rho)
    n_tasks = losses.shape[-1]
    if rho * n_tasks <= 1:
        raise InvalidSettings(
            f"the worst {rho:g} of a batch of {n_tasks} tasks is its largest loss, and a threshold there leaves no "
            f"gradient: take {math.floor(1 / rho) + 1} tasks or more, a window, or a learnt threshold"
        )
    return hinge_risk(losses, _order_statistic(losses, rho), rho)


@dataclass(frozen=True)
class TailWindow:
    """The threshold of CVaR from the losses of the last batches: more tasks than one batch has.

    Args:
        rho: the share.
        size: losses that are kept; rho times as many must be above one.
        losses: the last ones, (n,), the newest at the end.
    """

    rho: float
    size: int
    losses: Tensor = field(default_factory=lambda: torch.zeros(0))

    def __post_init__(self) -> None:
        _check_share(self.rho)
        check_limits(size=self.size)
        if self.rho * self.size <= 1:
            least = math.floor(1 / self.rho) + 1
            raise InvalidSettings(f"a window of {self.size} has no worst {self.rho:g}: keep {least} losses or more")

    def seen(self, losses: Tensor) -> TailWindow:
        """The window after one more batch, (n_tasks,)."""
        return replace(self, losses=torch.cat([self.losses.to(losses), losses.detach()])[-self.size :])

    @property
    def is_ready(self) -> bool:
        """Whether so many losses were seen that the worst share is more than one of them."""
        return self.rho * len(self.losses) > 1

    @property
    def threshold(self) -> Tensor:
        """The least loss of the window's worst share, a scalar."""
        return _order_statistic(self.losses, self.rho)

    def risk(self, losses: Tensor) -> Tensor:
        """Risk of a batch at the window's threshold, a scalar; that of the batch alone until the window is ready.

        A batch may have no loss above the threshold, and another several: on average their weights sum to one.
        """
        return hinge_risk(losses, self.threshold, self.rho) if self.is_ready else tail_risk(losses, self.rho)


def soft_tail_weights(losses: Tensor, rho: float, temperature: float, task_weights: Tensor | None = None) -> Tensor:
    """A smooth top share: weights p_i sigmoid((x_i - t) / T) / rho, with t such that they sum to one.

    They are `tail_weights` as T falls to zero and p as it grows.

    Args:
        losses: of each task, (..., n_tasks).
        rho: the share.
        temperature: T, in units of the losses.
        task_weights: p; equal by default.

    >>> soft_tail_weights(torch.tensor([3.0, 1.0, 2.0, 0.0]), 0.5, 0.5)
    tensor([0.4763, 0.1345, 0.3655, 0.0237])
    """
    shares = _shares(losses, rho, task_weights)
    if rho == 1:
        return shares
    threshold = _soft_threshold(losses, rho, temperature, shares)
    weights = shares * ((losses - threshold) / temperature).sigmoid()
    return weights / weights.sum(dim=-1, keepdim=True)


def soft_tail_risk(losses: Tensor, rho: float, temperature: float, task_weights: Tensor | None = None) -> Tensor:
    """min_t t + T E softplus((X - t) / T) / rho, (...): at most T log 2 / rho above CVaR_rho, and smooth.

    By the envelope theorem its gradient in the losses is `soft_tail_weights`: t may be held fixed.
    """
    shares = _shares(losses, rho, task_weights)
    if rho == 1:
        return (shares * losses).sum(dim=-1)
    threshold = _soft_threshold(losses, rho, temperature, shares)
    above = softplus((losses - threshold) / temperature)
    return threshold.squeeze(-1) + temperature / rho * (shares * above).sum(dim=-1)


def mean_and_variance(losses: Tensor, strength: float, task_weights: Tensor | None = None) -> Tensor:
    """Mean plus strength times the variance over the tasks, (...).

    >>> mean_and_variance(torch.tensor([1.0, 3.0]), 0.5)
    tensor(2.5000)
    """
    check_at_least(0, strength=strength)
    shares = _shares(losses, 1.0, task_weights)
    mean = (shares * losses).sum(dim=-1, keepdim=True)
    return mean.squeeze(-1) + strength * (shares * (losses - mean).square()).sum(dim=-1)


def worst_group_weights(losses: Tensor, groups: Tensor, task_weights: Tensor | None = None) -> Tensor:
    """What each task counts in the mean of the group whose mean is largest; they sum to one, (..., n_tasks).

    Args:
        losses: of each task, (..., n_tasks).
        groups: the number of each task's group, (n_tasks,); numbers that no task has are passed over.
        task_weights: of the tasks within their groups; equal by default.

    >>> worst_group_weights(torch.tensor([1.0, 2.0, 4.0, 0.0]), torch.tensor([0, 0, 3, 3]))
    tensor([0.0000, 0.0000, 0.5000, 0.5000])
    """
    shares = _shares(losses, 1.0, task_weights)
    members = one_hot(groups).to(shares)
    mass = shares @ members
    means = ((shares * losses) @ members / mass).nan_to_num(nan=-torch.inf)
    worst = shares * members.T[means.argmax(dim=-1)]
    return worst / worst.sum(dim=-1, keepdim=True)


def _order_statistic(losses: Tensor, rho: float) -> Tensor:
    """The least loss of the worst share, (...)."""
    ordered = losses.detach().sort(dim=-1, descending=True).values
    return ordered[..., math.ceil(rho * losses.shape[-1]) - 1]


def _soft_threshold(losses: Tensor, rho: float, temperature: float, shares: Tensor) -> Tensor:
    """t with E sigmoid((X - t) / T) = rho, (..., 1), by bisection; it passes no gradient on."""
    check_positive(temperature=temperature)
    values = losses.detach()
    # A loss x alone would have t = x - T logit(rho), so t lies between those of the least and the largest loss.
    shift = temperature * math.log(rho / (1 - rho))
    low, high = values.amin(dim=-1, keepdim=True) - shift, values.amax(dim=-1, keepdim=True) - shift
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        too_low = (shares * ((values - middle) / temperature).sigmoid()).sum(dim=-1, keepdim=True) > rho
        low, high = torch.where(too_low, middle, low), torch.where(too_low, high, middle)
    return (low + high) / 2


def _shares(losses: Tensor, rho: float, task_weights: Tensor | None) -> Tensor:
    """The tasks' weights, made to sum to one, in the shape of the losses; refuses what has no risk."""
    _check_share(rho)
    if not bool(losses.isfinite().all()):
        bad = int((~losses.isfinite()).any(dim=tuple(range(losses.ndim - 1))).nonzero()[0])
        raise InvalidSettings(f"the loss of task {bad} is not finite: leave the task out, or bound its loss")
    weights = torch.ones_like(losses) if task_weights is None else task_weights.to(losses).expand_as(losses)
    if not bool((weights >= 0).all() & (weights.sum(dim=-1) > 0).all()):
        raise InvalidSettings("weights of tasks must be zero or more, and some above zero")
    return weights / weights.sum(dim=-1, keepdim=True)


def _check_share(rho: float) -> None:
    if not 0 < rho <= 1:  # also rejects NaN
        raise InvalidSettings(f"rho is {rho}: give a share above 0 and up to 1")
