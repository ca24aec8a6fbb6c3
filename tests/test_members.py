"""Predictions of several networks, averaged: against sums done by hand, through files and runtimes."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_routers import make_router
from torch import Tensor
from torch.nn.functional import normalize
from toy_suite import Episode, draw_episode

import smatter
from smatter.adapted import Adapted
from smatter.backbones.heads import SCALE, class_sums, prototype_temperature
from smatter.compose.members import Member
from smatter.compose.mixture import Mixture
from smatter.errors import InvalidRecipe, InvalidSettings, UnknownModule
from smatter.library.library import Library
from smatter.live.mixture import Resident
from smatter.methods.evidence import EvidenceSettings
from smatter.methods.router import RoutedSettings
from smatter.route.evidence import pooled_weights
from smatter.settings import HeadName, Mix, MixSettings
from smatter.tasks.suite import Suite
from smatter.tasks.support import Support


@pytest.fixture(scope="module")
def episode(toy) -> Episode:
    return draw_episode(toy.domains, "red+green", 3)


def by_hand(library: Library, episode: Episode, mixture: Mixture) -> Tensor:
    """Scaled cosines of the queries with the mean directions of the classes, by one network."""
    resident = Resident(library, what=mixture)
    support = episode.support
    labels = torch.tensor(support.labels)
    prototypes = class_sums(resident.features(resident.prepare(support.inputs)), labels, len(support.class_names))
    queries = resident.features(resident.prepare(episode.queries))
    return SCALE * normalize(queries, dim=1) @ normalize(prototypes, dim=1).T


def softened(scores: Tensor, adapted: Adapted) -> Tensor:
    """Probabilities of scores at the temperature of the task's head."""
    assert adapted.recipe.head
    return (scores / adapted.recipe.head.temperature).softmax(dim=1)


def test_an_average_of_predictions_is_the_mean_of_scores(toy, episode: Episode) -> None:
    library: Library = toy.library
    adapted = smatter.adapt(library, episode.support, "average", MixSettings(mix="predictions"))
    scores = [by_hand(library, episode, Mixture.of({name: 1.0})) for name in library.names]
    expected = softened(torch.stack(scores).mean(dim=0), adapted)
    torch.testing.assert_close(adapted.predict(episode.queries).probabilities, expected, rtol=1e-5, atol=1e-6)
    assert adapted.to_dict()["query_passes"] == len(library.names)


@pytest.mark.parametrize(
    ("head", "mix"), [("prototype", "weights"), ("prototype", "predictions"), ("ridge", "weights")]
)
def test_prototypes_are_softened_by_examples_and_networks(toy, episode: Episode, head: HeadName, mix: Mix) -> None:
    adapted = smatter.adapt(toy.library, episode.support, "average", MixSettings(mix=mix), head=head)
    n_shot = len(episode.support.labels) / len(adapted.class_names)
    n_networks = len(toy.library.names) if mix == "predictions" else 1
    assert adapted.recipe.head
    wanted = prototype_temperature(n_shot, n_networks) if head == "prototype" else 1.0
    assert adapted.recipe.head.temperature == wanted


def test_both_counts_the_mixed_network_as_one_of_them(toy, episode: Episode) -> None:
    library: Library = toy.library
    n_sources = len(library.names)
    adapted = smatter.adapt(library, episode.support, "average", MixSettings(mix="both"))
    mixed = Mixture.of(dict.fromkeys(library.names, 1 / n_sources))
    scores = [by_hand(library, episode, each) for each in (mixed, *(Mixture.of({n: 1.0}) for n in library.names))]
    expected = softened(torch.stack(scores).mean(dim=0), adapted)
    torch.testing.assert_close(adapted.predict(episode.queries).probabilities, expected, rtol=1e-5, atol=1e-6)
    assert sum(adapted.shares.values()) == pytest.approx(1)


