"""The slices of a module that a gate switches: attention heads, groups of MLP neurons, pointwise channels.

A group is what computes some hidden units and what reads them: the rows of the projections into them, with biases,
and the columns of the projection out of them. Nothing outside a group sees its units, so that two groups of equal
size can change places without changing the network. Norms, embeddings and output biases are in no group.

Known from names on disk, shapes and config.json alone. Adding an architecture means adding its names to `PARTS`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

from smatter.backbones.modules import FAMILY_OF
from smatter.errors import IncompatibleSource
from smatter.records import Partition, TensorSpec

Kind = Literal["head", "neurons", "channels"]

GROUP_SIZE = 16
"""Neurons or channels of a group."""


@dataclass(frozen=True)
class Slice:
    """Positions `start` to `stop` of one axis of a tensor, and all of its other axes."""

    tensor: str
    axis: int
    start: int
    stop: int

    @property
    def index(self) -> tuple[slice, ...]:
        """What cuts it out of an array: `array[part.index]`."""
        return (*(slice(None) for _ in range(self.axis)), slice(self.start, self.stop))


@dataclass(frozen=True)
class Group:
    """Slices that are switched together.

    Args:
        kind: a head is one of keys and values, with all heads of queries that use it.
        slices: disjoint; a fused tensor has several.
    """

    kind: Kind
    slices: tuple[Slice, ...]


@dataclass(frozen=True)
class Part:
    """How the groups of a layer lie in one of its tensors.

    Args:
        name: matches the tensor's whole name after the layer's own.
        kind: what is cut.
        axis: where they lie side by side.
        sections: what is glued together along the axis; each section is cut apart. One by default.
    """

    name: re.Pattern[str]
    kind: Kind
    axis: int
    sections: Literal["one", "gate and up", "queries, keys, values"] = "one"


def _into(kind: Kind, names: str, axis: int = 0, sections: Any = "one") -> tuple[Part, Part]:
    """Projections into the units: outputs of the weight, and the bias."""
    weight, bias = re.compile(rf"(?:{names})\.weight"), re.compile(rf"(?:{names})\.bias")
    return Part(weight, kind, axis, sections), Part(bias, kind, 0, sections)


def _out_of(kind: Kind, names: str, axis: int = 1) -> tuple[Part]:
    """The projection out of the units: inputs of the weight; its bias is everybody's."""
    return (Part(re.compile(rf"(?:{names})\.weight"), kind, axis),)


_LLAMA = (
    *_into("head", r"self_attn\.[qkv]_proj"),
    *_into("head", r"self_attn\.qkv_proj", sections="queries, keys, values"),
    *_out_of("head", r"self_attn\.o_proj"),
    *_into("neurons", r"mlp\.(?:gate|up)_proj"),
    *_into("neurons", r"mlp\.gate_up_proj", sections="gate and up"),
    *_out_of("neurons", r"mlp\.down_proj"),
)
# Their norms of queries and keys go over all heads; elsewhere all heads share one of the length of a head.
_OLMO = (*_LLAMA, *_into("head", r"self_attn\.[qk]_norm"))

PARTS: dict[str, tuple[Part, ...]] = {
    "bert": (
        *_into(
            "head",
            r"attention\.self\.(?:query|key|value|in_proj|(?:query|key|value|pos|pos_q|pos_key|pos_query)_proj)"
            r"|attention\.[qkv]_lin|attention\.attn\.[qkv]",
        ),
        Part(re.compile(r"attention\.self\.[qv]_bias"), "head", 0),
        *_out_of("head", r"attention\.output\.dense|attention\.out_lin|attention\.attn\.o"),
        *_into("neurons", r"intermediate\.dense|ffn\.lin1"),
        *_out_of("neurons", r"output\.dense|ffn\.lin2"),
    ),
    "vit": (
        *_into("head", r"attention\.attention\.(?:query|key|value)|attention\.[qkv]_proj"),
        Part(re.compile(r"(?:attention\.attention\.)?relative_position_bias\.relative_position_bias_table"), "head", 1),
        *_out_of("head", r"attention\.output\.dense|attention\.o_proj"),
        *_into("neurons", r"intermediate\.dense|mlp\.fc1|mlp\.(?:gate|up)_proj"),
        *_into("neurons", r"mlp\.weights_in", sections="gate and up"),
        *_out_of("neurons", r"output\.dense|mlp\.fc2|mlp\.down_proj|mlp\.weights_out"),
    ),
    "convnext": (
        *_into("channels", r"pwconv1"),
        Part(re.compile(r"grn\.(?:weight|bias)"), "channels", 3),
        *_out_of("channels", r"pwconv2"),
    ),
    "llama": _LLAMA,
    "llama with norms on both sides": _LLAMA,
    "olmo2": _OLMO,
    "olmo3": _OLMO,
    # Fused, but a head's queries, keys and values follow each other: cutting it evenly cuts heads.
    "gpt_neox": (
        *_into("head", r"attention\.query_key_value"),
        *_out_of("head", r"attention\.dense"),
        *_into("neurons", r"mlp\.dense_h_to_4h"),
        *_out_of("neurons", r"mlp\.dense_4h_to_h"),
    ),
    # Weights of GPT-2 are stored with inputs first.
    "gpt2": (
        *_into("head", r"attn\.c_attn", axis=1, sections="queries, keys, values"),
        *_out_of("head", r"attn\.c_proj", axis=0),
        *_into("neurons", r"mlp\.c_fc", axis=1),
        *_out_of("neurons", r"mlp\.c_proj", axis=0),
    ),
    "gpt_neo": (
        *_into("head", r"attn\.attention\.[qkv]_proj"),
        *_out_of("head", r"attn\.attention\.out_proj"),
        *_into("neurons", r"mlp\.c_fc"),
        *_out_of("neurons", r"mlp\.c_proj"),
    ),
}
"""The parts of each family of `smatter.backbones.modules`, or of one `model_type` that differs from its family."""

