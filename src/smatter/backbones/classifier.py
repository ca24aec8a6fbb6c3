"""A checkpoint's own classification head, for tasks whose classes it was trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from smatter.backbones.gate import StrangersError, strangers_errors, transformers
from smatter.backbones.network import Inputs, Network, build_model, chunks, forward_pass, load_tensors, names_in_memory
from smatter.errors import InvalidSettings
from smatter.records import TensorSpec

if TYPE_CHECKING:
    from torch import Tensor

_REMEDY = "use the head 'prototype', 'ridge' or 'logistic'"


class Classifier:
    """A network with its own head, whose logits are those of some of its classes.

    Args:
        network: the backbone; only its config is used.
        tensors: of backbone and head, by name on disk.
        class_names: the classes wanted, by their names in the config's `id2label`.
    """

    def __init__(self, network: Network, tensors: Mapping[str, TensorSpec], class_names: Sequence[str]) -> None:
        import torch

        config: Any = network.model.config
        columns = {str(name): int(index) for index, name in dict(config.id2label).items()}
        unknown = [name for name in class_names if name not in columns]
        if unknown:
            raise InvalidSettings(
                f"the checkpoints' own head does not know the class {unknown[0][:80]!r} (id2label): {_REMEDY}"
            )
        if any(not 0 <= columns[name] < len(config.id2label) for name in class_names):
            raise InvalidSettings(
                f"the checkpoints' own head does not number its classes from zero (id2label): {_REMEDY}"
            )
        kind = "Image" if network.takes_images else "Sequence"
        try:
            with strangers_errors():
                family = getattr(transformers(), f"AutoModelFor{kind}Classification")
                model = build_model(family, config, tensors).eval()
        except StrangersError:  # a family without classifier, or a config of strangers
            raise InvalidSettings(f"{config.model_type!r} networks have no classification head: {_REMEDY}") from None
        if missing := names_in_memory(model, tensors).missing:
            raise InvalidSettings(f"the checkpoints have no classification head (no {missing[0]!r}): {_REMEDY}")
        padding = getattr(config, "pad_token_id", None)
        self._model, self._padding = model, padding if isinstance(padding, int) and padding >= 0 else None
        self._columns = torch.tensor([columns[name] for name in class_names])

    def use(self, tensors: Mapping[str, Tensor]) -> None:
        """Use these tensors of backbone and head, by name on disk; in float32."""
        load_tensors(self._model, {name: _float32(tensor) for name, tensor in tensors.items()})

    def logits(self, inputs: Inputs) -> Tensor:
        """The score of each wanted class for each row, (n, n_classes)."""
        import torch

        if "attention_mask" not in inputs:
            parts = list(chunks(inputs))
        elif self._padding is None:  # a decoder's head then takes whatever is last
            lengths = inputs["attention_mask"].sum(dim=1).tolist()
            rows = zip(chunks(inputs, 1), lengths, strict=True)
            parts = [{name: tensor[:, :length] for name, tensor in row.items()} for row, length in rows]
        else:
            padded = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, self._padding)
            parts = list(chunks({**inputs, "input_ids": padded}))
        with torch.no_grad():
            return torch.cat([forward_pass(self._model, part).logits for part in parts])[:, self._columns]


def _float32(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor
