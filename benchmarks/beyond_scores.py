"""What `beyond.py` asks of one task: models of one pass, of several and of branches, with and without its queries."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import before
import numpy as np
import torch
from signs_tasks import LIBRARY, Scores, live, tasks, trained
from sources_experts_scores import router_folder
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize, pad
from transduction_peers import balanced, k_means

from smatter.backbones.heads import SCALE, class_sums, prototype_temperature, ridge_head
from smatter.backbones.network import Inputs
from smatter.backbones.transduction import refined_prototypes
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
from smatter.methods.router import RoutedSettings, fit_of, router
from smatter.methods.solver import SolverSettings, solver
from smatter.route.opening import route_task
from smatter.settings import MixSettings
from smatter.tasks.episode import Episode

SEEDS = (0, 1, 2)
BRANCH = "encoder.stages.2"
TRANSDUCED = ("router", "router predictions", "uniform predictions", "both 4")


@dataclass(frozen=True)
class Voices:
    """A task as the networks of one model read it.

    Args:
        weights: of the networks' scores, (n_networks,).
        support: features of the examples, (n_networks, n_examples, d).
        queries: of the queries, (n_networks, n_queries, d).
        labels: class of each example, (n_examples,).
    """

    weights: Tensor
    support: Tensor
    queries: Tensor
    labels: Tensor

    @property
    def n_classes(self) -> int:
        """How many there are."""
        return int(self.labels.max()) + 1

    @property
    def temperature(self) -> float:
        """What a recipe would divide the scores by."""
        return prototype_temperature(len(self.labels) / self.n_classes, len(self.weights))

    @cached_property
    def logits(self) -> Tensor:
        """Averaged scores of the queries, (n_queries, n_classes)."""
        prototypes = torch.stack([class_sums(rows, self.labels, self.n_classes) for rows in self.support])
        cosines = normalize(self.queries, dim=-1) @ normalize(prototypes, dim=-1).mT
        return SCALE * torch.tensordot(self.weights, cosines, 1)

    def together(self, some: Tensor) -> Tensor:
        """Scores of some queries that help each other."""
        queries = self.queries[:, some]
        found = refined_prototypes(self.support, self.labels, queries, self.weights, self.n_classes)
        return found.logits(queries, self.weights)

    def balanced(self, some: Tensor) -> Tensor:
        """The same where every class is taken to have as many queries (Sinkhorn)."""
        queries = self.queries[:, some]
        return k_means(self.support, self.labels, queries, self.weights, self.n_classes, soft_labels=balanced)


class Look:
    """A task seen by one library; what a network reads of it is remembered.

    Args:
        network: of the library.
        episode: the task.
    """

    def __init__(self, network: LiveMixture, episode: Episode) -> None:
        self.network = network
        self.task = Task.of(network, prepared_support(network, episode))
        objective = self.task.objective
        assert isinstance(objective, LeaveOneOut)
        self.classes = objective.classes
        row_of = {int(name): row for row, name in enumerate(self.task.class_names)}
        self.truth = torch.tensor([row_of[int(label)] for label in episode.query.truth])
        self.inputs = joined(objective.plain, network.examples(episode.query.inputs))
        self._known: dict[tuple[object, ...], Tensor] = {}

    def voices(self, what: Fit | Recipe) -> Voices:
        """A model's networks."""
        library = self.network.library
        recipe = what if isinstance(what, Recipe) else what.recipe(library)
        features = torch.stack([self._features(each) for each in library.networks(recipe)])
        weights = torch.tensor(recipe.network_weights)
        n_examples = len(self.classes)
        return Voices(weights.float(), features[:, :n_examples], features[:, n_examples:], self.classes)

    def _features(self, recipe: Recipe) -> Tensor:
        alpha = recipe.experts.alpha if recipe.experts and not recipe.experts.is_idle else ()
        key = (recipe.mixture, alpha)
        if key not in self._known:
            self.network.compose(recipe)
            self._known[key] = self.network.features(self.inputs)
        return self._known[key]

    def right(self, logits: Tensor, some: Tensor | None = None) -> float:
        """Accuracy in percent, of all queries or of some."""
        truth = self.truth if some is None else self.truth[some]
        return 100 * float((logits.argmax(dim=1) == truth).double().mean())

    def figures(self, label: str, logits: Tensor, temperature: float = 1.0) -> Scores:
        """Accuracy of a model, its loss with its temperature and without, and how sure it is."""
        cooled = logits / temperature
        return {
            label: self.right(logits),
            f"nll {label}": float(cross_entropy(cooled, self.truth)),
            f"nll, temperature 1, {label}": float(cross_entropy(logits, self.truth)),
            f"sure {label}": 100 * float(cooled.softmax(dim=1).amax(dim=1).mean()),
        }

    def figures_of(self, label: str, voices: Voices) -> Scores:
        """The same of prototypes, as they would be served."""
        return self.figures(label, voices.logits, voices.temperature)

    def plain(self, weights: dict[str, float]) -> Voices:
        """Predictions of sources with these weights."""
        library = self.network.library
        found = [self.voices(library.recipe(Mixture.of({name: 1.0}))) for name in weights]
        support, queries = (torch.cat([getattr(each, part) for each in found]) for part in ("support", "queries"))
        return Voices(torch.tensor(list(weights.values())), support, queries, self.classes)


