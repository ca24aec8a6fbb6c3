"""Weights that may be told to others: differentially private in the examples; see `route.private`."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from smatter.errors import InvalidSettings
from smatter.methods import Fit, Trace, method
from smatter.settings import check_limits, check_privacy

if TYPE_CHECKING:
    from smatter.live.mixture import LiveMixture
    from smatter.live.task import Task
    from smatter.records import Progress
    from smatter.route.store import TrainedRouter


@dataclass(frozen=True)
class PrivateSettings:
    """How private the weights are.

    Args:
        router: gives the weights of each example alone; one with a single row of weights.
        epsilon: the most that the likelihood of any outcome may change when an example is replaced, on a logarithmic
            scale.
        delta: the probability with which that may fail.
        max_sources: the most sources with weight; all by default.
        ledger: a file that counts the releases for these examples, one for each set of examples; none by default.
    """

    router: TrainedRouter | None = None
    epsilon: float = 1.0
    delta: float = 1e-5
    max_sources: int | None = None
    ledger: str | None = field(default=None, metadata={"is_told": False})

    def __post_init__(self) -> None:
        check_limits(max_sources=self.max_sources)
        check_privacy(self.epsilon, self.delta)


@method(PrivateSettings, is_private=True, needs_router=True)
def private(live: LiveMixture, task: Task, settings: PrivateSettings, progress: Progress) -> Fit:
    """Route each example alone and release the mean of their weights with noise: no evidence, no experts."""
    import torch

    from smatter.algebra.simplex import truncate_alike
    from smatter.compose.mixture import Mixture
    from smatter.live.objectives import LeaveOneOut
    from smatter.route.encode import ClassStatistics, as_mixture
    from smatter.route.ledger import note_release, read_ledger
    from smatter.route.private import release

    if settings.ledger is not None:
        read_ledger(Path(settings.ledger))  # refuses what is none before any work
    trained, objective = settings.router, task.objective
    if trained is None or trained.router.settings.tying != "global" or not isinstance(objective, LeaveOneOut):
        raise InvalidSettings("private weights need a router with one row of weights: train one with --tying global")
    names = live.library.names
    live.compose(Mixture.of({live.library.manifest.base: 1.0}))
    features = live.features(objective.plain)
    descriptors, alone = trained.describe(live, names), torch.zeros(1, dtype=torch.int64)
    keys = trained.router.keys()
    points = [
        trained.router(ClassStatistics.of(row[None], alone, 1), descriptors, keys=keys).weights[0] for row in features
    ]
    promise = {"epsilon": settings.epsilon, "delta": settings.delta}
    counted = "this release is in no ledger: count releases for the same examples with --set ledger=FILE"
    if settings.ledger is not None:
        total = note_release(Path(settings.ledger), settings.epsilon, settings.delta, len(points))
        promise |= {f"total_{name}": value for name, value in vars(total).items()}
        counted = str(total)
    released = release(torch.stack(points), settings.epsilon, settings.delta, random.SystemRandom().gauss)
    weights = truncate_alike(released[None], settings.max_sources)
    progress(1)
    budget = f"({settings.epsilon:g}, {settings.delta:g})"
    has_common = trained.router.settings.common_share > 0
    return Fit(
        as_mixture(live, weights, names).without_idle(),
        experts=trained.mix(live, torch.zeros(trained.router.settings.n_experts)) if has_common else None,
        trace=Trace(path=(tuple(weights[0].tolist()),)),
        notes=(f"weights are {budget}-differentially private; predictions still use the examples", counted),
        is_private=True,
        privacy=promise,
    )