_IN_LAYER = re.compile(r"(.*?\b(?:layers?|h)\.\d+)\.(.+)")
_REMEDY = "copy the checkpoint's own config.json"
_N_HEADS = ("num_attention_heads", "n_heads", "n_head", "num_heads")


def find_groups(
    specs: Mapping[str, TensorSpec], config: Mapping[str, Any], partition: Partition, size: int = GROUP_SIZE
) -> dict[str, tuple[Group, ...]]:
    """The groups of every module that has any, in order of layers and of units.

    Args:
        specs: tensors by name on disk.
        config: the content of config.json; of a `model_type` that is not known, no module has groups.
        partition: the modules. A group never leaves its module: where a pattern has put projections of one layer into
            several modules, each has the slices of its own tensors.
        size: neurons or channels of a group; the last of a layer may be smaller.

    >>> specs = {"h.0.mlp.c_fc.weight": TensorSpec("F32", (8, 32)), "h.0.mlp.c_proj.weight": TensorSpec("F32", (32, 8))}
    >>> config = {"model_type": "gpt2", "n_head": 2}
    >>> for group in find_groups(specs, config, Partition({"h.0.mlp": tuple(specs)}))["h.0.mlp"]:
    ...     print([(part.axis, part.start, part.stop) for part in group.slices])
    [(1, 0, 16), (0, 0, 16)]
    [(1, 16, 32), (0, 16, 32)]
    """
    if size < 1:
        raise ValueError(f"groups of {size} units: give at least 1")
    model_type = str(config.get("model_type"))
    parts = PARTS.get(model_type) or PARTS.get(FAMILY_OF.get(model_type, ""), ())
    result: dict[str, tuple[Group, ...]] = {}
    for module, tensors in partition.modules.items():
        members: dict[tuple[str, Kind], list[tuple[str, Part]]] = {}
        for tensor in tensors:
            if found := _part(tensor, parts):
                layer, part = found
                members.setdefault((layer, part.kind), []).append((tensor, part))
        groups = [group for (_, kind), cut in members.items() for group in _groups(kind, cut, specs, config, size)]
        if groups:
            result[module] = tuple(groups)
    return result


def _part(tensor: str, parts: tuple[Part, ...]) -> tuple[str, Part] | None:
    """The layer that a tensor is in and what part of it, if it is one."""
    match = _IN_LAYER.fullmatch(tensor)
    return next(((match[1], part) for part in parts if part.name.fullmatch(match[2])), None) if match else None


def _groups(
    kind: Kind, members: list[tuple[str, Part]], specs: Mapping[str, TensorSpec], config: Mapping[str, Any], size: int
) -> list[Group]:
    """Cut the tensors of one layer into groups."""
    n_queries, n_heads = _n_heads(config) if kind == "head" else (1, 1)
    widths = {"one": (1,), "gate and up": (1, 1), "queries, keys, values": (n_queries, n_heads, n_heads)}
    sections = [
        (tensor, part.axis, start, length)
        for tensor, part in members
        for start, length in _sections(tensor, specs[tensor].shape, part.axis, widths[part.sections])
    ]
    n_units, step = (n_heads, 1) if kind == "head" else (min(length for *_, length in sections), size)
    for tensor, _, _, length in sections:
        if length % n_units:
            raise IncompatibleSource(f"{tensor!r} cannot be cut into {n_units} {kind} parts: {_REMEDY}")
    groups = []
    for first in range(0, n_units, step):
        last = min(first + step, n_units)
        slices = (
            Slice(tensor, axis, start + first * length // n_units, start + last * length // n_units)
            for tensor, axis, start, length in sections
        )
        groups.append(Group(kind, tuple(slices)))
    return groups


def _sections(tensor: str, shape: tuple[int, ...], axis: int, widths: tuple[int, ...]) -> list[tuple[int, int]]:
    """Start and length of what is glued together along an axis; `widths` are in proportion."""
    total = shape[axis] if axis < len(shape) else 0
    unit, rest = divmod(total, sum(widths))
    if not total or rest:
        raise IncompatibleSource(f"{tensor!r} of shape {list(shape)} does not fit config.json: {_REMEDY}")
    ends = accumulate(unit * width for width in widths)
    return [(end - unit * width, unit * width) for end, width in zip(ends, widths, strict=True)]


def _n_heads(config: Mapping[str, Any]) -> tuple[int, int]:
    """Heads of queries, and of keys and values."""
    n_queries: Any = next((config[name] for name in _N_HEADS if name in config), None)
    n_heads: Any = config.get("num_key_value_heads") or n_queries
    are_numbers = isinstance(n_queries, int) and isinstance(n_heads, int)
    if are_numbers and 0 < n_heads <= n_queries and n_queries % n_heads == 0:
        return n_queries, n_heads
    raise IncompatibleSource(f"config.json does not give a possible number of attention heads: {_REMEDY}")
