"""A live Hugging Face backbone: tensors put into it by their name on disk, and prepared inputs to features.

Transformers renames tensors between model.safetensors and the live model, and adds or removes the prefix of the
base model (`vit.`). Manifests and recipes know names on disk only; this is the one place that translates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from smatter.errors import IncompatibleSource

if TYPE_CHECKING:
    import torch
    from torch import Tensor

CHUNK = 64
"""Rows of one forward pass; more are passed through in turn, so that activations stay bounded."""

Inputs = dict[str, "Tensor"]
"""Arguments of the model's forward pass, each with a row per input."""


class Network:
    """A backbone without head, in float32 and evaluation mode, made from its config alone.

    Args:
        config: the content of config.json. Code that it names is never run and nothing is downloaded.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        import torch
        from transformers import AutoConfig, AutoModel

        model_type = config.get("model_type")
        if not isinstance(model_type, str):
            raise IncompatibleSource("the base has no config.json with a model_type: copy it to the base's folder")
        settings = {key: value for key, value in config.items() if key not in _IGNORED}
        try:
            parsed = AutoConfig.for_model(model_type, **settings)
            # What the checkpoint does not fill, such as an unused pooler, starts alike every time.
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                model = AutoModel.from_config(parsed, dtype=torch.float32, trust_remote_code=False)
        except Exception as error:  # configs of strangers raise whatever they like
            reason = " ".join(str(error).split())[:200]
            raise IncompatibleSource(
                f"no backbone of type {model_type[:80]!r} can be built from the base's config.json ({reason}): "
                "use a checkpoint that AutoModel loads"
            ) from None
        self.config: dict[str, Any] = parsed.to_dict()
        self.model: torch.nn.Module = model.eval()
        self.takes_images = getattr(model, "main_input_name", "input_ids") == "pixel_values"  # else tokens

    def random_inputs(self, n_rows: int, length: int | None = None) -> Inputs:
        """Rows of the right shape, whatever is in them.

        Args:
            n_rows: how many.
            length: tokens of a text, 32 by default, or the side of a picture, by default what the config says.
        """
        import torch

        generator, config = torch.Generator().manual_seed(0), self.config
        if self.takes_images:
            side = length or config.get("image_size") or 224
            height, width = (side, side) if isinstance(side, int) else side
            shape = (n_rows, config.get("num_channels", 3), height, width)
            return {"pixel_values": torch.randn(shape, generator=generator).to(next(self.model.parameters()).dtype)}
        tokens = torch.randint(1, int(config["vocab_size"]), (n_rows, length or 32), generator=generator)
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}

    @cached_property
    def n_features(self) -> int:
        """Numbers of one vector of features; takes a forward pass."""
        import torch

        with torch.no_grad():
            return int(self.features(self.random_inputs(1, None if self.takes_images else 1)).shape[1])

    def features(self, inputs: Inputs) -> Tensor:
        """One vector per row, (n, d), in one forward pass.

        Tokens are averaged over what the mask says is text; maps (n, c, h, w) give the model's own pooled output.
        """
        if "attention_mask" in inputs:  # columns on the right that are padding in every row cost time
            used = int(inputs["attention_mask"].any(dim=0).nonzero().max()) + 1
            inputs = {name: tensor[:, :used] for name, tensor in inputs.items()}
        output = self.model(**inputs)
        hidden: Tensor = output.last_hidden_state
        if hidden.ndim == 4:
            pooled = getattr(output, "pooler_output", None)
            return (hidden.mean(dim=(2, 3)) if pooled is None else pooled).flatten(1)
        if "attention_mask" not in inputs:
            return hidden.mean(dim=1)
        mask = inputs["attention_mask"].to(hidden.dtype).unsqueeze(-1)
        return (hidden * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)


_IGNORED = frozenset({"model_type", "auto_map", "torch_dtype", "dtype", "quantization_config", "architectures"})


def chunks(inputs: Inputs, size: int = CHUNK) -> Iterator[Inputs]:
    """Cut inputs into parts of `size` rows; the last may be shorter."""
    n_rows = len(next(iter(inputs.values())))
    for start in range(0, n_rows, size):
        yield {name: tensor[start : start + size] for name, tensor in inputs.items()}


@dataclass(frozen=True)
class NameMap:
    """Where the tensors of a checkpoint go in a model.

    Args:
        memory: name on disk -> name in the model's `state_dict`.
        unused: names on disk that the model has no place for, e.g. the head of another task.
        missing: names in the `state_dict` of a task head or pooler that the checkpoint does not fill: they keep
            the values the model has. Names tied to a filled one are not missing.
    """

    memory: Mapping[str, str]
    unused: tuple[str, ...]
    missing: tuple[str, ...]


def names_in_memory(model: torch.nn.Module, names_on_disk: Iterable[str]) -> NameMap:
    """Map names on disk to the names of a live model.

    A transformers model gets the names that `from_pretrained` would give; any other module is taken to be saved
    under its own names.

    Raises:
        IncompatibleSource: the backbone has a tensor that no name fills, two names fill the same one, or
            loading this architecture needs more than renaming.
    """
    present = model.state_dict()
    renamed = _rename(model, names_on_disk, present)
    memory: dict[str, str] = {}
    filled: dict[str, str] = {}
    for disk, name in renamed.items():
        if name not in present:
            continue
        if name in filled:
            raise IncompatibleSource(
                f"{filled[name]!r} and {disk!r} are both {name!r} in {type(model).__name__}: remove one of them"
            )
        filled[name] = disk
        memory[disk] = name
    aliases = _aliases(model)
    missing = tuple(name for name in present if filled.keys().isdisjoint(aliases.get(name, (name,))))
    needed = [name for name in missing if not _may_be_fresh(model, name)]
    if needed:
        others = f" and {len(needed) - 1} more" if len(needed) > 1 else ""
        raise IncompatibleSource(
            f"the checkpoint has no {needed[0]!r}{others}, which {type(model).__name__} needs: "
            "build the model from the checkpoint's own config.json"
        )
    return NameMap(memory, tuple(disk for disk in renamed if disk not in memory), missing)


def load_tensors(model: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> None:
    """Make a model use these tensors, by name on disk, without copying them.

    Writing to the tensors later changes the model. It takes over their dtype and device, keeps each parameter's
    `requires_grad`, keeps tied parameters tied and stays in training or evaluation mode as it was. Its parameters
    are new objects, so an optimizer must be made anew. Tensors the model has no place for are ignored, and a
    head or pooler that is not among the tensors stays: see `names_in_memory`.

    Raises:
        IncompatibleSource: as `names_in_memory`, or a shape differs, or tied parameters get different values. The
            model is then unchanged.
    """
    import torch

    present = model.state_dict()
    aliases = _aliases(model)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    state: dict[str, torch.Tensor] = {}
    for disk, name in names_in_memory(model, tensors).memory.items():
        tensor = tensors[disk]
        if tensor.shape != present[name].shape:
            raise IncompatibleSource(
                f"{disk!r} has shape {list(tensor.shape)} but {type(model).__name__} has "
                f"{list(present[name].shape)}: build the model from the checkpoint's own config.json"
            )
        if name in state and not torch.equal(state[name], tensor):
            raise IncompatibleSource(
                f"{disk!r} differs from the tensor that {type(model).__name__} ties it to: "
                "build the model with tie_word_embeddings=false in its config"
            )
        if name in parameters:
            tensor = torch.nn.Parameter(tensor, requires_grad=parameters[name].requires_grad)
        # One object under all its names is what keeps them tied.
        state |= dict.fromkeys(aliases[name], tensor)
    model.load_state_dict(state, strict=False, assign=True)


def _rename(model: torch.nn.Module, names_on_disk: Iterable[str], present: dict[str, torch.Tensor]) -> dict[str, str]:
    """Each name on disk and what it is called in memory, whether or not the model has it."""
    from transformers import PreTrainedModel

    if not isinstance(model, PreTrainedModel):
        return {name: name for name in names_on_disk}

    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import (
        WeightConverter,
        WeightRenaming,
        dot_natural_key,
        rename_source_key,
    )

    conversions = get_model_conversion_mapping(model)
    renamings = [conversion for conversion in conversions if isinstance(conversion, WeightRenaming)]
    converters = [conversion for conversion in conversions if isinstance(conversion, WeightConverter)]
    renamed: dict[str, str] = {}
    # Some renamings depend on the names seen before; this is the order of from_pretrained.
    for disk in sorted(names_on_disk, key=dot_natural_key):
        name, converter = rename_source_key(disk, renamings, converters, model.base_model_prefix, present)
        if name not in present and disk in present:
            name, converter = disk, None
        if converter is not None and name in present:
            raise IncompatibleSource(
                f"{type(model).__name__} merges, splits or reorders {disk!r} when it loads it, which Smatter does not: "
                "compose to a folder and load that with from_pretrained"
            )
        renamed[disk] = name
    return renamed


def _aliases(model: torch.nn.Module) -> dict[str, tuple[str, ...]]:
    """For each parameter and buffer, all names of the same object, its own among them."""
    named = dict(chain(model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)))
    names_of_object: dict[int, tuple[str, ...]] = {}
    for name, tensor in named.items():
        names_of_object[id(tensor)] = (*names_of_object.get(id(tensor), ()), name)
    return {name: names_of_object[id(tensor)] for name, tensor in named.items()}


def _may_be_fresh(model: torch.nn.Module, name: str) -> bool:
    """Whether a tensor belongs to a pooler, or to a task head on top of the base model."""
    from transformers import PreTrainedModel

    if not isinstance(model, PreTrainedModel):
        return False
    has_head = model.base_model is not model
    return "pooler" in name.split(".") or (has_head and not name.startswith(f"{model.base_model_prefix}."))
