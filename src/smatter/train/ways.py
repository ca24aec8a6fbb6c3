"""Ways to fine-tune a checkpoint so that it mixes well with others that began where it began.

A way decides what is learnt, at which weights the loss is looked at, and what is kept in the end. Weights theta are
written as base plus delta, the base being those that a run begins with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import Parameter

Weights = Mapping[str, Tensor]


class Plain:
    """Descend on the loss at the weights themselves."""

    key: Mapping[str, object] = {}
    """Tells ways apart, for the state of a run."""

    def begin(self, parameters: Mapping[str, Parameter]) -> dict[str, Parameter]:
        """What the optimizer moves.

        Args:
            parameters: of the network, that may change.
        """
        self.parameters = dict(parameters)
        self.base = {name: parameter.detach().clone() for name, parameter in parameters.items()}
        return self.parameters

    @property
    def state(self) -> dict[str, Tensor]:
        """What else changes from step to step."""
        return {}

    def backward(self, loss: Callable[[], Tensor], generator: torch.Generator) -> Tensor:  # noqa: ARG002
        """The loss of a batch; gradients are where the optimizer looks for them."""
        value = loss()
        value.backward()
        return value.detach()

    def stepped(self, rate: float, done: float) -> None:
        """Called after each step.

        Args:
            rate: of the step.
            done: share of all steps.
        """

    def finish(self) -> None:
        """Leave in the network what is to be kept."""

    def _write(self, weights: Weights) -> None:
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(weights[name])


class Pulled(Plain):
    """Weights are pulled to the base at every step (L2-SP, Li and others, 2018), apart from the gradient.

    Args:
        strength: a step of rate r takes away this share times r of the delta.
    """

    def __init__(self, strength: float) -> None:
        self.strength = strength
        self.key = {"pulled": strength}

    def stepped(self, rate: float, done: float) -> None:  # noqa: ARG002
        """Pull."""
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.lerp_(self.base[name], min(1.0, rate * self.strength))


class Averaged(Plain):
    """What is kept is the mean of the weights along the last part of the run (Izmailov and others, 2018).

    Args:
        since: share of the steps before that part.
    """

    def __init__(self, since: float = 0.5) -> None:
        self.since = since
        self.key = {"averaged": since}

    def begin(self, parameters: Mapping[str, Parameter]) -> dict[str, Parameter]:
        """All parameters."""
        trained = super().begin(parameters)
        self.sums = {name: torch.zeros_like(tensor) for name, tensor in self.base.items()}
        self.count = torch.zeros(())
        return trained

    @property
    def state(self) -> dict[str, Tensor]:
        """The sums so far, and of how many."""
        return {f"sum.{name}": tensor for name, tensor in self.sums.items()} | {"count": self.count}

    def stepped(self, rate: float, done: float) -> None:  # noqa: ARG002
        """Count these weights in."""
        if done > self.since:
            self.count += 1
            for name, parameter in self.parameters.items():
                self.sums[name] += parameter.detach()

    def finish(self) -> None:
        """The mean."""
        self._write({name: tensor / self.count for name, tensor in self.sums.items()})


class Flat(Plain):
    """The gradient is taken where the loss is worst nearby (SAM, Foret and others, 2021); twice the passes.

    Args:
        radius: how far away that is.
    """

    def __init__(self, radius: float) -> None:
        self.radius = radius
        self.key = {"flat": radius}

    def backward(self, loss: Callable[[], Tensor], generator: torch.Generator) -> Tensor:
        """Two passes."""
        value = loss()
        uphill = torch.autograd.grad(value, list(self.parameters.values()))
        norm = torch.stack([each.norm() for each in uphill]).norm().clamp(min=1e-12)
        here = {name: each.detach().clone() for name, each in self.parameters.items()}
        self._write({name: here[name] + self.radius / norm * each for name, each in zip(here, uphill, strict=True)})
        super().backward(loss, generator)
        self._write(here)
        return value.detach()


class Mixed(Plain):
    """The loss is that of a random mixture with the base and with siblings, as the checkpoint will be used.

        theta = base + share * delta + (1 - share) * sum_s u_s delta_s

    The share is uniform; u is uniform on the simplex over the siblings and the base.

    Args:
        least: the smallest share.
        alone: share of the steps on which it is not mixed.
        siblings: weights of checkpoints that are already tuned; without any, it is mixed with the base alone.
        base: what it is mixed with; the weights that the run begins with, by default.
    """

    def __init__(
        self, least: float, alone: float = 0.0, siblings: Sequence[Weights] = (), base: Weights | None = None
    ) -> None:
        self.least, self.alone, self.siblings, self._base = least, alone, siblings, base
        self.key = {"mixed": least, "alone": alone, "siblings": len(siblings)}

    def begin(self, parameters: Mapping[str, Parameter]) -> dict[str, Parameter]:
        """All parameters."""
        trained = super().begin(parameters)
        if self._base is not None:
            self.base = {name: self._base[name].float() for name in self.base}
        self.deltas = [{name: each[name].float() - self.base[name] for name in self.base} for each in self.siblings]
        return trained

    def backward(self, loss: Callable[[], Tensor], generator: torch.Generator) -> Tensor:
        """The loss of a mixture; the gradient is in the delta."""
        chance, place = torch.rand(2, generator=generator).tolist()
        if chance < self.alone:
            return super().backward(loss, generator)
        share = self.least + (1 - self.least) * place
        parts = -torch.rand(len(self.deltas) + 1, generator=generator).clamp(min=1e-9).log()
        parts = ((1 - share) * parts / parts.sum()).tolist()
        here = {name: each.detach().clone() for name, each in self.parameters.items()}
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.lerp_(self.base[name], 1 - share)
                for part, delta in zip(parts, self.deltas, strict=False):  # the last part is the base's
                    parameter.add_(delta[name], alpha=part)
        value = super().backward(loss, generator)
        self._write(here)
        for each in self.parameters.values():
            if each.grad is not None:
                each.grad.mul_(share)
        return value


class Factored(Plain):
    """Every matrix changes by B A of a low rank (LoRA, Hu and others, 2022); nothing else changes.

    Args:
        rank: of the changes.
        seed: of A; B begins at zero.
    """

    def __init__(self, rank: int, seed: int = 0) -> None:
        self.rank, self.seed = rank, seed
        self.key = {"rank": rank}

    def begin(self, parameters: Mapping[str, Parameter]) -> dict[str, Parameter]:
        """The factors of each matrix."""
        super().begin(parameters)
        generator = torch.Generator().manual_seed(self.seed)
        self.factors = {}
        for name, parameter in parameters.items():
            if parameter.ndim == 2:
                n_rows, n_columns = parameter.shape
                first = torch.randn(self.rank, n_columns, generator=generator) / n_columns**0.5
                self.factors[f"{name}.a"] = Parameter(first)
                self.factors[f"{name}.b"] = Parameter(torch.zeros(n_rows, self.rank))
        return self.factors

    def _place(self) -> list[str]:
        names = [name.removesuffix(".a") for name in self.factors if name.endswith(".a")]
        with torch.no_grad():
            for name in names:
                self.parameters[name].copy_(self.base[name] + self.factors[f"{name}.b"] @ self.factors[f"{name}.a"])
        return names

    def backward(self, loss: Callable[[], Tensor], generator: torch.Generator) -> Tensor:
        """The gradient in the factors, by the chain rule from that in the matrices."""
        names = self._place()
        for each in self.parameters.values():
            each.grad = None
        value = super().backward(loss, generator)
        for name in names:
            gradient, left, right = self.parameters[name].grad, self.factors[f"{name}.b"], self.factors[f"{name}.a"]
            assert gradient is not None
            left.grad, right.grad = gradient @ right.detach().T, left.detach().T @ gradient
        return value

    def finish(self) -> None:
        """Base and change."""
        self._place()