def test_passes_keep_those_of_most_weight(toy, episode: Episode) -> None:
    whole = smatter.adapt(toy.library, episode.support, "evidence", EvidenceSettings(mix="predictions"))
    two = smatter.adapt(toy.library, episode.support, "evidence", EvidenceSettings(mix="predictions", passes=2))
    best = sorted(whole.shares, key=lambda name: -whole.shares[name])[:2]
    assert set(two.shares) == set(best) and two.to_dict()["query_passes"] == 2
    left = sum(whole.shares[name] for name in best)
    assert two.shares == pytest.approx({name: whole.shares[name] / left for name in best})


def test_the_order_of_examples_and_classes_changes_no_bit(toy, episode: Episode) -> None:
    settings = EvidenceSettings(mix="both", passes=3)
    support = episode.support
    order = torch.randperm(len(support.labels), generator=torch.Generator().manual_seed(3))
    names = [support.class_names[support.labels[index]] for index in order.tolist()]
    other = Support.of(support.inputs[order], [f"z{name}" if name == names[0] else name for name in names])
    one, two = (smatter.adapt(toy.library, each, "evidence", settings) for each in (support, other))
    columns = [two.class_names.index(f"z{name}" if name == names[0] else name) for name in one.class_names]
    found = two.predict(episode.queries).probabilities[:, columns]
    assert torch.equal(one.predict(episode.queries).probabilities, found)


def test_branches_share_a_trunk_and_are_the_whole_networks(toy, episode: Episode) -> None:
    library: Library = toy.library
    branch = list(library.partition.modules)[-2]
    settings = MixSettings(mix="both", branch=branch)
    adapted = smatter.adapt(library, episode.support, "average", settings)
    assert 1 < adapted.to_dict()["query_passes"] < 1 + len(library.names)
    own, *others = library.networks(adapted.recipe)
    scores = [adapted.recipe.own_weight * by_hand(library, episode, own)]
    scores += [
        member.weight * by_hand(library, episode, other)
        for member, other in zip(adapted.recipe.members, others, strict=True)
    ]
    expected = softened(torch.stack(scores).sum(dim=0), adapted)
    torch.testing.assert_close(adapted.predict(episode.queries).probabilities, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mix", ["predictions", "both"])
@pytest.mark.parametrize("head", ["prototype", "ridge"])
@pytest.mark.parametrize("is_branched", [False, True])
def test_a_saved_task_predicts_to_the_bit(
    tiny_library: Library, tiny_suite: Suite, tmp_path: Path, mix: Mix, head: HeadName, is_branched: bool
) -> None:
    folder, support = make_router(tiny_library, tiny_suite, tmp_path / "router")
    branch = list(tiny_library.partition.modules)[-2] if is_branched else None
    settings = RoutedSettings(mix=mix, branch=branch)
    adapted = smatter.adapt(tiny_library, support, "router", settings, router=folder, head=head)
    adapted.save(tmp_path / "task.safetensors")
    opened = smatter.open_task(tmp_path / "task.safetensors", tiny_library, folder)
    assert torch.equal(opened.predict(support.inputs).probabilities, adapted.predict(support.inputs).probabilities)
    again = smatter.read_recipe(tmp_path / "task.safetensors")
    smatter.write_recipe(tmp_path / "again.safetensors", again)
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "task.safetensors").read_bytes()


def test_the_cache_keeps_members(toy, episode: Episode, tmp_path: Path) -> None:
    settings = EvidenceSettings(mix="predictions")
    first, second = (
        smatter.adapt(toy.library, episode.support, "evidence", settings, cache=tmp_path) for _ in range(2)
    )
    assert second.fit.members == first.fit.members and second.fit.mixture == first.fit.mixture
    assert first.fit.members and second.fit.seconds == first.fit.seconds


