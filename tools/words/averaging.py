"""A network of mixed weights as its sources tell it, so that a router can learn from many tasks in little time."""

import torch
from remembering import Remembering
from torch import Tensor

from smatter.backbones.network import Inputs
from smatter.compose.mixture import Mixture
from smatter.live.objectives import Objective


class Averaging(Remembering):
    """A network whose features are taken to be the weighted mean of its sources' features.

    To first order in what sources have learnt since they left their base, mixed weights give mixed features. So every
    text is passed through each source once, and a step of training needs no pass and no gradient of a network. Weights
    are for the whole network, not per module.

    Args:
        library: of texts.
    """

    def features(self, inputs: Inputs) -> Tensor:
        """Mean features of each row, (n, d)."""
        return torch.tensordot(self._weights, self._each(inputs), 1)

    def backward(self, objective: Objective) -> float:
        """The loss, and its slope in the weight of each source of the mixture."""
        weights = self._weights.requires_grad_()
        loss = objective.losses(torch.tensordot(weights, self._each(objective.inputs), 1)).mean()
        (slopes,) = torch.autograd.grad(loss, weights)
        self._slopes = dict(zip(self.wanted.sources, slopes.tolist(), strict=True))
        return float(loss.detach())

    def inner_products(self, sources: tuple[str, ...]) -> Tensor:
        """The slope in each weight, (n_modules, n_sources), all of it in the first module's row."""
        result = torch.zeros(len(self.library.partition.modules), len(sources), dtype=torch.float64)
        result[0] = torch.tensor([self._slopes[name] for name in sources])
        return result

    @property
    def _weights(self) -> Tensor:
        (row,) = self.wanted.rows
        return torch.tensor(row)

    def _each(self, inputs: Inputs) -> Tensor:
        """Features by each source of the mixture, (n_sources, n, d)."""
        mixture, found = self.wanted, []
        for name in mixture.sources:
            self.wanted = Mixture.of({name: 1.0})
            found.append(super().features(inputs))
        self.wanted = mixture
        return torch.stack(found)
