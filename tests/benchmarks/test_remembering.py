"""The network that remembers what it was passed: the same features as one that does not, by fewer passes."""

import sys
from pathlib import Path

import torch
from tiny_libraries import texts_support, topic_library

from smatter.compose.mixture import Mixture
from smatter.live.mixture import LiveMixture
from smatter.live.objectives import Queries

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

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