def test_runtimes_average_as_the_task_model_does(toy, episode: Episode) -> None:
    library: Library = toy.library
    plain = smatter.adapt(library, episode.support, "best_source")
    pooled = smatter.adapt(library, episode.support, "average", MixSettings(mix="predictions"))
    catalogue = {name: Mixture.of({name: 1.0}) for name in library.names}
    rows = episode.queries[:6]
    tasks = ["pooled", "plain", "pooled", "plain", "pooled", "pooled"]
    expected = {"pooled": pooled.predict(rows).probabilities, "plain": plain.predict(rows).probabilities}
    for runtime in (smatter.SharedRuntime(library, catalogue), smatter.MergedRuntime(library)):
        runtime.load("pooled", pooled.recipe)
        runtime.load("plain", plain.recipe)
        found = runtime.predict(runtime.prepare(rows), tasks)
        for row, (task, prediction) in enumerate(zip(tasks, found, strict=True)):
            torch.testing.assert_close(prediction.probabilities, expected[task][row], rtol=1e-4, atol=1e-5)
        with pytest.raises(InvalidRecipe, match="use predict"):
            runtime.features(runtime.prepare(rows), tasks)
        assert runtime.n_bytes("pooled") > runtime.n_bytes("plain")
    merged = smatter.MergedRuntime(library)
    branched = smatter.adapt(
        library, episode.support, "average", MixSettings(mix="both", branch=list(library.partition.modules)[-2])
    )
    merged.load("branched", branched.recipe)
    (found,) = merged.predict(merged.prepare(rows[:1]), ["branched"])
    torch.testing.assert_close(found.probabilities, branched.predict(rows).probabilities[0], rtol=1e-4, atol=1e-5)


def test_a_lost_source_is_told_with_its_share_in_all_networks(toy, episode: Episode) -> None:
    library: Library = toy.library
    recipe = smatter.adapt(library, episode.support, "average", MixSettings(mix="both")).recipe
    gone = library.names[-1]
    left = {name: digest for name, digest in library.manifest.digests.items() if name != gone}
    assert recipe.lost_in(left) == pytest.approx({gone: 1 / len(library.names)})
    with pytest.raises(InvalidRecipe, match="averages the predictions"):
        recipe.renormalised(left)


def test_several_networks_are_no_checkpoint(toy, episode: Episode) -> None:
    recipe = smatter.adapt(toy.library, episode.support, "average", MixSettings(mix="both")).recipe
    for refused in (toy.library.plan, toy.library.compose):
        with pytest.raises(InvalidRecipe, match=r"use `smatter predict`, or adapt with --mix weights"):
            refused(recipe)


def test_members_that_cannot_be_are_refused(toy) -> None:
    library: Library = toy.library
    first, second = (Mixture.of({name: 1.0}) for name in library.names[:2])
    with pytest.raises(UnknownModule, match="for a member to differ in"):
        library.recipe(first, members=[Member(0.5, second, ("nowhere",))])
    with pytest.raises(InvalidRecipe, match="take all of the weight"):
        library.recipe(first, members=[Member(0.6, second), Member(0.4, second)])
    elsewhere = replace(
        library.recipe(first, members=[Member(0.5, second, ("embeddings",))]), partition_digest="0" * 64
    )
    with pytest.raises(InvalidRecipe, match="branch in another partition"):
        library.networks(elsewhere)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mix": "predictions", "passes": 99}, "give --passes"),
        ({"mix": "both", "passes": 99}, "more than the"),
        ({"mix": "both", "branch": "nowhere"}, "no module is called 'nowhere'"),
    ],
)
def test_what_cannot_be_averaged_is_told_before_any_pass(toy, episode: Episode, settings, message: str) -> None:
    with pytest.raises((InvalidSettings, UnknownModule), match=message):
        smatter.adapt(toy.library, episode.support, "average", MixSettings(**settings))


def test_weights_of_predictions_forgive_more_than_weights_of_weights() -> None:
    losses = torch.tensor([[0.2, 0.4, 0.3, 0.5], [0.5, 0.6, 0.4, 0.7], [0.9, 0.7, 1.0, 1.2]])
    pooled, sharp = pooled_weights(losses), pooled_weights(losses, temperature=1.0)
    assert pooled.argmax() == sharp.argmax() == 0 and float(pooled[0]) < float(sharp[0])
    prior = torch.tensor([0.1, 0.8, 0.1])
    assert float(pooled_weights(losses, prior=prior)[1]) > float(pooled[1])
    broken = torch.cat([losses, torch.full((1, 4), torch.nan)])
    found = pooled_weights(broken)
    assert float(found[3]) == 0 and float(found.sum()) == pytest.approx(1)
