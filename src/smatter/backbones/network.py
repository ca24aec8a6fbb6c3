"""A live Hugging Face backbone: tensors put into it by their name on disk, and prepared inputs to features.

Transformers renames tensors between model.safetensors and the live model, and adds or removes the prefix of the
base model (`vit.`). Manifests and recipes know names on disk only; this is the one place that translates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from smatter.backbones.configs import checked_settings, supported_type
from smatter.backbones.gate import StrangersError, strangers_errors, transformers
from smatter.backbones.images import picture_size
from smatter.errors import IncompatibleSource
from smatter.records import TensorSpec

if TYPE_CHECKING:
    import torch
    from torch import Tensor

CHUNK = 64
"""Rows of one forward pass; more are passed through in turn, so that activations stay bounded."""

MEMORY_MULTIPLE = 2
SMALL_MEMORY = 64_000_000
"""A network may take twice the memory of the checkpoint's tensors in float32 and 64 MB: masks and a fresh pooler."""

PIXELS_AT_ONCE = CHUNK * 384 * 384
"""Pixels of one forward pass: of pictures that are larger than usual, fewer are passed through at a time."""

Inputs = dict[str, "Tensor"]
"""Arguments of the model's forward pass, each with a row per input."""


class Network:
    """A backbone without head, in float32 and evaluation mode, made from its config alone.

    Args:
        config: the content of config.json. Code that it names is never run and nothing is downloaded: see `configs`.
        tensors: what the checkpoint holds, by name on disk. A network that does not fit them is refused before memory
            is taken for it. None for a config that is trusted, of a network that starts at random.
    """

    def __init__(self, config: Mapping[str, Any], tensors: Mapping[str, TensorSpec] | None = None) -> None:
        model_type = supported_type(config)
        settings = checked_settings(config, None if tensors is None else len(tensors))
        try:
            with strangers_errors():
                parsed = transformers().AutoConfig.for_model(model_type, **settings)
                model = build_model(transformers().AutoModel, parsed, tensors)
        except StrangersError as reason:
            raise IncompatibleSource(
                f"no backbone of type {model_type!r} can be built from the base's config.json ({reason}): "
                "copy the config.json that belongs to the base"
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
            height, width = (length, length) if length else picture_size(config)
            shape = (n_rows, config.get("num_channels", 3), height, width)
            return {"pixel_values": torch.randn(shape, generator=generator).to(next(self.model.parameters()).dtype)}
        n_tokens = int(config["vocab_size"])
        tokens = torch.randint(min(1, n_tokens - 1), n_tokens, (n_rows, length or 32), generator=generator)
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
        output = forward_pass(self.model, inputs)
        hidden: Tensor = output.last_hidden_state
        if hidden.ndim == 4:
            pooled = getattr(output, "pooler_output", None)
            return (hidden.mean(dim=(2, 3)) if pooled is None else pooled).flatten(1)
        if "attention_mask" not in inputs:
            return hidden.mean(dim=1)
        mask = inputs["attention_mask"].to(hidden.dtype).unsqueeze(-1)
        return (hidden * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)


def build_model(family: Any, config: Any, tensors: Mapping[str, TensorSpec] | None) -> Any:
    """A model in float32; one that would not fit the tensors is refused before it takes memory.

    Args:
        family: one of the Auto classes of transformers.
        config: made of what `checked_settings` lets pass, hence with the attention that transformers chooses itself.
        tensors: what the checkpoint holds, by name on disk; None where it is not to be compared.
    """
    import torch

    def make() -> Any:
        # What the checkpoint does not fill, such as an unused pooler, starts alike every time.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return family.from_config(config, dtype=torch.float32, trust_remote_code=False)

    if tensors is not None:
        with torch.device("meta"):  # shapes only
            _check_fits(make(), tensors)
    return make()


def forward_pass(model: torch.nn.Module, inputs: Inputs) -> Any:
    """A forward pass; that the settings of a stranger's network do not go together may show only here."""
    try:
        with strangers_errors():
            return model(**inputs)
    except StrangersError as error:
        raise IncompatibleSource(
            f"the network that the base's config.json describes does not run ({error}): copy the config.json and the "
            "preprocessor_config.json that belong to the base"
        ) from error


def _check_fits(model: torch.nn.Module, tensors: Mapping[str, TensorSpec]) -> None:
    """Refuse a model of other shapes than the tensors have, or of much more memory than they need."""
    present, memory = model.state_dict(), names_in_memory(model, tensors).memory
    for disk, name in memory.items():
        _check_shape(model, disk, tensors[disk].shape, present[name].shape)
    if not memory:
        raise IncompatibleSource(
            f"no tensor of the checkpoint is one of {type(model).__name__}: copy the config.json that belongs to it"
        )
    wanted = sum(each.numel() * each.element_size() for each in chain(model.parameters(), model.buffers()))
    if wanted > (limit := MEMORY_MULTIPLE * 4 * sum(spec.n_elements for spec in tensors.values()) + SMALL_MEMORY):
        raise IncompatibleSource(
            f"the base's config.json asks for {wanted / 1e6:.0f} MB of memory, more than {limit / 1e6:.0f} MB for "
            "tensors like its own: copy the config.json that belongs to the base"
        )


def _check_shape(model: torch.nn.Module, disk: str, given: Sequence[int], wanted: Sequence[int]) -> None:
    if tuple(given) != tuple(wanted):
        raise IncompatibleSource(
            f"{disk!r} has shape {list(given)} but {type(model).__name__} has {list(wanted)[:8]}: "
            "build the model from the checkpoint's own config.json"
        )


def rows_at_once(height: int, width: int) -> int:
    """How many pictures of this size are in memory at a time, to be prepared or passed through."""
    return max(1, min(CHUNK, PIXELS_AT_ONCE // max(1, height * width)))


def chunks(inputs: Inputs, size: int = CHUNK) -> Iterator[Inputs]:
    """Cut inputs into parts of `size` rows, or fewer where they are large pictures; the last may be shorter."""
    first = next(iter(inputs.values()))
    if first.ndim == 4:
        size = min(size, rows_at_once(first.shape[2], first.shape[3]))
    for start in range(0, len(first), size):
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
        _check_shape(model, disk, tensor.shape, present[name].shape)
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
    if not isinstance(model, transformers().PreTrainedModel):
        return {name: name for name in names_on_disk}
    loading = transformers("core_model_loading")
    conversions = transformers("conversion_mapping").get_model_conversion_mapping(model)
    renamings = [conversion for conversion in conversions if isinstance(conversion, loading.WeightRenaming)]
    converters = [conversion for conversion in conversions if isinstance(conversion, loading.WeightConverter)]
    renamed: dict[str, str] = {}
    # Some renamings depend on the names seen before; this is the order of from_pretrained.
    for disk in sorted(names_on_disk, key=loading.dot_natural_key):
        name, converter = loading.rename_source_key(disk, renamings, converters, model.base_model_prefix, present)
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
    if not isinstance(model, transformers().PreTrainedModel):
        return False
    has_head = model.base_model is not model
    return "pooler" in name.split(".") or (has_head and not name.startswith(f"{model.base_model_prefix}."))
