"""Levels for one task and its budgets: values from a policy, corrected by a few losses on the support set.

Two solvers, each with at most a handful of losses, each the loss of levels that could be served:

- exact. Values are taken to be wrong by a factor for each module, gain(x) = sum over l of theta_l value_l(x_l) + noise,
  theta_l ~ N(1, spread^2). Levels are allocated exactly for the policy's values, then for values with factors drawn
  from the posterior given the losses so far (Thompson sampling), and last for its mean, which is ridge regression
  towards the policy. Levels that were tried are drawn anew.
- steps. Projected descent on the shares. The gradient's estimator is the two-point one of simultaneous perturbation:
  all shares are moved by random signs, up and down, and the difference of the two losses is put on the direction
  between the two (Spall, 1992). Each step takes two losses.

Of all levels that were tried the ones of least loss are taken, nothing open among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from smatter.budget.knapsack import ROUNDING, allocate, rooms
from smatter.budget.ranked import Floats, Ranked
from smatter.errors import InvalidSettings

Loss = Callable[[Mapping[str, float]], float]
"""The support loss when these shares of the modules' units are open, best first."""

BudgetSolver = Literal["exact", "steps"]
MOST_EVALUATIONS = 5
MOST_DRAWS = 8
"""Of factors, until levels come out that were not tried."""

REACH = 0.25
"""How far steps move a share."""


@dataclass(frozen=True)
class BudgetFit:
    """What was chosen for a task.

    Args:
        levels: open units of each module, best first.
        shares: the same as shares of its units.
        costs: what they cost, with what is fixed, in each resource.
        value: what they are worth by the values that were given.
        loss: their support loss; none where it was not measured.
        evaluations: losses that were measured.
    """

    levels: Mapping[str, int]
    shares: Mapping[str, float]
    costs: tuple[float, ...]
    value: float
    loss: float | None
    evaluations: int


def fit_budget(
    ranked: Ranked,
    budgets: float | Sequence[float],
    loss: Loss | None = None,
    *,
    solver: BudgetSolver = "exact",
    closed: float | None = None,
    start: Mapping[str, float] | None = None,
    n_evaluations: int = MOST_EVALUATIONS,
    spread: float = 1.0,
    noise: float = 0.01,
    generator: np.random.Generator | None = None,
) -> BudgetFit:
    """Choose levels for a task within all budgets.

    Args:
        ranked: units, with the policy's values.
        budgets: one for each resource.
        loss: on the support set; without it the policy's values decide alone.
        solver: see the module's text.
        closed: loss with nothing open, where it is known; else it is the first that is measured.
        start: shares that steps begin with, the policy's; those of the exact allocation by default.
        n_evaluations: losses to measure at most.
        spread: how far factors of values may be from 1, as a standard deviation.
        noise: standard deviation of a loss.
        generator: of factors and signs; always the same ones by default.
    """
    if solver not in get_args(BudgetSolver):
        raise InvalidSettings(
            f"unknown solver {str(solver)[:80]!r} of a budget: use {', '.join(get_args(BudgetSolver))}"
        )
    if not (n_evaluations >= 0 and spread > 0 and noise > 0):
        raise InvalidSettings("a fit needs evaluations of 0 or more, and a spread and a noise above 0")
    tried = _Tried(ranked, loss if n_evaluations else None, n_evaluations)
    nothing = dict.fromkeys(ranked.modules, 0)
    if closed is not None:
        tried.losses[_key(nothing)] = closed
    first = allocate(ranked, budgets).levels
    random = generator or np.random.default_rng(0)
    if loss is not None and n_evaluations:
        if not np.isfinite(tried.measure(nothing) or 0.0):
            raise InvalidSettings("the loss with nothing open is not a finite number: check the support set")
        if solver == "exact":
            _correct(ranked, budgets, tried, first, spread=spread, noise=noise, generator=random)
        else:
            _descend(ranked, budgets, tried, start or ranked.shares(first), random)
    best: Key = min(tried.losses, key=tried.losses.__getitem__) if len(tried.losses) > 1 else _key(first)
    chosen = dict(best)
    return BudgetFit(
        levels=chosen,
        shares=ranked.shares(chosen),
        costs=tuple(ranked.cost(chosen).tolist()),
        value=ranked.value(chosen),
        loss=tried.losses.get(_key(chosen)),
        evaluations=tried.n_measured,
    )


Key = tuple[tuple[str, int], ...]


def _key(levels: Mapping[str, int]) -> Key:
    return tuple(levels.items())


