"""How far weights and answers move when one example of a task is replaced by another of its class, for `bayes.py`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from bayes_tables import task_list
from beyond_scores import Look
from signs_tasks import LIBRARY, Scores, live, trained
from sources_experts_scores import router_folder
from torch import Tensor

from smatter.methods import Fit
from smatter.methods.best_source import best_source
from smatter.methods.evidence import EvidenceSettings, evidence
from smatter.methods.router import RoutedSettings, router
from smatter.tasks.episode import Episode
from smatter.tasks.lists import TaskList
from smatter.tasks.sampler import materialise
from smatter.tasks.shifts.catalogue import apply


def pair_of_episodes(tasks: TaskList, index: int) -> tuple[Episode, Episode]:
    """A task, and the same with one example of its first class exchanged for one that was a query; other queries stay.

    Args:
        tasks: the list.
        index: of the task.
    """
    draw, suite = tasks.sampler.draw(index), tasks.sampler.suite
    queries = (draw.query[0][1:], *draw.query[1:])
    support = ((draw.query[0][0], *draw.support[0][1:]), *draw.support[1:])
    found = [
        apply(tasks.shifts, materialise(suite, each), tasks.sampler.generator(index, "shifts"))
        for each in (replace(draw, query=queries), replace(draw, query=queries, support=support))
    ]
    return found[0], found[1]


def moved(routers: Path, name: str, index: int) -> Scores:
    """Half the l1 distance of the weights, and the share of the queries that are named otherwise, by each method."""
    network, asked = live(LIBRARY), trained(router_folder(routers))
    asked.check_fits(network)
    weights: dict[str, list[Tensor]] = {}
    answers: dict[str, list[Tensor]] = {}
    for episode in pair_of_episodes(task_list(name), index):
        look = Look(network, episode)
        fits: dict[str, Fit] = {
            "router": router(network, look.task, RoutedSettings(router=asked)),
            "router without evidence": router(network, look.task, RoutedSettings(router=asked, evidence=False)),
            "evidence": evidence(network, look.task),
            "evidence predictions": evidence(network, look.task, EvidenceSettings(mix="predictions")),
            "best source": best_source(network, look.task),
        }
        names = [int(each) for each in look.task.class_names]
        for label, fit in fits.items():
            shares = fit.recipe(network.library).shares
            found = torch.tensor([shares.get(each, 0.0) for each in network.library.names])
            weights.setdefault(label, []).append(found)
            answers.setdefault(label, []).append(torch.tensor(names)[look.voices(fit).logits.argmax(dim=1)])
    return {
        **{f"weights {label}": float((one - two).abs().sum()) / 2 for label, (one, two) in weights.items()},
        **{f"answers {label}": float((one != two).double().mean()) for label, (one, two) in answers.items()},
    }
