"""The posterior's mean weights as one network, for `bayes.py`: `adapt --decision mean`, which is in no table."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import torch
from bayes_tables import TRAINING, jobs_of, read, task_list
from beyond_scores import Look
from signs_tasks import LIBRARY, Scores, live, trained
from sources_experts_scores import router_folder

from smatter.posterior.amortised import Amortised
from smatter.posterior.prior import uniform_prior
from smatter.route.encode import as_mixture
from smatter.settings.posteriors import PosteriorTraining
from smatter.train.posterior import train_posterior

TARGETS = ("gibbs", "average")


@cache
def _posteriors(routers: Path, taught: int) -> Mapping[str, Amortised]:
    tables = [read(routers, 0, *job) for job in jobs_of("router", [(TRAINING, taught)])]
    prior = uniform_prior(len(tables[0].points))
    return {
        target: train_posterior(tables, prior, PosteriorTraining(target=target))  # type: ignore[arg-type]
        for target in TARGETS
    }


def mean_network(routers: Path, taught: int, name: str, index: int) -> Scores:
    """Error and loss of one network of the mean weights and experts of each posterior."""
    table, network, router = read(routers, 0, name, index), live(LIBRARY), trained(router_folder(routers))
    look, n_sources = Look(network, task_list(name).episode(index)), len(network.library.names)
    found: Scores = {}
    for target, posterior in _posteriors(routers, taught).items():
        with torch.no_grad():
            place = posterior(table, uniform_prior(len(table.points))).mean().float()
        mixture = as_mixture(network, place[None, :n_sources], network.library.names).without_idle()
        experts = router.mix(network, place[n_sources:-1])
        told = look.figures_of(target, look.voices(network.library.recipe(mixture, experts=experts)))
        found |= {
            f"mean weights, {target} error": 100 - told[target],
            f"mean weights, {target} loss": told[f"nll {target}"],
        }
    return found
