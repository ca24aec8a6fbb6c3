"""From the outputs of linear predictors to losses: squared and logistic.

Outputs and targets are (n_tasks, n_outputs, n). Derivatives are per example, in the outputs.
"""

from typing import Protocol

from torch import Tensor
from torch.nn.functional import softplus


class Link(Protocol):
    """A convex loss of one example, in its outputs."""

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of each example, (n_tasks, n)."""
        ...

    def slopes(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Its first derivatives, shaped as the outputs."""
        ...

    def bend(self, jacobian: Tensor, outputs: Tensor) -> Tensor:
        """Second derivatives times a change of the outputs, (n_tasks, k, n_outputs, n) as the change itself."""
        ...


class Squared:
    """1/2 (output - target)^2, summed over outputs."""

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of each example."""
        return 0.5 * (outputs - targets).square().sum(dim=1)

    def slopes(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Output minus target."""
        return outputs - targets

    def bend(self, jacobian: Tensor, outputs: Tensor) -> Tensor:  # noqa: ARG002
        """The change itself."""
        return jacobian


class Logistic:
    """Cross-entropy; one output is the log-odds of class one, several are the classes' logits."""

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of each example."""
        if outputs.shape[1] == 1:
            return (softplus(outputs) - targets * outputs).squeeze(1)
        return outputs.logsumexp(dim=1) - (targets * outputs).sum(dim=1)

    def slopes(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Probability minus target."""
        return self.probabilities(outputs) - targets

    def bend(self, jacobian: Tensor, outputs: Tensor) -> Tensor:
        """p (1 - p) times the change of one output; p_a (change_a - sum_b p_b change_b) of several."""
        probabilities = self.probabilities(outputs)[:, None]
        if outputs.shape[1] == 1:
            return probabilities * (1 - probabilities) * jacobian
        scaled = probabilities * jacobian
        return scaled - probabilities * scaled.sum(dim=2, keepdim=True)

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Of class one, or of every class."""
        return outputs.sigmoid() if outputs.shape[1] == 1 else outputs.softmax(dim=1)
