"""Greedy soup: average the sources one by one, best first, while that helps (Wortsman and others, 2022, recipe 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smatter.compose.mixture import Mixture
from smatter.methods import Fit, NoSettings, Trace, method
from smatter.records import part

if TYPE_CHECKING:
    from smatter.live.mixture import LiveMixture
    from smatter.live.task import Task
    from smatter.records import Progress


@method(NoSettings)
def greedy_soup(live: LiveMixture, task: Task, settings: NoSettings, progress: Progress) -> Fit:  # noqa: ARG001
    """Average the sources one by one, best first, keeping each that does not raise the loss of the examples."""
    from smatter.route.evidence import gather_evidence

    evidence = gather_evidence(live, task.objective, progress=part(progress, 0.5))
    soup = [evidence.best]
    losses = [evidence.losses[evidence.sources.index(evidence.best)]]
    for name in evidence.ranked[1:]:
        live.compose(_average([*soup, name]))
        loss = live.loss(task.objective)
        progress(0.5 / (len(evidence.ranked) - 1))
        if loss <= losses[-1]:  # never true of NaN
            soup.append(name)
            losses.append(loss)
    return Fit(_average(soup), evidence=evidence, trace=Trace(tuple(losses)))


def _average(names: list[str]) -> Mixture:
    return Mixture.of(dict.fromkeys(names, 1 / len(names)))