class _Tried:
    """Losses of levels, measured once each, and no more than are allowed."""

    def __init__(self, ranked: Ranked, loss: Loss | None, most: int) -> None:
        self.ranked, self.loss, self.left, self.n_measured = ranked, loss, most, 0
        self.losses: dict[Key, float] = {}

    def measure(self, levels: Mapping[str, int]) -> float | None:
        """The loss of levels; none where no evaluation is left."""
        key = _key(levels)
        if key not in self.losses:
            if not self.left or self.loss is None:
                return None
            self.left, self.n_measured = self.left - 1, self.n_measured + 1
            found = float(self.loss(self.ranked.shares(levels)))
            self.losses[key] = found if np.isfinite(found) else np.inf
        return self.losses[key]


def _correct(
    ranked: Ranked,
    budgets: float | Sequence[float],
    tried: _Tried,
    first: Mapping[str, int],
    *,
    spread: float,
    noise: float,
    generator: np.random.Generator,
) -> None:
    """Allocate, measure, estimate the factors of values, and again."""
    tried.measure(first)
    while tried.left:
        mean, root = _factors(ranked, tried.losses, spread, noise)
        for draw in range(MOST_DRAWS):
            likely = tried.left == 1 and draw == 0
            factors = mean if likely else mean + root @ generator.normal(size=len(mean))
            candidate = allocate(_scaled(ranked, factors), budgets).levels
            if _key(candidate) not in tried.losses:
                break
        else:
            return
        tried.measure(candidate)


def _factors(ranked: Ranked, losses: Mapping[Key, float], spread: float, noise: float) -> tuple[Floats, Floats]:
    """Mean of the modules' factors given the gains that were measured, and a root of their covariance."""
    closed = losses[_key(dict.fromkeys(ranked.modules, 0))]
    pairs = [(key, closed - loss) for key, loss in losses.items() if np.isfinite(loss)]
    design = np.array([[ranked.modules[name].level_values[level] for name, level in key] for key, _ in pairs])
    surprise = np.array([gain for _, gain in pairs]) - design.sum(axis=1)
    gain = spread**2 * design.T @ np.linalg.inv(spread**2 * design @ design.T + noise**2 * np.eye(len(pairs)))
    covariance = spread**2 * (np.eye(design.shape[1]) - gain @ design)
    variances, axes = np.linalg.eigh((covariance + covariance.T) / 2)
    return 1 + gain @ surprise, axes * np.sqrt(np.maximum(variances, 0.0))


def _scaled(ranked: Ranked, factors: Floats) -> Ranked:
    modules = {
        name: replace(module, values=factor * module.values)
        for (name, module), factor in zip(ranked.modules.items(), factors.tolist(), strict=True)
    }
    return replace(ranked, modules=modules)


def within(ranked: Ranked, shares: Floats, budgets: float | Sequence[float]) -> Floats:
    """Shares moved against the costs, b_l - t c_l cut to [0, 1], as little as makes their levels keep all budgets.

    Args:
        ranked: modules.
        shares: of their units, in their order; (n_modules,).
        budgets: one for each resource.
    """
    room = rooms(ranked, budgets)
    scale = np.where(room > 0, room, 1.0)
    slopes = np.array([(module.level_costs[:, -1] / scale).sum() for module in ranked.modules.values()])

    def keeps(t: float) -> bool:
        spent = ranked.cost(_levels(ranked, shares - t * slopes)) - np.array(ranked.fixed)
        return bool((spent <= room * (1 + ROUNDING)).all())

    if keeps(0.0):
        return shares.clip(0, 1)
    low, high = 0.0, float(shares.max() / slopes[slopes > 0].min())
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return (shares - high * slopes).clip(0, 1)


def _levels(ranked: Ranked, shares: Floats) -> dict[str, int]:
    return ranked.levels(dict(zip(ranked.modules, shares.clip(0, 1).tolist(), strict=True)))


def _descend(
    ranked: Ranked,
    budgets: float | Sequence[float],
    tried: _Tried,
    start: Mapping[str, float],
    generator: np.random.Generator,
) -> None:
    """A few projected steps down an estimated gradient of the loss in the shares.

    Two losses say which way to go and little of how far: steps have a fixed length.
    """
    point = within(ranked, np.array([start.get(name, 0.0) for name in ranked.modules]), budgets)
    tried.measure(_levels(ranked, point))
    for _ in range(tried.left):  # sides that are known already cost nothing
        signs = generator.choice([-REACH, REACH], size=len(point))
        sides = [_levels(ranked, within(ranked, point + side * signs, budgets)) for side in (1, -1)]
        up, down = (tried.measure(levels) for levels in sides)
        if up is None or down is None:
            return
        first, second = (np.array(list(ranked.shares(levels).values())) for levels in sides)
        between = first - second
        if up == down or not between.any():
            continue
        step = np.sign(down - up) * REACH * between / np.abs(between).max()
        point = within(ranked, point + step, budgets)
        tried.measure(_levels(ranked, point))
