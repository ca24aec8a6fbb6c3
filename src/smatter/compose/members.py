"""Members: further networks of a task, whose scores are averaged with those of its own network.

    scores(x) = (1 - sum_k v_k) f_0(x) + sum_k v_k f_k(x)

The softmax of averaged scores is a log-pool of the networks' probabilities. A member is a whole network, or a branch:
up to some module it has the weights of the task's own network, and others from there on (multi-source paper, section
11).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smatter.compose.head import ClassHead
from smatter.compose.mixture import Mixture
from smatter.errors import InvalidRecipe

MAX_MEMBERS = 1_000


@dataclass(frozen=True)
class Member:
    """A further network of a task.

    Args:
        weight: v, of its scores.
        mixture: weights of the sources, one row.
        modules: those in which it differs from the task's own network; all by default.
        coefficients: W of its head, (n_classes, n_features), float32; the classes have the rows of the own head.
        constants: b of its head, (n_classes,), float32; zero without them.
    """

    weight: float
    mixture: Mixture
    modules: tuple[str, ...] = ()
    coefficients: NDArray[np.float32] | None = None
    constants: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        if not 0 < self.weight < 1:
            raise InvalidRecipe(f"a member has the weight {self.weight:g}: give a share between 0 and 1")
        if self.mixture.modules or self.mixture.rule != "simplex":
            raise InvalidRecipe("a member has one row of weights on the simplex: give it one")

    def check_head(self, own: ClassHead | None) -> None:
        """Refuse a head that is not like that of the task's own network."""
        shape = None if own is None or own.weight is None else own.weight.shape
        if (self.coefficients is None) != (shape is None) or (self.constants is not None and shape is None):
            raise InvalidRecipe("its own network and its members have heads with coefficients, or none of them has")
        for array, wanted in ((self.coefficients, shape), (self.constants, shape and shape[:1])):
            if array is not None and (array.dtype != np.float32 or array.shape != wanted):
                raise InvalidRecipe("the head of a member is of another shape than that of its own network")
            if array is not None and not np.isfinite(array).all():
                raise InvalidRecipe("the head of a member has NaN or Inf")


def branched(trunk: Mixture, modules: Iterable[str], own: Collection[str], mixture: Mixture) -> Mixture:
    """The weights of a branch: those of its trunk, and its own in some modules.

    Args:
        trunk: weights of the task's own network.
        modules: names of all modules.
        own: those in which the branch differs.
        mixture: its weights there.
    """
    rows = {}
    for name in modules:
        of = mixture if name in own else trunk
        rows[name] = dict(zip(of.sources, of.row(name), strict=True))
    return Mixture.per_module(rows, trunk.rule)
