"""Smatter turns a shelf of checkpoints into one model per task.

The names below load on first use, so that importing `smatter` costs no torch.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "Library": "smatter.library.library",
    "MetaSettings": "smatter.settings.training",
    "Mixture": "smatter.compose.mixture",
    "Plan": "smatter.compose.plan",
    "Recipe": "smatter.compose.recipe",
    "Sampler": "smatter.tasks.sampler",
    "SamplerSettings": "smatter.tasks.sampler",
    "Suite": "smatter.tasks.suite",
    "TaskList": "smatter.tasks.lists",
    "Residual": "smatter.compose.residual",
    "Arena": "smatter.compose.execute",
    "DeviceSetting": "smatter.settings.devices",
    "MeasureSettings": "smatter.settings.devices",
    "MergedRuntime": "smatter.runtime.merged",
    "RankComponents": "smatter.runtime.units",
    "SharedRuntime": "smatter.runtime.shared",
    "SmatterError": "smatter.errors",
    "SolverSettings": "smatter.methods.solver",
    "Support": "smatter.tasks.support",
    "TaskLoad": "smatter.devices.choice",
    "Trial": "smatter.evaluate.trials",
    "active_fractions": "smatter.devices.active",
    "adapt": "smatter.pipeline",
    "add_experts": "smatter.library.edit",
    "add_source": "smatter.library.edit",
    "check_library": "smatter.library.check",
    "choose_runtime": "smatter.devices.choice",
    "evaluate_methods": "smatter.evaluate.run",
    "export": "smatter.library.export",
    "init_library": "smatter.library.edit",
    "match_mixture": "smatter.live.matching",
    "measure_profile": "smatter.devices.measure",
    "open_library": "smatter.library.library",
    "open_task": "smatter.live.model",
    "open_suite": "smatter.tasks.open",
    "open_trials": "smatter.evaluate.trials",
    "read_list": "smatter.tasks.lists",
    "read_profile": "smatter.devices.profile",
    "read_recipe": "smatter.library.recipes",
    "read_router": "smatter.route.store",
    "read_support": "smatter.tasks.support",
    "refit": "smatter.pipeline",
    "remove_source": "smatter.library.edit",
    "solve_task": "smatter.pipeline",
    "support_of": "smatter.tasks.export",
    "train_router": "smatter.train.router",
    "write_list": "smatter.tasks.lists",
    "write_profile": "smatter.devices.profile",
    "write_recipe": "smatter.library.recipes",
    "write_router": "smatter.route.store",
}

__all__ = sorted(_HOMES)
__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'smatter' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
