"""The slices of a module that a gate switches: attention heads, groups of MLP neurons, pointwise channels.

A group is what computes some hidden units and what reads them: the rows of the projections into them, with biases,
and the columns of the projection out of them. Nothing outside a group sees its units, so that two groups of equal
size can change places without changing the network. Norms, embeddings and output biases are in no group.

Known from names on disk, shapes and config.json alone. Adding an architecture means adding its names to `PARTS`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
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
        kind: what is cut.
        names: matches the tensor's whole name after the layer's own, or that of an operator.
        axis: where they lie side by side.
        sections: what is glued together along the axis; each section is cut apart. One by default.
        role: a tensor; or an operator into the units, whose outputs are cut, those of its weight along the axis and its
            bias along the only one; or out of the units, whose inputs are cut, while its bias is everybody's.
    """

    kind: Kind
    names: str
    axis: int
    sections: Literal["one", "gate and up", "queries, keys, values"] = "one"
    role: Literal["tensor", "into", "out of"] = "tensor"


_LLAMA = (
    Part("head", r"self_attn\.[qkv]_proj", 0, role="into"),
    Part("head", r"self_attn\.qkv_proj", 0, sections="queries, keys, values", role="into"),
    Part("head", r"self_attn\.o_proj", 1, role="out of"),
    Part("neurons", r"mlp\.(?:gate|up)_proj", 0, role="into"),
    Part("neurons", r"mlp\.gate_up_proj", 0, sections="gate and up", role="into"),
    Part("neurons", r"mlp\.down_proj", 1, role="out of"),
)
# Their norms of queries and keys go over all heads; elsewhere all heads share one of the length of a head.
_OLMO = (*_LLAMA, Part("head", r"self_attn\.[qk]_norm", 0, role="into"))

PARTS: dict[str, tuple[Part, ...]] = {
    "bert": (
        Part(
            "head",
            r"attention\.self\.(?:query|key|value|in_proj|(?:query|key|value|pos|pos_q|pos_key|pos_query)_proj)"
            r"|attention\.[qkv]_lin|attention\.attn\.[qkv]",
            0,
            role="into",
        ),
        Part("head", r"attention\.self\.[qv]_bias", 0),
        Part("head", r"attention\.output\.dense|attention\.out_lin|attention\.attn\.o", 1, role="out of"),
        Part("neurons", r"intermediate\.dense|ffn\.lin1", 0, role="into"),
        Part("neurons", r"output\.dense|ffn\.lin2", 1, role="out of"),
    ),
    "vit": (
        Part("head", r"attention\.attention\.(?:query|key|value)|attention\.[qkv]_proj", 0, role="into"),
        Part("head", r"(?:attention\.attention\.)?relative_position_bias\.relative_position_bias_table", 1),
        Part("head", r"attention\.output\.dense|attention\.o_proj", 1, role="out of"),
        Part("neurons", r"intermediate\.dense|mlp\.fc1|mlp\.(?:gate|up)_proj", 0, role="into"),
        Part("neurons", r"mlp\.weights_in", 0, sections="gate and up", role="into"),
        Part("neurons", r"output\.dense|mlp\.fc2|mlp\.down_proj|mlp\.weights_out", 1, role="out of"),
    ),
    "convnext": (
        Part("channels", r"pwconv1", 0, role="into"),
        Part("channels", r"grn\.(?:weight|bias)", 3),
        Part("channels", r"pwconv2", 1, role="out of"),
    ),
    "llama": _LLAMA,
    "llama with norms on both sides": _LLAMA,
    "olmo2": _OLMO,
    "olmo3": _OLMO,
    # Fused, but a head's queries, keys and values follow each other: cutting it evenly cuts heads.
    "gpt_neox": (
        Part("head", r"attention\.query_key_value", 0, role="into"),
        Part("head", r"attention\.dense", 1, role="out of"),
        Part("neurons", r"mlp\.dense_h_to_4h", 0, role="into"),
        Part("neurons", r"mlp\.dense_4h_to_h", 1, role="out of"),
    ),
    # Weights of GPT-2 are stored with inputs first.
    "gpt2": (
        Part("head", r"attn\.c_attn", 1, sections="queries, keys, values", role="into"),
        Part("head", r"attn\.c_proj", 0, role="out of"),
        Part("neurons", r"mlp\.c_fc", 1, role="into"),
        Part("neurons", r"mlp\.c_proj", 0, role="out of"),
    ),
    "gpt_neo": (
        Part("head", r"attn\.attention\.[qkv]_proj", 0, role="into"),
        Part("head", r"attn\.attention\.out_proj", 1, role="out of"),
        Part("neurons", r"mlp\.c_fc", 0, role="into"),
        Part("neurons", r"mlp\.c_proj", 1, role="out of"),
    ),
}
"""The parts of each family of `smatter.backbones.modules`, or of one `model_type` that differs from its family."""

_IN_LAYER = re.compile(r"(.*?\b(?:layers?|h)\.\d+)\.(.+)")
_SUFFIXES = {"tensor": "", "into": r"\.(?:weight|bias)", "out of": r"\.weight"}
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
            match = _IN_LAYER.fullmatch(tensor)
            for part in parts if match else ():
                if match and re.fullmatch(f"(?:{part.names}){_SUFFIXES[part.role]}", match[2]):
                    axis = 0 if part.role == "into" and tensor.endswith(".bias") else part.axis
                    members.setdefault((match[1], part.kind), []).append((tensor, replace(part, axis=axis)))
                    break
        groups = [group for (_, kind), cut in members.items() for group in _groups(kind, cut, specs, config, size)]
        if groups:
            result[module] = tuple(groups)
    return result


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
