"""Which estimator finds the specialist: a study on validation tasks, in both spaces, for `specialist_found.py`.

Each estimator gives every source an excess over the best; weights are softmax(-excess / temperature). The temperature
is chosen on half of the tasks and judged on the other half, and the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import torch
from common import Rows
from readings import Reading, reading
from signs_tasks import Scores, trained
from specialist_found_estimators import h_score, log_evidence, query_losses, ridge_losses
from specialist_found_readings import read_task
from specialist_found_scores import ROUTER, UNSEEN, Seen
from specialist_found_tasks import GROUNDS, VARIANTS, Form, episode_of, libraries, suite_of, whole, within
from torch import Tensor

from smatter.algebra.luck import difference_error
from smatter.backbones.heads import class_sums, prototype_logits
from smatter.compose.mixture import Mixture
from smatter.live.mixture import LiveMixture
from smatter.route.encode import Encoded
from smatter.route.evidence import NEGLIGIBLE, default_temperature
from smatter.route.store import Ask
from smatter.scores.intervals import clustered_interval

TEMPERATURES = {
    "weights": {
        "prototypes": (0.5, 0.7, 1.0, 2.0), "ridge": (0.7, 1.0, 2.0), "LogME": (0.2, 0.4), "H-score": (0.2, 0.4),
        "queries": (2.0, 4.0), "router": (1.0, 2.0), "unseen": (1.0, 2.0),
    },
    "predictions": {
        "prototypes": (0.7, 1.0, 2.0, 3.0, 5.0), "ridge": (0.7, 1.0, 2.0, 3.0, 5.0),
        "LogME": (0.1, 0.2, 0.4, 0.7, 1.0), "H-score": (0.1, 0.2, 0.4, 0.7, 1.0), "queries": (1.0, 2.0, 4.0, 8.0),
        "router": (1.0, 2.0, 3.0), "unseen": (1.0, 2.0, 3.0),
    },
}  # fmt: skip
"""Of each space and estimator: in standard errors, or in standard deviations over sources where there are none; in
weight space times what `default_temperature` gives. A router's weights without evidence count beside prototypes."""

OF_TEXTS = {"prototypes": (1.0,), "ridge": (1.0,), "LogME": (0.4,), "H-score": (0.4,), "queries": (2.0,)}
"""Mixed weights of texts: fewer, as their passes take long."""

PEER = "prototypes"
"""What there was before: the leave-one-out loss of prototypes."""


def temperatures_of(ground: str, space: str) -> dict[str, tuple[float, ...]]:
    """What is tried on a suite."""
    return OF_TEXTS if (ground, space) == ("words", "weights") else TEMPERATURES[space]


def excesses(read: Reading, names: Sequence[str]) -> dict[str, Tensor]:
    """By how much each source is worse than the best, (n_sources,), by each estimator and in its own unit."""
    n_rows, n_classes = len(read.labels), read.n_classes
    features = [read.features[name][:n_rows].float() for name in names]
    parts = {
        PEER: [read.losses(name) for name in names],
        "ridge": [ridge_losses(each, read.labels, read.examples, n_classes) for each in features],
        "queries": [query_losses(read.logits(name)) for name in names],
    }
    found = {label: _in_errors(torch.stack(losses)) for label, losses in parts.items()}
    found["LogME"] = _in_spreads([log_evidence(each, read.labels, n_classes) for each in features])
    found["H-score"] = _in_spreads([h_score(each, read.labels, n_classes) for each in features])
    return found


def _in_errors(losses: Tensor) -> Tensor:
    means = losses.mean(dim=1)
    return (means - means.min()) / difference_error(losses)


def _in_spreads(losses: Sequence[float]) -> Tensor:
    values = torch.tensor(losses, dtype=torch.float64)
    return (values - values.min()) / values.std().clamp(min=1e-9)


def asked(routers: Path, specialist: str, read: Reading, network: LiveMixture) -> dict[str, tuple[Tensor, Tensor]]:
    """Weights of the sources, (n_sources,), by the router that ships and one that never saw the specialist.

    Each without evidence, and as it uses the evidence itself.
    """
    folders = {"router": ROUTER} | ({"unseen": routers / f"without-{specialist}"} if specialist in UNSEEN else {})
    names = network.library.names
    losses = torch.stack([read.losses(name) for name in names])
    encoded = Encoded(read.labels[read.unchanged], read.support(network.library.manifest.base).float(), losses)
    found = {}
    for label, folder in folders.items():
        router = trained(folder)
        router.check_fits(network)
        ask = Ask(router, router.describe(network, names))
        prior, told = (ask(each).weights.mean(dim=0) for each in (replace(encoded, losses=None), encoded))
        found[label] = prior, told
    return found


class Passing:
    """A task's accuracy with mixed weights: a pass each.

    Args:
        ground: where it is from.
        stage: of the split.
        form: what it looks like.
        index: which of these.
    """

    def __init__(self, ground: str, stage: str, form: Form, index: int) -> None:
        self.network = whole(ground)
        self.seen = Seen(self.network, episode_of(ground, stage, form, index))

    def right(self, names: Sequence[str], weights: Tensor) -> float:
        """Of the network whose weights are mixed so, in percent."""
        kept = torch.where(weights < NEGLIGIBLE, 0.0, weights)
        shares = (kept / kept.sum()).tolist()
        self.network.compose(Mixture.of({name: share for name, share in zip(names, shares, strict=True) if share}))
        objective = self.seen.objective
        examples, queries = self.network.features(objective.plain), self.network.features(self.seen.queries)
        logits = prototype_logits(queries, class_sums(examples, objective.classes, objective.n_classes))
        return _percent(logits, self.seen.truth)


