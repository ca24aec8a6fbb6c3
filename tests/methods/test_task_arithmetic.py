"""Task arithmetic: the strength of least loss among those tried, and the network that mergekit would build."""

import pytest
import torch
from tiny_libraries import pixels_support
from toy_suite import draw_episode

from smatter.compose.mixture import Mixture
from smatter.library.library import Library
from smatter.live.mixture import LiveMixture
from smatter.live.task import Task
from smatter.methods.task_arithmetic import TaskArithmeticSettings, task_arithmetic


@pytest.mark.parametrize("names", ["red", "green+blue"])
def test_the_strength_is_the_best_of_those_tried(toy, names: str) -> None:
    live = LiveMixture(toy.library)
    task = Task.of(live, draw_episode(toy.domains, names, 2).support)
    base, strengths = toy.library.manifest.base, (0.6, 0.0, 0.2, 0.4)
    losses = {}
    for strength in strengths:
        live.compose(Mixture.task_arithmetic(base, dict.fromkeys(toy.library.names, 1.0), strength))
        losses[strength] = live.loss(task.objective)
    fit = task_arithmetic(live, task, TaskArithmeticSettings(strengths))
    best = min(losses, key=losses.__getitem__)
    assert fit.trace.losses == (losses[best],) and f"strength {best:g}" in fit.notes[0]
    tensors = toy.library.compose(fit.mixture).tensors()
    for name, tensor in tensors.items():
        start = toy.library.tensor(base, name)
        changes = sum(toy.library.tensor(source, name) - start for source in toy.library.names)
        torch.testing.assert_close(tensor, start + best * changes, rtol=1e-4, atol=1e-5)


def test_strength_zero_is_the_base_alone(vit_library: Library) -> None:
    live = LiveMixture(vit_library)
    fit = task_arithmetic(live, Task.of(live, pixels_support()), TaskArithmeticSettings((0.0,)))
    assert fit.mixture.mean_weights == {vit_library.manifest.base: 1.0}
