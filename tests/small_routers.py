"""A router that has learnt nothing, with experts that do something, and a task for it."""

from pathlib import Path

import torch

from smatter.library.library import Library
from smatter.live.episodes import prepared_support
from smatter.live.mixture import LiveMixture
from smatter.route.probe import draw_probe
from smatter.route.store import write_router
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
