"""What a loss must offer to be minimised; the solver knows nothing else of it."""

from typing import NamedTuple, Protocol, Self, runtime_checkable

from torch import Tensor


class Evaluation(NamedTuple):
    """A loss and its gradient at one point, which most problems find together."""

    value: Tensor
    gradient: Tensor


class Expansion(NamedTuple):
    """A loss to second order at one point; the Hessian is (n_tasks, size, size) in the variable laid out flat."""

    value: Tensor
    gradient: Tensor
    hessian: Tensor


class Problem(Protocol):
    """A smooth function of one variable per task, for a batch of tasks.

    For mixtures the variable is w, (n_tasks, n_blocks, n_sources): each block's row lies on the simplex, and one
    block means one w for all modules. For residuals it is D, (n_tasks, d).

    A problem of a single task that is neither convex nor quadratic inherits all but the first two methods.
    """

    def evaluate(self, point: Tensor) -> Evaluation:
        """The loss of each task, (n_tasks,), and its gradient, shaped as the point (multi-source paper, eq. 5)."""
        ...

    def value(self, point: Tensor) -> Tensor:
        """The loss alone, for line searches."""
        ...

    @property
    def is_convex(self) -> bool:
        """Whether a gap bounds the distance from the minimum."""
        return False

    @property
    def is_quadratic(self) -> bool:
        """Whether the Hessian is the same everywhere, so that `hessian_product` may be asked."""
        return False

    def hessian_product(self, direction: Tensor) -> Tensor:  # noqa: ARG002
        """The Hessian times a direction, shaped as the direction; for quadratic losses."""
        raise TypeError(f"{type(self).__name__} is not quadratic: ask `is_quadratic` first")

    def select(self, tasks: Tensor) -> Self:  # noqa: ARG002
        """The same problem for some of its tasks, by index."""
        return self


@runtime_checkable
class CurvedProblem(Problem, Protocol):
    """A convex problem that knows its Hessian, for second-order steps."""

    def expand(self, point: Tensor) -> Expansion:
        """The loss of each task with its gradient and Hessian, which share most of their work."""
        ...
