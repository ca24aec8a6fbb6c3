"""A latency model: what the active groups of each module add to a forward pass (AutoBudget paper, equation 19).

    lat(s) = base * (1 + sum over modules l of c_l(s_l)),      c_l(s) = on_l [s > 0] + f_l(s)

s_l is the active fraction of module l; f_l is piecewise linear, zero at zero and never falls. Costs are shares of the
base's own time, fitted by non-negative least squares to whole stacks timed beside the base: toggling one module alone
drowns in the clock's noise. Modules of a kind (the same operators in another layer) begin with the same cost and
differ as far as the measurements say.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smatter.errors import InvalidProfile

Floats = NDArray[np.float64]

KNOTS = (0.0, 0.125, 0.25, 0.5, 1.0)
"""Active fractions between which a cost is linear."""

PULLS = (1.0, 10.0, 100.0, 1000.0)
"""How strongly modules of a kind may be pulled together: as this many measurements that say they are alike."""

STRAIGHT = 0.1
"""So much of a measurement is that costs of a kind rise evenly: it matters where hardly any stack reaches."""

N_FOLDS, NO_WORSE = 5, 1.04
"""Of the pulls whose squared error is about the least, the strongest is taken."""


@dataclass(frozen=True)
class ModuleCost:
    """What a module's active groups cost, in shares of the base's time.

    Args:
        on: as soon as any group is active.
        rises: what is added from one knot to the next, none negative; (len(KNOTS) - 1,).
    """

    on: float
    rises: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.rises) != len(KNOTS) - 1 or not all(np.isfinite(n) and n >= 0 for n in self.numbers):
            raise InvalidProfile(f"a module's cost needs {len(KNOTS)} finite numbers, none negative: profile it again")

    @property
    def numbers(self) -> tuple[float, ...]:
        """All of them, as a profile holds them."""
        return self.on, *self.rises

    def __call__(self, active: Floats) -> Floats:
        """The exact cost of active fractions."""
        values = np.concatenate([[0.0], np.cumsum(self.rises)])
        return np.where(active > 0, self.on + np.interp(active, KNOTS, values), 0.0)

    @property
    def majorant(self) -> tuple[tuple[float, float], ...]:
        """Lines, (offset, slope) each, whose maximum is convex and nowhere below the exact cost on (0, 1].

        It is the greatest convex function that is nowhere above the cost, shifted up until no knot is above it: of all
        convex bounds from above the one that is at most a little too high. At zero it is at least `on`; what is really
        off costs nothing, which only the exact form knows.
        """
        totals = [0.0, *np.cumsum(self.rises).tolist()]
        points = [(knot, self.on + total) for knot, total in zip(KNOTS, totals, strict=True)]
        corners: list[tuple[float, float]] = []
        for point in points:  # the lower hull, from left to right
            while len(corners) > 1 and _slope(corners[-2], corners[-1]) >= _slope(corners[-1], point):
                corners.pop()
            corners.append(point)
        xs, ys = zip(*corners, strict=True)
        shift = max(value - float(np.interp(knot, xs, ys)) for knot, value in points)
        slopes = [(left, _slope(left, right)) for left, right in pairwise(corners)]
        return tuple((left[1] + shift - slope * left[0], slope) for left, slope in slopes)


def _slope(left: tuple[float, float], right: tuple[float, float]) -> float:
    return (right[1] - left[1]) / (right[0] - left[0])


@dataclass(frozen=True)
class LatencyModel:
    """Costs of all modules.

    Args:
        costs: by module.
        bend: what is not additive. The sum of costs x counts as x (1 + bend x), or as x / (1 - bend x) where it is
            negative: more always costs more.
    """

    costs: Mapping[str, ModuleCost]
    bend: float = 0.0

    def relative(self, active: Mapping[str, float] | Sequence[Mapping[str, float]]) -> Floats:
        """Time as a multiple of the base's, of one configuration or of several; modules that are not named are off."""
        stacks = [active] if isinstance(active, Mapping) else list(active)
        for stack in stacks:
            for module, share in stack.items():
                self._check(module)
                if not 0 <= share <= 1:
                    raise InvalidProfile(f"active fraction {share} of {module[:100]!r} is not between 0 and 1")
        total = sum(
            (cost(np.array([stack.get(module, 0.0) for stack in stacks])) for module, cost in self.costs.items()),
            start=np.zeros(len(stacks)),
        )
        return np.asarray(1 + bent(total, self.bend))

    def smooth_bound(self, active: Mapping[str, Tensor]) -> Tensor:
        """A convex and differentiable function of active fractions that is nowhere below `relative`.

        Each module's convex bound is a maximum of lines; here it is a soft one, at most a hundredth higher. Savings
        (a negative bend) are left out, which would not be convex.
        """
        total = torch.zeros(())
        for module, share in active.items():
            self._check(module)
            offsets, slopes = torch.tensor(self.costs[module].majorant, dtype=share.dtype).T
            lines = offsets + slopes * share[..., None]
            softness = max(float((offsets + slopes).max()), 1e-9) / 100 / max(1.0, np.log(len(offsets)))
            total = total + softness * torch.logsumexp(lines / softness, dim=-1)
        return 1 + total * (1 + max(self.bend, 0.0) * total)

    def _check(self, module: str) -> None:
        if module not in self.costs:
            raise InvalidProfile(f"the profile knows no module {module[:100]!r}: profile this network")


