"""What `specialist_found.py` asks of one task: the right specialist, plain averages, and what methods find."""

from __future__ import annotations

from pathlib import Path

import torch
from beyond_scores import Voices
from signs_tasks import Scores, trained
from specialist_found_tasks import GROUNDS, Form, Pictures, episode_of, libraries, suite_of, whole, within
from torch import Tensor

from smatter.backbones.heads import pool
from smatter.compose.mixture import Mixture
from smatter.compose.recipe import Recipe
from smatter.live.episodes import prepared_support
from smatter.live.mixture import LiveMixture
from smatter.live.objectives import LeaveOneOut
from smatter.live.task import Task
from smatter.methods import Fit
from smatter.methods.average import average
from smatter.methods.best_source import best_source
from smatter.methods.evidence import EvidenceSettings, evidence
from smatter.methods.router import RoutedSettings, fit_of
from smatter.route.opening import route_task
from smatter.settings import MixSettings
from smatter.steps.judge import kept_or_single
from smatter.tasks.episode import Episode
from smatter.tasks.open import SHIPPED

SPACES = ("weights", "predictions")
ROUTER = SHIPPED / "signs-router"
UNSEEN = ("syllables", "latin")
"""Specialists for each of which a router was trained that never saw it."""


class Seen:
    """A task seen by one network, which remembers what it reads of it with some weights.

    Args:
        network: of all sources.
        episode: the task.
    """

    def __init__(self, network: LiveMixture, episode: Episode) -> None:
        self.task = Task.of(network, prepared_support(network, episode))
        objective = self.task.objective
        assert isinstance(objective, LeaveOneOut)
        self.objective = objective
        # Task.of numbers classes by their contents; queries must follow.
        row_of = {int(name): row for row, name in enumerate(self.task.class_names)}
        self.truth = torch.tensor([row_of[int(label)] for label in episode.query.truth])
        self.queries = network.examples(episode.query.inputs)
        if isinstance(network, Pictures):
            network.known.clear()

    def right(self, network: LiveMixture, fit: Fit) -> Tensor:
        """Which queries a model names rightly, (n_queries,)."""
        recipe = fit.recipe(network.library)
        read = [self._features(network, each) for each in network.library.networks(recipe)]
        examples, queries = (torch.stack(part) for part in zip(*read, strict=True))
        weights = torch.tensor(recipe.network_weights)
        objective = self.objective
        voices = Voices(weights.float(), examples[:, objective.unchanged], queries, objective.classes)
        return voices.logits.argmax(dim=1) == self.truth

    def loss(self, network: LiveMixture, fit: Fit) -> float:
        """Of a model on the examples, leave-one-out."""
        recipe = fit.recipe(network.library)
        scores = [self.objective.scores(self._features(network, each)[0]) for each in network.library.networks(recipe)]
        return float(self.objective.losses_of(pool(scores, recipe.network_weights)).mean())

    def _features(self, network: LiveMixture, recipe: Recipe) -> tuple[Tensor, Tensor]:
        """Of the rows of the examples and of the queries."""
        bare = recipe.mixture if recipe.experts is None or recipe.experts.is_idle else recipe
        network.compose(bare)
        return network.features(self.objective.inputs), network.features(self.queries)


def fits(network: LiveMixture, task: Task, folders: dict[str, Path]) -> dict[str, Fit]:
    """Methods in both spaces; routers by label."""
    found = {"best by support": best_source(network, task)}
    for space in SPACES:
        found[f"uniform {space}"] = average(network, task, MixSettings(mix=space))
        found[f"evidence {space}"] = evidence(network, task, EvidenceSettings(mix=space))
    for label, folder in folders.items():
        asked = trained(folder)
        asked.check_fits(network)
        told = route_task(network, task.objective, asked)
        for space in SPACES:
            found[f"{label} {space}"] = fit_of(network, task, RoutedSettings(router=asked, mix=space), told)
    return found


def score(routers: Path, ground: str, stage: str, form: Form, index: int) -> Scores:
    """All figures of one task; accuracies in percent."""
    episode = episode_of(ground, stage, form, index)
    seen = Seen(whole(ground), episode)
    number = int(episode.query.domains.min())
    domain = suite_of(ground).domains[number].name
    specialist = GROUNDS[ground].specialist_of(domain)
    folders = {"router": ROUTER, "unseen": routers / f"without-{specialist}"} if ground == "signs" else {}
    if specialist not in UNSEEN:
        folders.pop("unseen", None)
    scores: Scores = {"domain": number, "n_queries": len(seen.truth)}
    for variant, names in libraries(ground, domain).items():
        network = within(ground, names)
        right = {f"source {name}": seen.right(network, Fit(Mixture.of({name: 1.0}))) for name in network.library.names}
        for label, fit in fits(network, seen.task, folders).items():
            right[label] = seen.right(network, fit)
            if not label.startswith(("uniform", "best")):
                assert fit.evidence
                loss = seen.loss(network, fit)
                scores[f"{variant} {label} above"] = (loss - min(fit.evidence.losses)) / fit.evidence.error
                right[f"{label} as found"] = right[label]
                right[label] = seen.right(network, kept_or_single(fit, loss))
        right["specialist"] = right[f"source {specialist}"]
        best = right["best by support"].double()
        for label, each in right.items():
            scores[f"{variant} {label}"] = 100 * float(each.double().mean())
            if not label.startswith(("source", "uniform", "best")):
                scores[f"{variant} {label} errors below"] = errors_below(each.double(), best)
    return scores


def errors_below(ours: Tensor, theirs: Tensor) -> float:
    """By how many standard errors of the mean difference of queries ours are below theirs; zero where none differs."""
    difference = theirs - ours
    error = float(difference.std()) / len(difference) ** 0.5 if len(difference) > 1 else 0.0
    return float(difference.mean()) / error if error > 0 else 0.0
