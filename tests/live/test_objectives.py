"""What a task asks of a network is one class: a loss on tokens needs nothing of the rest to change."""

from dataclasses import dataclass

import pytest
import torch
from tiny_libraries import random_library
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaModel

from smatter import methods
from smatter.backbones.heads import FitHead, Head
from smatter.backbones.network import Inputs, Network
from smatter.compose.mixture import Mixture
from smatter.library.library import Library
from smatter.live.mixture import LiveMixture
from smatter.live.objectives import Objective
from smatter.live.problems import MixtureLoss
from smatter.live.task import Task

N_TOKENS = 30


@dataclass(frozen=True)
class NextToken:
    """The mean loss of each text's next tokens; logits are products with the network's own embeddings."""

    inputs: Inputs

    @property
    def classes(self) -> Tensor:
        return torch.zeros(len(self.inputs["input_ids"]), dtype=torch.int64)

    def read(self, network: Network, inputs: Inputs) -> Tensor:
        hidden = network.model(**inputs).last_hidden_state
        logits = hidden @ network.model.embed_tokens.weight.T  # type: ignore[operator, union-attr]
        losses = cross_entropy(logits[:, :-1].transpose(1, 2), inputs["input_ids"][:, 1:], reduction="none")
        return losses.mean(dim=1)

    def losses(self, read: Tensor) -> Tensor:
        return read

    def fit_head(self, read: Tensor, fit: FitHead) -> Head:
        raise AssertionError("a language model has its own")

    def held_out_accuracy(self, read: Tensor, fit: FitHead) -> float:
        return float("nan")


@pytest.fixture(scope="module")
def decoders(tmp_path_factory: pytest.TempPathFactory) -> Library:
    config = LlamaConfig(
        vocab_size=N_TOKENS, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2
    )
    return random_library(tmp_path_factory.mktemp("llama"), LlamaModel(config), n_sources=4, spread=0.2)


@pytest.fixture(scope="module")
def texts() -> Inputs:
    tokens = torch.randint(0, N_TOKENS, (70, 9), generator=torch.Generator().manual_seed(0))
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def test_its_gradient_in_the_weights_is_that_of_finite_differences(decoders: Library, texts: Inputs) -> None:
    objective: Objective = NextToken({name: tensor[:20] for name, tensor in texts.items()})
    problem = MixtureLoss(LiveMixture(decoders), objective)
    point = torch.full((1, 1, 4), 0.25, dtype=torch.float64)
    gradient = problem.evaluate(point).gradient[0, 0]
    for source in range(4):
        away = 0.02 * torch.eye(4, dtype=torch.float64)[source]
        slope = (problem.value(point + away) - problem.value(point - away)) / 0.04
        assert float(gradient[source]) == pytest.approx(float(slope), rel=0.05, abs=2e-3)


@pytest.mark.parametrize("name", ["best_source", "evidence", "greedy_soup", "refined", "solver", "task_arithmetic"])
def test_every_method_that_needs_no_classes_takes_it(decoders: Library, texts: Inputs, name: str) -> None:
    live = LiveMixture(decoders)
    task = Task(NextToken(texts), "digest of the texts")  # more rows than one pass holds

    def loss(fit: methods.Fit) -> float:
        live.compose(fit.recipe(live.library))
        return live.loss(task.objective)

    found, average = (loss(methods.find(each)(live, task)) for each in (name, "average"))
    live.compose(Mixture.of({decoders.manifest.base: 1.0}))
    assert found <= max(average, live.loss(task.objective)) + 1e-6


def test_a_router_says_that_it_needs_classes(decoders: Library, texts: Inputs) -> None:
    from smatter.errors import InvalidSettings
    from smatter.route.encode import encode

    with pytest.raises(InvalidSettings, match="a router compares classes"):
        encode(LiveMixture(decoders), NextToken(texts))
