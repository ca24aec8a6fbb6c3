"""The router: invariances, any number of sources, what evidence and descriptors do."""

from typing import get_args

import pytest
import torch
from torch import Tensor

from smatter.errors import InvalidSettings
from smatter.route.descriptor import N_MOMENTS, describe
from smatter.route.encode import ClassStatistics, Routing
from smatter.route.probe import Probe
from smatter.route.router import Router
from smatter.settings.training import Pooling, RouterSettings, Tying

N_FEATURES, N_GROUPS, N_MODULES = 6, 4, 3


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def statistics(seed: int, n_classes: int = 5, shots: int = 4) -> ClassStatistics:
    labels = torch.arange(n_classes).repeat(shots)
    return ClassStatistics.of(draw(len(labels), N_FEATURES, seed=seed), labels, n_classes)


def make_router(**settings: object) -> Router:
    probe = [statistics(100 + group) for group in range(N_GROUPS)]
    moments = torch.tensor([[0.0] * N_MOMENTS, [1.0] * N_MOMENTS]).double()
    generator = torch.Generator().manual_seed(1)
    return Router(RouterSettings(**settings), probe, N_MODULES, moments, generator).double().requires_grad_(False)  # type: ignore[arg-type]


def descriptors(n_sources: int, seed: int = 7) -> Tensor:
    return draw(n_sources, N_GROUPS, N_MOMENTS, seed=seed)


def assert_alike(one: Routing, other: Routing) -> None:
    torch.testing.assert_close(one.weights, other.weights, atol=1e-9, rtol=0)
    torch.testing.assert_close(one.experts, other.experts, atol=1e-9, rtol=0)


@pytest.mark.parametrize("pooling", get_args(Pooling))
def test_order_of_examples_and_of_classes_does_not_matter(pooling: Pooling) -> None:
    router = make_router(pooling=pooling, n_experts=2)
    features, labels = draw(20, N_FEATURES), torch.arange(5).repeat(4)
    order, names = torch.randperm(20, generator=torch.Generator().manual_seed(3)), torch.tensor([3, 0, 4, 1, 2])
    before = router(ClassStatistics.of(features, labels, 5), descriptors(4), draw(4, 9).abs())
    moved = ClassStatistics.of(features[order], names[labels[order]], 5)
    assert_alike(router(moved, descriptors(4), draw(4, 9).abs()), before)


@pytest.mark.parametrize("tying", get_args(Tying))
def test_order_of_sources_only_orders_their_weights(tying: Tying) -> None:
    router = make_router(tying=tying)
    order = torch.tensor([2, 0, 3, 1])
    before = router(statistics(0), descriptors(4), draw(4, 9).abs())
    after = router(statistics(0), descriptors(4)[order], draw(4, 9).abs()[order])
    torch.testing.assert_close(after.weights, before.weights[:, order], atol=1e-9, rtol=0)
    assert before.weights.shape == (1 if tying == "global" else N_MODULES, 4)


def test_equal_sources_share_and_any_number_of_sources_works() -> None:
    router = make_router()
    for n_sources in (1, 2, 16):
        weights = router(statistics(0), descriptors(n_sources)).weights
        assert weights.shape == (1, n_sources) and float(weights.sum()) == pytest.approx(1)
    twins = router(statistics(0), descriptors(3)[[0, 1, 1, 2]], draw(3, 9).abs()[[0, 1, 1, 2]]).weights[0]
    assert float(twins[1]) == pytest.approx(float(twins[2]), abs=1e-12)


def test_without_evidence_only_descriptors_count_and_with_it_the_better_source_gains() -> None:
    router = make_router()
    alike = descriptors(1).expand(3, -1, -1)
    torch.testing.assert_close(router(statistics(0), alike).weights, torch.full((1, 3), 1 / 3).double())
    told = router(statistics(0), alike, torch.tensor([[1.0, 0.9], [0.2, 0.1], [1.0, 1.1]]).double())
    assert float(told.trust) > 0 and told.weights.argmax() == 1
    assert float(router(statistics(0), alike).trust) == 0


@pytest.mark.parametrize("n_classes", [2, 5, 19])
def test_one_shot_and_other_ways_work(n_classes: int) -> None:
    routing = make_router(n_experts=3)(statistics(0, n_classes, shots=1), descriptors(4))
    assert bool(routing.weights.isfinite().all())
    assert routing.experts.shape == (3,) and 0 < float(routing.experts.sum()) < 1


def test_a_limit_on_sources_holds() -> None:
    weights = make_router(max_sources=2, tying="per-module")(statistics(0), descriptors(6)).weights
    assert bool(((weights > 0).sum(dim=1) == 2).all())


def test_every_parameter_learns() -> None:
    router = make_router(tying="tied", n_experts=2).requires_grad_()
    routing = router(statistics(0), descriptors(4), draw(4, 9).abs())
    ((routing.weights * draw(N_MODULES, 4, seed=5)).sum() + (routing.experts * draw(2, seed=6)).sum()).backward()
    for name, parameter in router.named_parameters():
        assert parameter.grad is not None and bool(parameter.grad.any()), name


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(InvalidSettings, match="unknown pooling 'mean': use moments"):
        RouterSettings(pooling="mean")  # type: ignore[arg-type]
    with pytest.raises(InvalidSettings, match="width is 0: give 1 to 4096"):
        RouterSettings(width=0)
    with pytest.raises(InvalidSettings, match="rank is 0: give 1 to 4096"):
        RouterSettings(rank=0)


def test_descriptors_tell_a_source_that_separates_a_group_from_one_that_does_not() -> None:
    classes = torch.arange(6).repeat_interleave(5)
    labels = Probe((), classes, classes // 3, ("first", "second"))
    centers = draw(6, 8)
    noise = draw(30, 8, seed=1)
    knows_first = torch.where((labels.groups == 0)[:, None], centers[classes] + 0.1 * noise, noise)
    ratio = describe(knows_first, labels)[:, 2]
    assert float(ratio[0]) > float(ratio[1]) + 2
    turn = torch.linalg.qr(draw(8, 8, seed=2)).Q
    torch.testing.assert_close(describe(3 * knows_first @ turn, labels), describe(knows_first, labels))
    order = torch.randperm(30, generator=torch.Generator().manual_seed(0))
    moved = Probe((), classes[order], labels.groups[order], labels.names)
    torch.testing.assert_close(describe(knows_first[order], moved), describe(knows_first, labels))
