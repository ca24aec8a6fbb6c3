"""Evidence routing: the formula, what it trusts, and what does not matter."""

import math

import pytest
import torch
from tiny_libraries import pixels_support, texts_support
from toy_suite import DOMAINS, draw_episode

from smatter.backbones.network import load_tensors
from smatter.compose.mixture import Mixture
from smatter.errors import InvalidSettings, InvalidSupport
from smatter.library.library import Library
from smatter.live.mixture import LiveMixture
from smatter.live.task import leave_one_out
from smatter.route.evidence import Evidence, default_temperature, gather_evidence
from smatter.tasks.support import Support


def losses_of(*means: float, n_examples: int = 12, luck: float = 0.3) -> torch.Tensor:
    """Losses of some examples by sources with these means."""
    noise = torch.randn(len(means), n_examples, generator=torch.Generator().manual_seed(0))
    noise = luck * (noise - noise.mean(dim=1, keepdim=True))
    return torch.tensor(means)[:, None] + noise


def test_weights_are_a_softmax_of_losses_in_standard_errors() -> None:
    losses = losses_of(0.5, 0.6, 0.9).double()
    evidence = Evidence.of(("a", "b", "c"), losses, 0.8)
    errors = sorted(float((losses[other] - losses[0]).std() / math.sqrt(12)) for other in (1, 2))
    assert evidence.error == pytest.approx(errors[0], abs=1e-9)
    expected = torch.softmax(-losses.mean(dim=1) / (0.8 * evidence.error), dim=0)
    assert evidence.weights == pytest.approx(expected.tolist(), abs=1e-4)
    assert Evidence.of(("a", "b", "c"), losses).temperature == 1


def test_the_scale_of_losses_does_not_matter() -> None:
    losses = losses_of(0.5, 0.6, 0.9)
    one, other = (Evidence.of(("a", "b", "c"), scale * losses) for scale in (1.0, 0.1))
    assert one.weights == pytest.approx(other.weights, abs=1e-6)


def test_more_examples_say_more() -> None:
    few, many = (Evidence.of(("a", "b"), losses_of(0.5, 0.6, n_examples=n)) for n in (5, 100))
    assert 0.5 < few.weights[0] < many.weights[0]


def test_equal_sources_share() -> None:
    losses = losses_of(0.5, 0.9)
    assert Evidence.of(("a", "b", "c"), losses[[0, 0, 1]]).weights[:2] == pytest.approx((0.5, 0.5), abs=0.02)
    assert Evidence.of(("a", "b"), losses[[0, 0]]).weights == (0.5, 0.5)
    assert Evidence.of(("a",), losses[:1]).weights == (1.0,)


def test_negligible_sources_are_left_out() -> None:
    evidence = Evidence.of(("a", "b"), losses_of(0.1, 2.5))
    assert evidence.weights == (1.0, 0.0) and evidence.mixture == Mixture.of({"a": 1.0})
    for broken in (math.inf, math.nan):
        assert Evidence.of(("a", "b", "c"), losses_of(broken, 1.5, 9.0)).weights == (0.0, 1.0, 0.0)


def test_a_crowd_does_not_outvote_a_good_source() -> None:
    crowd = tuple(f"n{number}" for number in range(400))
    evidence = Evidence.of(("good", *crowd), losses_of(0.3, *(0.6,) * 400))
    assert evidence.weights[0] > 0.9 and default_temperature(400) < default_temperature(4) == 1


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan, math.inf])
def test_impossible_temperatures_are_refused(temperature: float) -> None:
    with pytest.raises(InvalidSettings, match="temperature"):
        Evidence.of(("a",), losses_of(1.0), temperature)


def test_no_finite_loss_is_an_error() -> None:
    with pytest.raises(InvalidSupport, match="finite"):
        Evidence.of(("a", "b"), losses_of(math.nan, math.inf))


