"""Prices of constraints in training, raised while they are broken (a Lagrangian)."""

from dataclasses import dataclass

from torch import Tensor


@dataclass
class Multipliers:
    """Prices of too many open units: one for each expert, raised while it is above its share (a Lagrangian).

    A price falls to zero at once where the share is kept, so that an expert which has paid once is not held down (dual
    restarts, Gallego-Posada and others, 2022).

    Args:
        values: the prices, (n_experts,).
        rate: how fast they rise.
    """

    values: Tensor
    rate: float = 0.05

    def penalty(self, shares: Tensor, allowed: float) -> Tensor:
        """What to add to the loss; the prices are constants in it."""
        return (self.values * (shares / allowed - 1)).sum()

    def update(self, shares: Tensor, allowed: float) -> None:
        """Raise or forget the prices after a step."""
        excess = shares.detach() / allowed - 1
        self.values.add_(self.rate * excess).mul_(excess > 0)