def bent(total: Floats, bend: float) -> Floats:
    """A sum of costs with what is not additive; see `LatencyModel`."""
    return total * (1 + bend * total) if bend >= 0 else total / (1 - bend * total)


def unbent(extra: Floats, bend: float) -> Floats:
    """The sum of costs that `bent` makes this of; not finite where there is none.

    >>> unbent(bent(np.array([0.5, 2.0]), -0.4), -0.4)
    array([0.5, 2. ])
    """
    if bend > 0:
        with np.errstate(invalid="ignore"):  # noise can make a network seem faster than its base
            return np.asarray(2 * extra / (1 + np.sqrt(1 + 4 * bend * extra)))
    left = 1 + bend * extra
    return np.where(left > 0, extra / np.maximum(left, 1e-12), np.inf)


def fit_costs(
    stacks: Sequence[Mapping[str, float]], ratios: Floats, kinds: Mapping[str, str], switches: Collection[str] = ()
) -> LatencyModel:
    """Fit costs to whole stacks.

    Args:
        stacks: active fraction of each module, for each measured configuration.
        ratios: time of each as a multiple of the base's.
        kinds: of each module; modules of a kind are pulled together, as strongly as predicts stacks that were left out.
        switches: modules that are either off or on, without anything in between.
    """
    reach = np.array([[_features(stack.get(module, 0.0)) for module in kinds] for stack in stacks])
    reach[:, [module in switches for module in kinds], 1:] = 0
    fold = np.arange(len(stacks)) % N_FOLDS

    def error(pull: float) -> float:
        """Of stacks in a fold, from those in the others."""
        found = 0.0
        for left_out in range(N_FOLDS):
            given, asked = fold != left_out, fold == left_out
            costs = _costs_alike(reach[given], ratios[given], kinds, pull)
            found += float((((1 + (reach[asked] * costs).sum(axis=(1, 2))) / ratios[asked] - 1) ** 2).sum())
        return found

    errors = {pull: error(pull) for pull in PULLS}
    pull = max(pull for pull in PULLS if errors[pull] <= NO_WORSE * min(errors.values()) + 1e-12)
    found = _costs_alike(reach, ratios, kinds, pull).tolist()
    return LatencyModel(
        {module: ModuleCost(on, tuple(rises)) for module, (on, *rises) in zip(kinds, found, strict=True)}
    )


def _costs_alike(reach: Floats, ratios: Floats, kinds: Mapping[str, str], pull: float) -> Floats:
    """Costs of modules, none negative, each pulled to that of its kind; (n_modules, len(KNOTS)).

        minimise |reach x / ratios - (ratios - 1) / ratios|^2 + pull |x - x_kind|^2 + straight |kinks of x_kind|^2
        over x >= 0, x_kind >= 0

    Errors are relative, since a run that takes twice as long varies twice as much; pulls are in measurements.
    """
    from scipy.optimize import nnls  # a quarter of a second, which adapting does not need

    n_stacks, n_modules, n_numbers = reach.shape
    names = sorted(set(kinds.values()))
    of_kind = np.kron([[float(kind == name) for name in names] for kind in kinds.values()], np.eye(n_numbers))
    own = (reach / ratios[:, None, None]).reshape(n_stacks, -1)
    weights = np.sqrt(pull * (own**2).mean(axis=0) + 1e-12)
    straight = np.sqrt(STRAIGHT) * np.kron(np.eye(len(names)), _straight())
    system = np.block(
        [
            [own, np.zeros((n_stacks, of_kind.shape[1]))],
            [np.diag(weights), -weights[:, None] * of_kind],
            [np.zeros((len(straight), len(weights))), straight],
        ]
    )
    target = np.concatenate([(ratios - 1) / ratios, np.zeros(len(weights) + len(straight))])
    reached = (of_kind.T @ (own != 0).any(axis=0)).reshape(len(names), n_numbers) > 0
    rises = reached[:, 1:].any(axis=1, keepdims=True)  # not of a switch, nor of what is never on
    used = (reached | rises).flatten()
    solved = np.concatenate([of_kind @ used > 0, used])
    found = np.zeros(len(solved))
    found[solved], _ = nnls(system[:, solved], target)
    return found[: len(weights)].reshape(n_modules, n_numbers)


def _straight() -> Floats:
    """What each rise of a cost is above the one before it, for its width; (len(KNOTS) - 2, len(KNOTS))."""
    widths, rows = np.diff(KNOTS), np.zeros((len(KNOTS) - 2, len(KNOTS)))
    for row in range(len(rows)):
        rows[row, row + 1 : row + 3] = -widths[row + 1] / widths[row], 1.0
    return rows


def fit_alone(active: Floats, shares: Floats) -> ModuleCost:
    """Fit one module's cost to what some active fractions of it took, in shares of the base's time."""
    from scipy.optimize import nnls  # a quarter of a second, which adapting does not need

    (on, *rises), _ = nnls(np.stack([_features(each) for each in active]), shares)
    return ModuleCost(on, tuple(rises))


def _features(active: float) -> Floats:
    """Is it on, and how far into each piece does it reach; (len(KNOTS),)."""
    starts, ends = np.array(KNOTS[:-1]), np.array(KNOTS[1:])
    return np.concatenate([[float(active > 0)], np.clip((active - starts) / (ends - starts), 0, 1)])