def _percent(logits: Tensor, truth: Tensor) -> float:
    return 100 * float((logits.argmax(dim=1) == truth).double().mean())


def study(routers: Path, spaces: tuple[str, ...], ground: str, stage: str, form: Form, index: int) -> Scores:
    """Accuracy of a task by every estimator at every temperature, in percent.

    Args:
        routers: folder of the routers that never saw a specialist.
        spaces: that are looked at.
        ground: where the task is from.
        stage: of the split.
        form: what it looks like.
        index: which of these.
    """
    read = reading(read_task(ground, stage, form, index))
    domain = suite_of(ground).domains[read.domain].name
    specialist = GROUNDS[ground].specialist_of(domain)
    scores: Scores = {"domain": read.domain, "way": read.n_classes, "shot": form.n_shot}
    passing = Passing(ground, stage, form, index) if "weights" in spaces else None
    for variant, some in libraries(ground, domain).items():
        network = within(ground, some)
        names = network.library.names
        logits = torch.stack([read.logits(name) for name in names]).float()
        excess = excesses(read, names)
        known = asked(routers, specialist, read, network) if ground == "signs" else {}
        scores[f"{variant} specialist"] = _percent(read.logits(specialist), read.truth)
        scores[f"{variant} weights uniform"] = _percent(read.logits(f"uniform {variant}"), read.truth)
        scores[f"{variant} predictions uniform"] = _percent(logits.mean(dim=0), read.truth)
        for space in spaces:
            crowd = default_temperature(len(names)) if space == "weights" else 1.0
            wanted = {}
            for label, temperatures in temperatures_of(ground, space).items():
                if label in excess or label in known:
                    logs = known[label][0].log() if label in known else 0.0
                    for each in temperatures:
                        wanted[f"{label} {each:g}"] = logs - excess.get(label, excess[PEER]) / (each * crowd)
            wanted |= {f"{label} told": told.log() for label, (_, told) in known.items()}
            for label, logs in wanted.items():
                weights = logs.softmax(dim=0)
                if passing is not None and space == "weights":
                    right = passing.right(names, weights)
                else:
                    right = _percent(torch.tensordot(weights.float(), logits, 1), read.truth)
                scores[f"{variant} {space} {label}"] = right
    return scores


SETS = {
    "two ways, one shot": lambda each: each["way"] == 2 and each["shot"] == 1,
    "two ways": lambda each: each["way"] == 2 and each["shot"] > 1,
    "one shot": lambda each: each["way"] > 2 and each["shot"] == 1,
    "the others": lambda each: each["way"] > 2 and each["shot"] > 1,
    "all": bool,
}


def crossed(tasks: Sequence[Scores], start: str, temperatures: Sequence[float]) -> list[float]:
    """Accuracy of each task at the temperature that is best on the other half of the tasks."""
    halves = tasks[::2], tasks[1::2]

    def best(half: Sequence[Scores]) -> str:
        keys = [f"{start} {temperature:g}" for temperature in temperatures]
        return max(keys, key=lambda key: sum(each[key] for each in half))

    chosen = best(halves[1]), best(halves[0])
    return [each[chosen[number % 2]] for number, each in enumerate(tasks)]


def estimator_rows(found: dict[str, list[Scores]]) -> Rows:
    """Every estimator beside the one that there was: accuracy, and the difference with its interval.

    Args:
        found: tasks of each suite.
    """
    rows: Rows = []
    for (ground, tasks), variant, space in product(found.items(), VARIANTS, TEMPERATURES):
        for what, chosen in SETS.items():
            some = [each for each in tasks if chosen(each)]
            head = {"suite": ground, "library": variant, "space": space, "tasks_of": what}
            rows += [head | row for row in _compared(some, f"{variant} {space}", temperatures_of(ground, space))]
    return rows


def beside_rows(tasks: Sequence[Scores]) -> Rows:
    """Evidence beside a router's weights, less the router's own use of evidence; mixed weights of Signs."""
    rows: Rows = []
    for variant, label in product(VARIANTS, ("router", "unseen")):
        start = f"{variant} weights {label}"
        for what, chosen in SETS.items():
            some = [each for each in tasks if chosen(each) and f"{start} told" in each]
            if len(some) < 2:
                continue
            row = {"library": variant, "router": label, "tasks_of": what, "tasks": len(some)}
            row["told"] = _mean([each[f"{start} told"] for each in some])
            for each in TEMPERATURES["weights"][label]:
                gains = [task[f"{start} {each:g}"] - task[f"{start} told"] for task in some]
                gain = clustered_interval(gains, [task["domain"] for task in some])
                row |= {f"at_{each:g}": gain.mean, f"at_{each:g}_low": gain.low, f"at_{each:g}_high": gain.high}
            rows.append(row)
    return rows


def _compared(tasks: Sequence[Scores], start: str, estimators: dict[str, tuple[float, ...]]) -> Rows:
    rows: Rows = []
    for label, temperatures in estimators.items():
        key = f"{start} {label}"
        known = [each for each in tasks if f"{key} {temperatures[0]:g}" in each]
        if len(known) < 2:
            continue
        ours = crossed(known, key, temperatures)
        theirs = crossed(known, f"{start} {PEER}", estimators[PEER])
        gains = [mine - other for mine, other in zip(ours, theirs, strict=True)]
        gain = clustered_interval(gains, [each["domain"] for each in known])
        means = {f"at_{each:g}": _mean([task[f"{key} {each:g}"] for task in known]) for each in temperatures}
        row = {"estimator": label, "tasks": len(known), "accuracy": _mean(ours), "over_prototypes": gain.mean}
        row |= {"over_prototypes_low": gain.low, "over_prototypes_high": gain.high}
        rows.append(row | {"by_temperature": means})
    return rows


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