def joined(first: Inputs, second: Inputs) -> Inputs:
    """Rows of both; texts are filled up to the longest, and masked there."""
    found = {}
    for name, each in first.items():
        parts = [each, second[name]]
        if each.ndim == 2:
            longest = max(part.shape[1] for part in parts)
            parts = [pad(part, (0, longest - part.shape[1])) for part in parts]
        found[name] = torch.cat(parts)
    return found


def uneven(truth: Tensor, n_classes: int, generator: np.random.Generator) -> Tensor:
    """Numbers of queries of which the first class has ten times as many as the last, in a random order of classes."""
    kept = []
    for rank, label in enumerate(generator.permutation(n_classes).tolist()):
        rows = (truth == label).nonzero().flatten().tolist()
        share = 10 ** (-rank / max(1, n_classes - 1))
        kept += generator.permutation(rows)[: max(1, round(share * len(rows)))].tolist()
    return torch.tensor(sorted(kept))


def models(look: Look, seed: int, folder: Path) -> dict[str, Voices]:
    """What one router of what ships makes of a task, in one pass and in several."""
    asked = trained(folder)
    asked.check_fits(look.network)

    told = route_task(look.network, look.task.objective, asked)

    def routed(**how: object) -> Voices:
        return look.voices(fit_of(look.network, look.task, RoutedSettings(router=asked, **how), told))

    found = {
        "router": routed(),
        "router predictions": routed(mix="predictions"),
        "both 4": routed(mix="both", passes=4),
    }
    found |= {
        "both": routed(mix="both"),
        "branches 2": routed(mix="predictions", passes=2, branch=BRANCH),
        "both branches 2": routed(mix="both", passes=2, branch=BRANCH),
    }
    if not seed:
        found |= {f"router predictions {passes}": routed(mix="predictions", passes=passes) for passes in (2, 3, 4)}
        found |= {"both 2": routed(mix="both", passes=2), "both 3": routed(mix="both", passes=3)}
    return found


def peers(look: Look, index: int, solved: bool = True) -> dict[str, Voices]:
    """What one would do without a router, at one pass and at several.

    Args:
        look: the task.
        index: its number, of the random choices.
        solved: whether weights are solved for too, which takes the most time.
    """
    network, task, names = look.network, look.task, look.network.library.names
    told = evidence(network, task)
    assert told.evidence
    ranked = told.evidence.ranked
    drawn = np.random.default_rng([7, index]).permutation(len(names))
    found = {
        "evidence": look.voices(told),
        "evidence predictions": look.voices(evidence(network, task, EvidenceSettings(mix="predictions"))),
        "solver predictions": look.voices(solver(network, task, SolverSettings(mix="predictions"))),
        "best by support": look.voices(best_source(network, task)),
        "uniform": look.voices(average(network, task)),
        "uniform predictions": look.voices(average(network, task, MixSettings(mix="predictions"))),
        "base": look.plain({network.library.manifest.base: 1.0}),
    }
    if solved:
        found["solver"] = look.voices(solver(network, task))
    for size in (2, 3, 4):
        found[f"best {size} by support, equal"] = look.plain(dict.fromkeys(ranked[:size], 1 / size))
        chosen = [names[number] for number in drawn[:size]]
        found[f"random {size}, equal"] = look.plain(dict.fromkeys(chosen, 1 / size))
    return found


