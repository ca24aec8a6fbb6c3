"""What every runtime offers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from smatter.backbones.network import Inputs
from smatter.compose.recipe import Recipe

if TYPE_CHECKING:
    from torch import Tensor


class Runtime(Protocol):
    """Serves tasks, each a recipe of one library. Safe to use from several threads."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks that are loaded."""
        ...

    def load(self, task: str, recipe: Recipe) -> None:
        """Serve a task from now on; one of that name is replaced at once, and batches under way keep the old one."""
        ...

    def unload(self, task: str) -> None:
        """Forget a task; batches under way still have it."""
        ...

    def n_bytes(self, task: str) -> int:
        """Memory that a task takes beside what all share."""
        ...

    def prepare(self, examples: Sequence[Any] | Tensor) -> Inputs:
        """Pictures (or their paths), texts, or a prepared tensor as inputs."""
        ...

    def features(self, inputs: Inputs, tasks: Sequence[str]) -> Tensor:
        """Features of rows, (n, d), in the order given.

        Args:
            inputs: of all rows.
            tasks: name of each row's task.
        """
        ...
