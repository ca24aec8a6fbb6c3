"""The gradient of a network's loss, against finite differences and against autograd through an explicit mixture."""

from pathlib import Path

import pytest
import torch
from tiny_libraries import pixels_support, random_library, texts_support, tiny_bert, tiny_vit
from torch import Tensor
from torch.func import functional_call

from smatter.backbones import network as network_module
from smatter.backbones.network import names_in_memory
from smatter.library.edit import add_source, init_library
from smatter.library.library import Library
from smatter.live import mixture as live_module
from smatter.live.mixture import LiveMixture
from smatter.live.objectives import LeaveOneOut
from smatter.live.problems import MixtureLoss, ResidualLoss
from smatter.live.task import leave_one_out
from smatter.solve.frank_wolfe import uniform


def point_of(problem: MixtureLoss, seed: int = 0) -> Tensor:
    weights = torch.rand(1, problem.n_blocks, len(problem.sources), generator=torch.Generator().manual_seed(seed))
    return weights.double() / weights.double().sum(dim=-1, keepdim=True)


def explicit(library: Library, live: LiveMixture, rows: LeaveOneOut, weights: Tensor) -> Tensor:
    """The loss of a mixture that autograd sees, with all sources in memory and pooling by hand."""
    model = live.network.model
    mixed = {}
    for disk, name in names_in_memory(model, library.specs).memory.items():
        module = list(library.partition.modules).index(library.partition.module_of(disk))
        row = weights[0, module if weights.shape[1] > 1 else 0]
        stack = torch.stack([library.tensor(source, disk).float() for source in library.names])
        mixed[name] = torch.tensordot(row.float(), stack, dims=1)
    hidden = functional_call(model, mixed, kwargs=rows.inputs).last_hidden_state
    mask = rows.inputs.get("attention_mask", torch.ones(hidden.shape[:2]))[..., None].float()
    return rows.losses((hidden * mask).sum(dim=1) / mask.sum(dim=1)).mean()


@pytest.mark.parametrize("per_module", [False, True])
def test_the_gradient_is_that_of_an_explicit_mixture(task, per_module: bool) -> None:
    library, support = task
    live = LiveMixture(library)
    rows = leave_one_out(live, support)
    problem = MixtureLoss(live, rows, per_module)
    point = point_of(problem)
    value, gradient = problem.evaluate(point)
    variable = point.clone().requires_grad_()
    loss = explicit(library, live, rows, variable)
    (expected,) = torch.autograd.grad(loss, variable)
    assert value.dtype == gradient.dtype == torch.float64 and gradient.shape == point.shape
    assert float(value[0]) == pytest.approx(float(loss.detach()), rel=1e-5)
    torch.testing.assert_close(gradient, expected, rtol=1e-3, atol=1e-5 * float(expected.abs().max()) + 1e-6)


