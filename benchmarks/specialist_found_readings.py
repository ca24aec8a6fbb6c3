"""What each source reads of the tasks of `specialist_found.py`, kept on disk, so that estimators are arithmetic."""

from __future__ import annotations

import numpy as np
import torch
from readings import KEPT
from specialist_found_tasks import Form, episode_of, libraries, suite_of, whole, within

from smatter.compose.mixture import Mixture
from smatter.live.episodes import prepared_support
from smatter.live.objectives import LeaveOneOut
from smatter.live.task import Task


def read_task(ground: str, stage: str, form: Form, index: int) -> str:
    """Read a task by each source and by the plain averages, or find it read; gives the file, as `readings` keeps it."""
    path = KEPT / "specialists" / f"{ground}-{stage}" / str(form) / f"{index}.npz"
    if path.exists():
        return str(path)
    network, episode = whole(ground), episode_of(ground, stage, form, index)
    task = Task.of(network, prepared_support(network, episode))
    objective = task.objective
    assert isinstance(objective, LeaveOneOut)
    # Task.of numbers classes by their contents; queries must follow.
    row_of = {int(name): row for row, name in enumerate(task.class_names)}
    truth = np.array([row_of[int(label)] for label in episode.query.truth])
    domain = int(episode.query.domains.min())
    wanted = {name: Mixture.of({name: 1.0}) for name in network.library.names}
    for variant, names in libraries(ground, suite_of(ground).domains[domain].name).items():
        everyone = within(ground, names).library.names
        wanted[f"uniform {variant}"] = Mixture.of(dict.fromkeys(everyone, 1 / len(everyone)))
    queries, features = network.examples(episode.query.inputs), {}
    for name, mixture in wanted.items():
        network.compose(mixture)
        rows = torch.cat([network.features(inputs) for inputs in (objective.inputs, queries)])
        features[f"by {name}"] = rows.half().numpy()
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial.npz")
    facts = {"labels": objective.labels.numpy(), "examples": objective.examples.numpy(), "truth": truth}
    np.savez(partial, domain=domain, **facts, **features)
    partial.rename(path)
    return str(path)