def transduced(look: Look, label: str, voices: Voices, index: int) -> Scores:
    """Queries that help each other: all, ten to one, and ten of them."""
    generator = np.random.default_rng([11, index])
    n_queries = len(look.truth)
    draws = {
        "all": torch.arange(n_queries),
        "10to1": uneven(look.truth, voices.n_classes, generator),
        "ten": torch.tensor(sorted(generator.permutation(n_queries)[:10].tolist())),
    }
    scores: Scores = {}
    for what, some in draws.items():
        scores[f"{label} alone {what}"] = look.right(voices.logits[some], some)
        scores[f"{label} together {what}"] = look.right(voices.together(some), some)
        scores[f"{label} sinkhorn {what}"] = look.right(voices.balanced(some), some)
    return scores


def all_features(look: Look) -> Scores:
    """Ridge regression on the features of all sources side by side."""
    everything = look.plain(dict.fromkeys(look.network.library.names, 1.0))
    both = everything.support, everything.queries
    joined, asked_of = (normalize(part, dim=-1).transpose(0, 1).flatten(1) for part in both)
    ridge = ridge_head(joined, look.classes, everything.n_classes)
    return look.figures("ridge on all features", ridge.logits(asked_of))


def hindsight(look: Look, index: int) -> Scores:
    """The source that is best on the queries: on those that it is judged on, and cross-fitted, on the other half."""
    halves = np.random.default_rng([13, index]).permutation(len(look.truth)) % 2 == 0
    right = torch.stack([look.plain({name: 1.0}).logits.argmax(dim=1) for name in look.network.library.names])
    right = 100 * (right == look.truth).double()
    parts = [right[:, torch.from_numpy(half)].mean(dim=1) for half in (halves, ~halves)]
    fitted = [float(judged[chosen.argmax()]) for chosen, judged in (parts, parts[::-1])]
    return {
        "best source in hindsight": float(right.mean(dim=1).max()),
        "best source in hindsight, cross-fitted": sum(fitted) / 2,
    }


def score(routers: Path, solve_every: int, name: str, index: int) -> Scores:
    """All figures of one task; the solver's for one in so many."""
    episode = tasks(name).episode(index)
    look = Look(live(LIBRARY), episode)
    scores: Scores = {"domain": int(episode.query.domains.min())}
    old, asked = Look(live(before.LIBRARY), episode), trained(before.ROUTER)
    asked.check_fits(old.network)
    known = old.voices(router(old.network, old.task, RoutedSettings(router=asked)))
    scores |= old.figures_of("before", known)
    names = old.network.library.names
    scores |= old.figures_of("before, uniform predictions", old.plain(dict.fromkeys(names, 1 / len(names))))
    for label, voices in peers(look, index, solved=index % solve_every == 0).items():
        scores |= look.figures_of(label, voices)
        if label in TRANSDUCED:
            scores |= transduced(look, label, voices, index)
    scores |= all_features(look) | hindsight(look, index)
    plain = trained(before.PLAIN_ROUTER)
    plain.check_fits(look.network)
    told = route_task(look.network, look.task.objective, plain)
    for label, mix in (("router without a common part", "weights"), ("both without a common part", "both")):
        fit = fit_of(look.network, look.task, RoutedSettings(router=plain, mix=mix), told)
        scores |= look.figures_of(label, look.voices(fit))
    for seed in SEEDS:
        for label, voices in models(look, seed, router_folder(routers, seed)).items():
            scores |= look.figures_of(f"{label} seed {seed}", voices)
            if label in TRANSDUCED and not seed:
                scores |= transduced(look, label, voices, index)
    return scores


def over_seeds(scores: Scores, label: str) -> float:
    """The mean of a figure over the routers; of what has none, the figure."""
    values = [scores[key] for seed in SEEDS if (key := f"{label} seed {seed}") in scores]
    return sum(values) / len(values) if values else scores[label]
