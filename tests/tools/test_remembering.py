"""The network that remembers what it was passed: the same features as one that does not, by fewer passes."""

import sys
from pathlib import Path

import pytest
import torch
from tiny_libraries import texts_support, topic_library

from smatter.compose.mixture import Mixture
from smatter.compose.residual import Residual
from smatter.live.mixture import LiveMixture
from smatter.live.objectives import Queries
from smatter.live.task import Task

sys.path.insert(0, str(Path(__file__).parents[2] / "tools" / "common"))

from remembering import Remembering


def test_features_are_those_of_the_weights_that_were_asked_for(tmp_path: Path) -> None:
    library = topic_library(tmp_path)
    plain, remembering = LiveMixture(library), Remembering(library)
    law, food = texts_support("law").inputs, texts_support("food").inputs
    assert isinstance(law, tuple) and isinstance(food, tuple)
    longer = tuple(f"{text} {text}" for text in food[:3])
    one, other = Mixture.of({"law": 1.0}), Mixture.of({"base": 0.5, "food": 0.5})

    def reads(network: LiveMixture, mixture: Mixture, texts: tuple[str, ...]) -> torch.Tensor:
        network.compose(mixture)
        inputs = network.prepare(texts, "texts")
        return network.read(Queries(inputs, torch.zeros(len(texts), dtype=torch.long), 1, 1))

    for mixture, texts in (
        (one, law), (other, law + food), (one, law[::-1]), (one, law + longer), (other, (*longer, *food, *law)),
    ):  # fmt: skip
        torch.testing.assert_close(reads(remembering, mixture, texts), reads(plain, mixture, texts))
    passed = remembering.n_forwards
    torch.testing.assert_close(reads(remembering, one, longer + law), reads(plain, one, longer + law))
    assert remembering.n_forwards == passed


def test_gradients_are_those_of_the_weights_that_were_asked_for_last(tmp_path: Path) -> None:
    library = topic_library(tmp_path)
    plain, remembering = LiveMixture(library), Remembering(library)
    support = texts_support("law", n_shot=30)  # more than one pass holds

    def slopes(network: LiveMixture, mixture: Mixture) -> torch.Tensor:
        task = Task.of(network, support)
        network.compose(mixture)
        network.loss(task.objective)
        network.compose(Mixture.of({"base": 1.0}))
        network.compose(mixture)
        network.backward(task.objective)
        return network.inner_products(library.names)

    for mixture in (Mixture.of({"law": 1.0}), Mixture.of({"base": 0.5, "food": 0.5})):
        torch.testing.assert_close(slopes(remembering, mixture), slopes(plain, mixture), rtol=1e-4, atol=1e-6)


def test_a_recipe_is_remembered_by_its_mixture_and_refused_with_more(tmp_path: Path) -> None:
    library = topic_library(tmp_path)
    network = Remembering(library)
    inputs = network.prepare(texts_support("law").inputs, "texts")
    network.compose(Mixture.of({"law": 1.0}))
    features, passed = network.features(inputs), network.n_forwards
    network.compose(library.recipe(Mixture.of({"law": 1.0})))
    assert torch.equal(network.features(inputs), features) and network.n_forwards == passed
    with pytest.raises(ValueError, match="no room"):
        network.compose(Mixture.of({"law": 1.0}), Residual())