@pytest.mark.parametrize("pull", [0.0, 5.0])
@pytest.mark.parametrize("per_module", [False, True])
def test_the_gradient_is_that_of_finite_differences(task, per_module: bool, pull: float) -> None:
    library, support = task
    live = LiveMixture(library)
    problem = MixtureLoss(live, leave_one_out(live, support), per_module, pull=pull)
    point = point_of(problem)
    gradient = problem.evaluate(point).gradient
    for seed in range(3):
        direction = torch.randn(point.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        direction = direction / direction.norm()
        step = 5e-3
        difference = problem.value(point + step * direction) - problem.value(point - step * direction)
        slope = float((gradient * direction).sum())
        assert float(difference) / (2 * step) == pytest.approx(slope, rel=0.03, abs=0.02 * float(gradient.norm()))


def test_the_pull_is_none_at_the_average_and_falls_with_the_number_of_examples(vit_library: Library) -> None:
    live = LiveMixture(vit_library)
    n_sources = len(vit_library.names)
    average, corner = uniform(1, 1, n_sources, torch.zeros(1).double()), torch.eye(n_sources).double()[:1, None]
    for n_shot in (2, 4):
        support = pixels_support(n_shot)
        free = MixtureLoss(live, leave_one_out(live, support))
        for per_module in (False, True):
            pulled = MixtureLoss(live, leave_one_out(live, support), per_module, pull=3.0)
            points = [point.expand(1, pulled.n_blocks, -1) for point in (average, corner)]
            added = [float(pulled.value(point)) - pulled.loss(point) for point in points]
            assert added == pytest.approx([0, 3 / (2 * len(support)) * (n_sources - 1)])
            assert pulled.loss(points[1]) == pytest.approx(free.loss(corner), rel=1e-6)


def test_gradients_per_module_sum_to_the_one_for_all(task) -> None:
    library, support = task
    live = LiveMixture(library)
    rows = leave_one_out(live, support)
    whole, parts = MixtureLoss(live, rows), MixtureLoss(live, rows, per_module=True)
    point = point_of(whole)
    one = whole.evaluate(point)
    many = parts.evaluate(point.expand(1, parts.n_blocks, -1).clone())
    assert float(one.value[0]) == float(many.value[0])
    torch.testing.assert_close(many.gradient.sum(dim=1), one.gradient[:, 0])


def test_heads_that_the_backbone_lacks_have_no_gradient(vit_library) -> None:
    live = LiveMixture(vit_library)
    problem = MixtureLoss(live, leave_one_out(live, pixels_support()), per_module=True)
    gradient = problem.evaluate(point_of(problem)).gradient[0]
    head = problem.modules.index("head")
    assert not gradient[head].any() and "head" not in live.live_modules
    assert gradient[problem.modules.index("embeddings")].any()


def test_many_rows_are_passed_in_parts_with_the_same_result(task, monkeypatch) -> None:
    library, support = task
    live = LiveMixture(library)
    rows = leave_one_out(live, support)
    point = point_of(MixtureLoss(live, rows))
    whole = MixtureLoss(live, rows).evaluate(point)
    monkeypatch.setattr(live_module, "CHUNK", 4)
    monkeypatch.setattr(live_module, "chunks", lambda inputs: network_module.chunks(inputs, 4))
    parts = MixtureLoss(live, rows).evaluate(point)
    torch.testing.assert_close(parts.value, whole.value)
    torch.testing.assert_close(parts.gradient, whole.gradient, rtol=1e-3, atol=1e-5)


def test_one_backward_pass_whatever_the_number_of_sources(vit_library, monkeypatch) -> None:
    live = LiveMixture(vit_library)
    problem = MixtureLoss(live, leave_one_out(live, pixels_support()))
    calls = []
    forward = live.network.features
    monkeypatch.setattr(live.network, "features", lambda inputs: calls.append(1) or forward(inputs))
    problem.evaluate(point_of(problem))
    assert len(calls) == 1
    problem.value(point_of(problem))  # the same point again
    assert len(calls) == 1
    assert all(parameter.grad is None for parameter in live.parameters.values())


def test_half_precision_sources_are_mixed_in_float32(tmp_path: Path) -> None:
    library = random_library(tmp_path, tiny_bert(), dtype=torch.bfloat16)
    live = LiveMixture(library)
    rows = leave_one_out(live, texts_support("law"))
    problem = MixtureLoss(live, rows)
    point = point_of(problem)
    value, gradient = problem.evaluate(point)
    assert {parameter.dtype for parameter in live.parameters.values()} == {torch.float32}
    variable = point.clone().requires_grad_()
    loss = explicit(library, live, rows, variable)
    (expected,) = torch.autograd.grad(loss, variable)
    assert float(value[0]) == pytest.approx(float(loss.detach()), rel=1e-5)
    torch.testing.assert_close(gradient, expected, rtol=1e-3, atol=1e-5)


def test_stored_forms_are_read_like_whole_sources(vit_library, tmp_path: Path) -> None:
    folder = vit_library.folder.parent
    stored = init_library(tmp_path / "library", folder / "base")
    for name in ("source-0", "source-1"):
        stored, _ = add_source(stored.folder, folder / name, form="delta")
    results = []
    for library in (vit_library, stored):
        live = LiveMixture(library)
        problem = MixtureLoss(live, leave_one_out(live, pixels_support()))
        results.append(problem.evaluate(point_of(problem)))
    assert torch.equal(results[0].value, results[1].value)
    torch.testing.assert_close(results[0].gradient, results[1].gradient, rtol=1e-4, atol=1e-6)


def test_the_gradient_of_a_residual_is_that_of_finite_differences(task) -> None:
    library, support = task
    live = LiveMixture(library)
    rows = leave_one_out(live, support)
    weights = MixtureLoss(live, rows)
    problem = ResidualLoss(live, rows, weights.mixture(point_of(weights)))
    generator = torch.Generator().manual_seed(2)
    point = 0.02 * torch.randn(1, live.numbering.n_parameters, generator=generator)
    value, gradient = problem.evaluate(point)
    assert float(value[0]) == pytest.approx(float(problem.value(point)[0]), rel=1e-5)
    direction = gradient / gradient.norm()
    step = 1e-2
    difference = float(problem.value(point + step * direction) - problem.value(point - step * direction))
    assert difference / (2 * step) == pytest.approx(float(gradient.norm()), rel=0.03)
    assert float(problem.value(torch.zeros_like(point))[0]) == pytest.approx(float(weights.value(point_of(weights))[0]))
    assert torch.isinf(problem.value(torch.full_like(point, torch.inf))).all()


def test_a_residual_lies_module_after_module(vit_library) -> None:
    live = LiveMixture(vit_library)
    flat = live.numbering
    assert "head" not in flat.modules
    ends = [0, *(where.stop for where in flat.modules.values())]
    assert [where.start for where in flat.modules.values()] == ends[:-1] and ends[-1] == flat.n_parameters
    assert flat.n_parameters == sum(parameter.numel() for parameter in live.parameters.values())


def test_a_model_without_head_weights_needs_no_head(tmp_path: Path) -> None:
    library = random_library(tmp_path, tiny_vit())
    headless = init_library(tmp_path / "headless", tmp_path / "base", exclude=["classifier.*"])
    assert set(LiveMixture(headless).parameters) == set(LiveMixture(library).parameters)
