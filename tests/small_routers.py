"""A router that has learnt nothing, with experts that do something, and a task for it; and one with a posterior."""

from dataclasses import replace
from pathlib import Path

import torch

from smatter.library.library import Library
from smatter.live.episodes import prepared_support
from smatter.live.mixture import LiveMixture
from smatter.posterior.amortised import Amortised, PosteriorSettings
from smatter.posterior.catalogue import usual_catalogue
from smatter.posterior.learnt import LearntPosterior, RuleCalibration
from smatter.posterior.prior import uniform_prior
from smatter.posterior.uncertainty import SCORES
from smatter.route.probe import draw_probe
from smatter.route.store import read_router, write_router
from smatter.route.table import row_names
from smatter.settings.training import MetaSettings, RouterSettings
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.suite import Suite
from smatter.tasks.support import Support
from smatter.train.trainee import Trainee


def make_router(library: Library, suite: Suite, folder: Path) -> tuple[Path, Support]:
    """Write a router of two experts; returns its folder and a support set."""
    live = LiveMixture(library)
    settings = MetaSettings(RouterSettings(width=8, n_experts=2), expert_share=0.3)
    trainee = Trainee(live, draw_probe(suite), settings)
    assert trainee.experts
    with torch.no_grad():
        trainee.experts.values.normal_(std=0.05, generator=torch.Generator().manual_seed(0))
    write_router(folder, trainee.finish({}))
    episode = Sampler(suite, SamplerSettings("validation", n_way=(3, 3), n_shot=(3, 3), n_query=4)).episode(1)
    return folder, prepared_support(live, episode)


def make_decided(library: Library, suite: Suite, folder: Path) -> tuple[Path, Support]:
    """The same with a posterior that prefers low losses, calibrated on made-up scores."""
    bare, support = make_router(library, suite, folder.with_name(f"{folder.name}-bare"))
    router = read_router(bare)
    network = Amortised(PosteriorSettings(width=4), torch.Generator().manual_seed(0))
    torch.nn.init.normal_(network.score[2].weight, generator=torch.Generator().manual_seed(1))
    catalogue = usual_catalogue(library.names, router.expert_names)
    scores = {name: torch.linspace(-5, 5, 100, dtype=torch.float64) for name in SCORES}
    calibrations = {
        rule: RuleCalibration(rule, "some-list", "a" * 64, scores, torch.linspace(0, 1, 100, dtype=torch.float64))
        for rule in ("half:3", "map")
    }
    posterior = LearntPosterior(
        network,
        catalogue,
        log_prior=uniform_prior(len(row_names(catalogue))),
        sources={name: library.manifest.digests[name] for name in library.names},
        calibrations=calibrations,
    )
    write_router(folder, replace(router, posterior=posterior))
    return folder, support
