"""A batch of linear tasks, what solving them gives, and the count of what it cost."""

from dataclasses import dataclass, field
from functools import cached_property

from torch import Tensor

from smatter.linear.loss import Loss
from smatter.linear.mixing import per_block
from smatter.solve.pattern import Pattern
from smatter.solve.problem import Evaluation
from smatter.solve.solution import Status


@dataclass(frozen=True)
class LinearTask:
    """A batch of tasks of the convex regime: theta = sum_r w_r theta_r + D.

    Args:
        loss: of theta.
        sources: coefficients of the sources, (n_tasks or 1, n_sources, n_parameters).
        pattern: how sparse D must be; None means no residual.
        alpha: D is pulled towards zero by alpha / 2 |D|^2, but for its free coordinates.
        weight_blocks: block number of each parameter, (n_parameters,), for weights per block; None for one w.
        free_alpha: the same pull on the free coordinates.
    """

    loss: Loss
    sources: Tensor
    pattern: Pattern | None = None
    alpha: float = 0.0
    weight_blocks: Tensor | None = None
    free_alpha: float = 0.0

    @cached_property
    def rows(self) -> Tensor:
        """The sources, cut into blocks where weights are per block."""
        return per_block(self.sources, self.weight_blocks)

    @cached_property
    def ridge(self) -> Tensor:
        """The ridge on each coordinate of the residual, (n_parameters,)."""
        ridge = self.rows.new_full((self.rows.shape[2],), self.alpha)
        free = None if self.pattern is None else self.pattern.free
        return ridge if free is None else ridge.masked_fill(free, self.free_alpha)

    @property
    def n_tasks(self) -> int:
        """Tasks in the batch."""
        probe = self.rows.new_zeros(1, self.loss.n_parameters)
        return max(len(self.rows), len(self.loss.value(probe)))

    @property
    def n_blocks(self) -> int:
        """Rows of weights."""
        return self.rows.shape[1] // self.sources.shape[1]

    def mixed(self, weights: Tensor) -> Tensor:
        """sum_r w_r theta_r, (n_tasks, n_parameters)."""
        if len(self.rows) == 1:
            return weights.flatten(1) @ self.rows[0]
        return (weights.flatten(1).unsqueeze(1) @ self.rows).squeeze(1)

    def value(self, weights: Tensor, residual: Tensor) -> Tensor:
        """The objective of the pair, (n_tasks,)."""
        return self.loss.value(self.mixed(weights) + residual) + 0.5 * (self.ridge * residual.square()).sum(dim=1)


@dataclass(frozen=True)
class PairSolution:
    """Weights and residuals of a batch of tasks.

    Args:
        weights: (n_tasks, n_blocks, n_sources).
        residual: (n_tasks, n_parameters).
        theta: the coefficients they make, (n_tasks, n_parameters).
        value: the objective, (n_tasks,).
        gap: duality gap of the weights for this residual: an upper bound on what better weights would gain.
        epsilon: an upper bound on what any better pair would gain; None where no bound is known.
        status: how each task ended.
        rounds: turns taken.
        gradient_evaluations: gradients of the batch that were computed.
        seconds: wall time, if a clock was given.
    """

    weights: Tensor
    residual: Tensor
    theta: Tensor
    value: Tensor
    gap: Tensor
    epsilon: Tensor | None
    status: tuple[Status, ...]
    rounds: int
    gradient_evaluations: int
    seconds: float | None = None


@dataclass
class Metered:
    """A loss that counts its gradients."""

    loss: Loss
    count: list[int] = field(default_factory=lambda: [0])

    @property
    def n_parameters(self) -> int:
        """Length of theta."""
        return self.loss.n_parameters

    @property
    def is_quadratic(self) -> bool:
        """Whether the Hessian is the same everywhere."""
        return self.loss.is_quadratic

    def evaluate(self, theta: Tensor) -> Evaluation:
        """Counted."""
        self.count[0] += 1
        return self.loss.evaluate(theta)

    def value(self, theta: Tensor) -> Tensor:
        """Not counted."""
        return self.loss.value(theta)

    def hessian_product(self, direction: Tensor) -> Tensor:
        """Counted: it costs what a gradient does."""
        self.count[0] += 1
        return self.loss.hessian_product(direction)

    def hessian_among(self, theta: Tensor, columns: Tensor, directions: Tensor | None = None) -> Tensor:
        """Counted: one scan of the examples."""
        self.count[0] += 1
        return self.loss.hessian_among(theta, columns, directions)

    def hessian_diagonal(self, theta: Tensor) -> Tensor:
        """Counted: one scan of the examples."""
        self.count[0] += 1
        return self.loss.hessian_diagonal(theta)

    def select(self, tasks: Tensor) -> "Metered":
        """The loss of some tasks, counted together."""
        return Metered(self.loss.select(tasks), self.count)
