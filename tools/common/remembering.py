"""A network for many tasks that share their texts, and for many models of one task."""

import torch
from torch import Tensor

from smatter.backbones.network import Inputs
from smatter.compose.mixture import Mixture
from smatter.compose.recipe import Recipe
from smatter.compose.residual import Residual
from smatter.library.library import Library
from smatter.live.mixture import LiveMixture
from smatter.live.objectives import Objective

AT_ONCE = 16
"""Texts, so that those of a pass are about as long."""


class Remembering(LiveMixture):
    """A network that passes no text twice at the same weights, and composes none that it passes nothing through.

    Args:
        library: of texts.
    """

    waits = False
    """Whether weights wait for a text to pass; the first do not."""

    def __init__(self, library: Library) -> None:
        super().__init__(library)
        self.waits = True
        self.known: dict[Mixture, dict[bytes, Tensor]] = {}

    def compose(self, what: Mixture | Recipe, residual: Residual | None = None) -> None:
        """The weights that the next text is to be passed with; a mixture and nothing else."""
        if residual is not None or (isinstance(what, Recipe) and (what.residual or what.experts)):
            raise ValueError("features are remembered by mixture: there is no room for residuals")
        self.wanted = what.mixture if isinstance(what, Recipe) else what
        if not self.waits:
            super().compose(self.wanted)

    def read(self, objective: Objective, inputs: Inputs | None = None) -> Tensor:
        """Features, which is what objectives of classes read."""
        return self.features(objective.inputs if inputs is None else inputs)

    def features(self, inputs: Inputs) -> Tensor:
        """Features of each row, remembered or passed; short texts are passed together."""
        lengths = inputs["attention_mask"].sum(dim=1).tolist()
        keys = [ids[:length].numpy().tobytes() for ids, length in zip(inputs["input_ids"], lengths, strict=True)]
        known = self.known.setdefault(self.wanted, {})
        new = sorted({key: row for row, key in enumerate(keys) if key not in known}.values(), key=lengths.__getitem__)
        if new:
            super().compose(self.wanted)
        for start in range(0, len(new), AT_ONCE):
            rows = new[start : start + AT_ONCE]
            part = {name: tensor[rows, : lengths[rows[-1]]] for name, tensor in inputs.items()}
            known |= zip([keys[row] for row in rows], super().features(part), strict=True)
        return torch.stack([known[key] for key in keys])

    def backward(self, objective: Objective) -> float:
        """The loss and its gradient at the weights that were asked for."""
        super().compose(self.wanted)
        return super().backward(objective)
