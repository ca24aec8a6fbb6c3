"""Train a backbone by telling all classes apart: cosine logits, a smooth learning rate, exact resumption.

Every step's batch and variation depend on the seed and the step's number alone, so that a run that was stopped goes on
as if it had not been.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from smatter.backbones.heads import class_sums
from smatter.backbones.network import Inputs, Network
from smatter.errors import InvalidSettings
from smatter.train.examples import TrainingExamples
from smatter.train.pictures import Variation
from smatter.train.rates import rate_at
from smatter.train.state import keep, resume
from smatter.train.texts import Omission
from smatter.train.ways import Plain

SCALE = 16.0


@dataclass(frozen=True)
class TrainingSettings:
    """How a backbone is trained.

    Args:
        n_steps: batches.
        batch_size: examples in each.
        learning_rate: at its height; it rises over the first steps and falls to zero along half a cosine.
        weight_decay: of the matrices.
        warm_up: share of the steps in which the rate rises.
        smoothing: of the labels.
        imprint: begin with the classes' mean features as head, which lets a trained network go on where it is.
        seed: of the head, the batches and the variation.
        variation: of the examples, which says whether they are pictures or texts.
    """

    n_steps: int
    batch_size: int = 128
    learning_rate: float = 3e-3
    weight_decay: float = 0.05
    warm_up: float = 0.05
    smoothing: float = 0.1
    imprint: bool = False
    seed: int = 0
    variation: Variation | Omission = field(default_factory=Variation)

    def __post_init__(self) -> None:
        if min(self.n_steps, self.batch_size) < 1 or not self.learning_rate > 0:
            raise InvalidSettings("steps, batch and learning rate must be positive: mend the training settings")

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        return rate_at(step, self.learning_rate, self.n_steps, self.warm_up)


@dataclass(frozen=True)
class TrainingStep:
    """What one step saw.

    Args:
        number: counted from one.
        loss: of its batch.
        accuracy: share of the batch that was told right.
    """

    number: int
    loss: float
    accuracy: float


def train_backbone(
    network: Network,
    examples: TrainingExamples,
    settings: TrainingSettings,
    state: Path | None = None,
    save_every: int = 100,
    watch: Callable[[TrainingStep], None] = lambda _: None,
    frozen: Sequence[str] = (),
    way: Plain | None = None,
) -> None:
    """Train a network in place.

    Args:
        network: takes what the examples are.
        examples: pictures or texts to learn from.
        settings: how.
        state: a file for what is needed to go on after an interruption; nothing is kept without it. A file of the same
            settings that is there already is gone on from.
        save_every: steps between two writes of it.
        watch: told each step.
        frozen: how the names of parameters begin that stay as they are.
        way: what is learnt and where the loss is looked at; all parameters, at the weights themselves, by default.
    """
    if not isinstance(settings.variation, examples.variation):
        raise InvalidSettings(
            f"{type(settings.variation).__name__} does not vary these examples, {examples.variation.__name__} does: "
            "give that as the settings' variation"
        )
    network.model.requires_grad_(False)
    named = network.model.named_parameters()
    parameters = {name: parameter for name, parameter in named if not name.startswith(tuple(frozen))}
    for parameter in parameters.values():
        parameter.requires_grad_()
    head = torch.nn.Parameter(_first_head(network, examples, settings))
    way = way or Plain()
    trained = {**way.begin(parameters), "head": head}
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in trained.values() if p.ndim > 1], "weight_decay": settings.weight_decay},
            {"params": [p for p in trained.values() if p.ndim <= 1], "weight_decay": 0.0},
        ],
        lr=settings.learning_rate,
        betas=(0.9, 0.99),
    )
    told = {"frozen": list(frozen)} if frozen else {}
    key = json.dumps({**asdict(settings), **examples.key, **told, **way.key})
    kept = trained | way.state
    done = 0 if state is None else resume(state, key, kept, optimizer)
    for step in range(done, settings.n_steps):
        generator = torch.Generator().manual_seed(1_000_003 * settings.seed + step)
        for group in optimizer.param_groups:
            group["lr"] = settings.rate(step)
        drawn, labels = examples.draw(settings.batch_size, generator)
        inputs = examples.prepared(settings.variation(drawn, generator))
        batch = _Batch(network, head, inputs, labels, settings.smoothing)
        optimizer.zero_grad()
        loss = way.backward(batch.loss, generator)
        torch.nn.utils.clip_grad_norm_(trained.values(), 1.0)
        optimizer.step()
        way.stepped(settings.rate(step), (step + 1) / settings.n_steps)
        watch(TrainingStep(step + 1, float(loss), batch.accuracy))
        if state is not None and ((step + 1) % save_every == 0 or step + 1 == settings.n_steps):
            keep(state, key, step + 1, kept, optimizer)
    way.finish()
    for parameter in parameters.values():
        parameter.requires_grad_(False)


@dataclass
class _Batch:
    """Examples that were drawn, whose loss may be asked for at several weights."""

    network: Network
    head: Tensor
    inputs: Inputs
    labels: Tensor
    smoothing: float
    accuracy: float = 0.0

    def loss(self) -> Tensor:
        """At the network's weights as they are."""
        features = self.network.features(self.inputs)
        logits = SCALE * normalize(features, dim=1) @ normalize(self.head, dim=1).T
        self.accuracy = float((logits.detach().argmax(dim=1) == self.labels).float().mean())
        return cross_entropy(logits, self.labels, label_smoothing=self.smoothing)


def _first_head(network: Network, examples: TrainingExamples, settings: TrainingSettings) -> Tensor:
    """A direction for each class: random, or the mean of its features less the mean of all."""
    parts = examples.parts() if settings.imprint else islice(examples.parts(), 1)
    with torch.no_grad():
        features = torch.cat([network.features(examples.prepared(part)) for part in parts])
    if not settings.imprint:
        generator = torch.Generator().manual_seed(settings.seed)
        return torch.randn(examples.n_classes, features.shape[1], generator=generator)
    return class_sums(features - features.mean(dim=0), examples.labels, examples.n_classes)