def test_losses_are_those_of_the_frozen_sources(task) -> None:
    library, support = task
    live = LiveMixture(library)
    rows = leave_one_out(live, support)
    told = []
    evidence = gather_evidence(live, rows, progress=told.append)
    assert len(told) == len(library.names) and sum(told) == pytest.approx(1) and evidence.sources == library.names
    for name, loss in zip(evidence.sources, evidence.losses, strict=True):
        load_tensors(live.network.model, {tensor: library.tensor(name, tensor) for tensor in library.specs})
        assert float(rows.losses(live.read(rows)).mean()) == pytest.approx(loss, rel=1e-6)


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_task_of_a_sources_domain_goes_to_that_source(toy, domain: str) -> None:
    live = LiveMixture(toy.library)
    for seed in range(3):
        evidence = gather_evidence(live, leave_one_out(live, draw_episode(toy.domains, domain, seed).support))
        weights = dict(zip(evidence.sources, evidence.weights, strict=True))
        assert evidence.best == domain and weights[domain] > 0.5


@pytest.mark.parametrize("topic", ["law", "food"])
def test_texts_of_a_topic_go_to_the_network_that_knows_it(topics: Library, topic: str) -> None:
    live = LiveMixture(topics)
    evidence = gather_evidence(live, leave_one_out(live, texts_support(topic)))
    assert evidence.best == topic and dict(zip(evidence.sources, evidence.weights, strict=True))[topic] > 0.5


def test_order_of_examples_classes_and_sources_does_not_matter(vit_library: Library) -> None:
    support = pixels_support()
    live = LiveMixture(vit_library)
    expected = gather_evidence(live, leave_one_out(live, support))
    order = torch.randperm(len(support), generator=torch.Generator().manual_seed(0))
    labels = [("c", "a", "b")[support.labels[index]] for index in order]
    shuffled = Support.of(support.inputs[order], labels)
    again = gather_evidence(live, leave_one_out(live, shuffled))
    assert again.losses == pytest.approx(expected.losses, rel=1e-5)
    manifest = vit_library.manifest.model_copy(update={"sources": vit_library.manifest.sources[::-1]})
    backwards = LiveMixture(Library(vit_library.folder, manifest))
    turned = gather_evidence(backwards, leave_one_out(backwards, support))
    assert dict(zip(turned.sources, turned.losses, strict=True)) == dict(
        zip(expected.sources, expected.losses, strict=True)
    )


@pytest.mark.parametrize("n_shot", [1, 2])
def test_one_shot_classes_are_judged_by_views(task, n_shot: int) -> None:
    library, _ = task
    support = pixels_support(n_shot) if library.base.model_type == "vit" else texts_support("law", n_shot)
    live = LiveMixture(library)
    rows = leave_one_out(live, support)
    assert len(rows.labels) == len(support) * (8 if n_shot == 1 else 1)
    first, second = gather_evidence(live, rows), gather_evidence(live, leave_one_out(live, support))
    assert first == second and all(map(math.isfinite, first.losses))


def test_classes_of_one_and_of_many_examples_go_together(vit_library: Library, topics: Library) -> None:
    mixed = pixels_support(3)
    kept = [0, 1, 2, 3, 4, 5, 6]
    support = Support.of(mixed.inputs[kept], [mixed.labels[index] for index in kept])
    live = LiveMixture(vit_library)
    rows = leave_one_out(live, support)
    assert len(rows.labels) == 6 + 8 and rows.labels.tolist() == [0] * 3 + [1] * 3 + [2] * 8
    assert math.isfinite(live.loss(rows))
    backwards = Support.of(mixed.inputs[kept[::-1]], [mixed.labels[index] for index in kept[::-1]])
    assert live.loss(leave_one_out(live, backwards)) == pytest.approx(live.loss(rows), rel=1e-5)
    texts = Support.of(["law0a law0b", "filler1 law0c", "law1a filler2 filler3"], ["x", "x", "y"])
    live = LiveMixture(topics)
    assert leave_one_out(live, texts).labels.tolist() == [0, 0] + [1] * 8


def test_texts_for_a_network_of_images_are_refused(vit_library: Library) -> None:
    with pytest.raises(InvalidSupport, match="takes images"):
        leave_one_out(LiveMixture(vit_library), texts_support("law"))
