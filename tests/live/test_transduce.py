"""Models that learn from inputs without labels: prototypes move as the pure function says, and only if they may."""

from pathlib import Path

import pytest
import torch
from toy_suite import draw_episode

import smatter
from smatter.backbones.heads import SCALE
from smatter.backbones.transduction import refined_prototypes
from smatter.errors import InvalidSettings
from smatter.live.mixture import Resident
from smatter.live.model import TaskModel
from smatter.live.transduce import features_of, learn, predict_together
from smatter.settings import MixSettings
from smatter.tasks.inputs import Input


def test_queries_move_prototypes_as_the_pure_function_says(toy) -> None:
    library, episode = toy.library, draw_episode(toy.domains, "red+green", 2)
    adapted = smatter.adapt(
        library, episode.support, "average", MixSettings(mix="predictions"), queries=episode.queries
    )
    assert adapted.learnt and adapted.learnt.n_queries == len(episode.queries)
    features = []
    for recipe in library.networks(adapted.recipe):
        resident = Resident(library, what=recipe)
        features.append([resident.features(resident.prepare(x)) for x in (episode.support.inputs, episode.queries)])
    support, queries = (torch.stack([each[k] for each in features]) for k in (0, 1))
    weights = torch.tensor(adapted.recipe.network_weights)
    labels = torch.tensor(episode.support.labels)
    expected = refined_prototypes(support, labels, queries, weights, len(episode.support.class_names))
    assert adapted.recipe.head
    torch.testing.assert_close(
        adapted.predict(episode.queries).probabilities,
        (expected.logits(queries, weights) / adapted.recipe.head.temperature).softmax(dim=1),
        rtol=1e-4,
        atol=1e-5,
    )
    assert sum(adapted.learnt.shares.values()) == pytest.approx(1)


def test_what_was_learnt_is_in_the_recipe(toy, tmp_path: Path) -> None:
    episode = draw_episode(toy.domains, "red", 2)
    plain = smatter.adapt(toy.library, episode.support)
    adapted = smatter.adapt(toy.library, episode.support, queries=episode.queries)
    adapted.save(tmp_path / "task.safetensors")
    opened = smatter.open_task(tmp_path / "task.safetensors", toy.library)
    found = opened.predict(episode.queries).probabilities
    assert torch.equal(found, adapted.predict(episode.queries).probabilities)
    assert not torch.equal(found, plain.predict(episode.queries).probabilities)


def test_a_recipe_without_examples_learns_nearly_as_well(toy) -> None:
    """Its prototypes stand for the examples, as many as each class had."""
    episode = draw_episode(toy.domains, "red+green", 3)
    adapted = smatter.adapt(toy.library, episode.support)
    model = TaskModel(adapted._live, adapted.recipe)
    answers, learnt = predict_together(model, [Input(str(n), None) for n in range(0)])
    assert answers == () and learnt.n_queries == 0
    queries = features_of(model, episode.queries)
    without = learn(model, queries)
    names = without.model.predict(episode.queries).names
    adapted.learn_from(episode.queries)
    agree = sum(map(str.__eq__, names, adapted.predict(episode.queries).names)) / len(names)
    assert agree > 0.9 and without.shares == pytest.approx(adapted.learnt.shares, abs=0.1)


def test_no_queries_change_nothing(toy) -> None:
    episode = draw_episode(toy.domains, "red", 2)
    adapted = smatter.adapt(toy.library, episode.support)
    model = TaskModel(adapted._live, adapted.recipe)
    same = learn(model, features_of(model, episode.queries[:0]))
    torch.testing.assert_close(
        torch.from_numpy(same.model.head.weight), torch.from_numpy(model.head.weight), rtol=1e-6, atol=SCALE * 1e-6
    )


def test_only_prototypes_learn(toy) -> None:
    episode = draw_episode(toy.domains, "red", 2)
    with pytest.raises(InvalidSettings, match="no other head"):
        smatter.adapt(toy.library, episode.support, head="ridge", queries=episode.queries)
    with pytest.raises(InvalidSettings, match="at least one input"):
        smatter.adapt(toy.library, episode.support, queries=[])
    ridge = smatter.adapt(toy.library, episode.support, head="ridge")
    model = TaskModel(ridge._live, ridge.recipe)
    with pytest.raises(InvalidSettings, match="the head is ridge"):
        learn(model, features_of(model, episode.queries))
