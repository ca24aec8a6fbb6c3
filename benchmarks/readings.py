"""What networks read of the tasks of Signs, kept on disk, so that rules in prediction space are arithmetic.

For every task: labels, and the features of its examples and queries by each source, by mixtures of their weights, and
by branches, whose weights are mixed up to the last stage and are one source's from there on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from common import ROOT
from signs_tasks import live, tasks, trained
from torch import Tensor

from smatter.backbones.heads import class_sums, leave_one_out_losses, prototype_logits
from smatter.compose.mixture import Mixture
from smatter.live.episodes import prepared_support
from smatter.live.mixture import LiveMixture
from smatter.live.objectives import LeaveOneOut
from smatter.live.task import Task
from smatter.methods.router import RoutedSettings, router

KEPT = ROOT / ".build" / "readings"
BRANCH = "encoder.stages.2"
"""Where branches part: the last stage, a third of the arithmetic."""


@dataclass(frozen=True)
class Reading:
    """A task as some networks read it.

    Args:
        labels: class of each row of the examples, (n_rows,); the only example of a class has several rows.
        examples: example of each row, (n_rows,).
        truth: class of each query, (n_queries,).
        domain: of the task; its lowest number where it has several.
        features: of rows, then queries, by each network, (n_rows + n_queries, d).
    """

    labels: Tensor
    examples: Tensor
    truth: Tensor
    domain: int
    features: dict[str, Tensor]

    @property
    def n_classes(self) -> int:
        """How many there are."""
        return int(self.labels.max()) + 1

    @cached_property
    def unchanged(self) -> Tensor:
        """The row of each example that is no altered view, (n_examples,)."""
        return LeaveOneOut({}, self.labels, self.examples, self.n_classes).unchanged

    def support(self, network: str) -> Tensor:
        """Features of the examples as they are, (n_examples, d)."""
        return self.features[network][self.unchanged]

    def queries(self, network: str) -> Tensor:
        """Features of the queries, (n_queries, d)."""
        return self.features[network][len(self.labels) :]

    def losses(self, network: str) -> Tensor:
        """Leave-one-out loss of each example, (n_examples,)."""
        return leave_one_out_losses(
            self.features[network][: len(self.labels)], self.labels, self.examples, self.n_classes
        ).double()

    def logits(self, network: str) -> Tensor:
        """Scores of the queries, (n_queries, n_classes)."""
        prototypes = class_sums(self.support(network), self.labels[self.unchanged], self.n_classes)
        return prototype_logits(self.queries(network), prototypes)


def compositions(network: LiveMixture, folder: Path | None, task: Task) -> dict[str, object]:
    """What is to be read: sources, their plain average, and what a router makes of the task, whole and in branches."""
    library, names = network.library, network.library.names
    found: dict[str, object] = {name: Mixture.of({name: 1.0}) for name in names}
    found["equal"] = Mixture.of(dict.fromkeys(names, 1 / len(names)))
    if folder is not None:
        asked = trained(folder)
        asked.check_fits(network)
        fit = router(network, task, RoutedSettings(router=asked))
        found["routed"] = fit.recipe(library)
        found["routed without experts"] = fit.mixture
        for name in names:
            found[f"branch {name}"] = library.recipe(branched(network, fit.mixture, name), experts=fit.experts)
    return found


def branched(network: LiveMixture, trunk: Mixture, source: str) -> Mixture:
    """Weights of a trunk up to the branch, and of one source from there."""
    modules = tuple(network.library.partition.modules)
    is_tail = [module.startswith(BRANCH) for module in modules]
    first = is_tail.index(True)
    rows = {
        module: {source: 1.0} if place >= first else dict(zip(trunk.sources, trunk.rows[0], strict=True))
        for place, module in enumerate(modules)
    }
    return Mixture.per_module(rows)


def read(library: Path, router_folder: Path | None, name: str, index: int, label: str) -> str:
    """Read a task, or find it read; gives the file."""
    path = KEPT / label / name / f"{index}.npz"
    if path.exists():
        return str(path)
    network = live(library)
    episode = tasks(name).episode(index)
    task = Task.of(network, prepared_support(network, episode))
    objective = task.objective
    assert isinstance(objective, LeaveOneOut)
    # Task.of numbers classes by their contents; queries must follow.
    row_of = {int(each): row for row, each in enumerate(task.class_names)}
    truth = torch.tensor([row_of.get(int(label), -1) for label in episode.query.truth])
    queries = network.examples(episode.query.inputs)
    both = {key: torch.cat([objective.inputs[key], queries[key]]) for key in queries}
    features = {}
    for each, what in compositions(network, router_folder, task).items():
        network.compose(what)
        features[each] = network.features(both).numpy()
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial.npz")
    np.savez(
        partial, labels=objective.labels.numpy(), examples=objective.examples.numpy(), truth=truth.numpy(),
        domain=int(episode.query.domains.min()), **{f"by {key}": value for key, value in features.items()},
    )  # fmt: skip
    partial.rename(path)
    return str(path)


def reading(path: str | Path) -> Reading:
    """A task that was read."""
    with np.load(path) as file:
        features = {key.removeprefix("by "): torch.from_numpy(file[key]) for key in file if key.startswith("by ")}
        return Reading(
            torch.from_numpy(file["labels"]), torch.from_numpy(file["examples"]), torch.from_numpy(file["truth"]),
            int(file["domain"]), features,
        )  # fmt: skip
