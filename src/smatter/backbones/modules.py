"""Which tensors belong together: names on disk, grouped to the modules that get a weight of their own.

A family is a table of (expression, module) rules, tried in order. Adding an architecture means adding its
`model_type` to `FAMILY_OF`, and rules to `FAMILIES` only if its layers are named in a new way.
"""

import re
from collections.abc import Iterable

from smatter.errors import UnknownModule
from smatter.records import Partition

LONGEST_PATTERN = 500
"""Characters a user's pattern may have; anything longer is a file pasted by mistake."""

Rule = tuple[re.Pattern[str], str]
"""An expression matched at the start of a name, and the module's name in terms of its groups."""

_LAYER = r"(.*?\blayers?\.\d+)\."
_BLOCK = r"(.*?\bh\.\d+)\."
_OUTSIDE_LAYERS = r"(?:[A-Za-z_]\w*\.)*"

FAMILIES: dict[str, tuple[Rule, ...]] = {
    "bert": (
        (re.compile(rf"{_LAYER}(?:attention|sa_layer_norm)\b"), r"\1.attention"),
        (re.compile(rf"{_LAYER}(?:intermediate|output|ffn|output_layer_norm)\b"), r"\1.mlp"),
    ),
    "vit": (
        (re.compile(rf"{_LAYER}(?:attention|layernorm_before|norm1|layer_scale1|lambda_1)\b"), r"\1.attention"),
        (
            re.compile(rf"{_LAYER}(?:intermediate|output|mlp|layernorm_after|norm2|layer_scale2|lambda_2)\b"),
            r"\1.mlp",
        ),
    ),
    "convnext": ((re.compile(r"(.*?\bstages\.\d+\.(?:layers\.\d+|downsampling_layer))\."), r"\1"),),
    "llama": (
        (re.compile(rf"{_LAYER}(?:self_attn|input_layernorm)\b"), r"\1.self_attn"),
        (re.compile(rf"{_LAYER}(?:mlp|post_attention_layernorm)\b"), r"\1.mlp"),
    ),
    # Here the norm called post_attention follows the attention; elsewhere it precedes the MLP.
    "llama with norms on both sides": (
        (re.compile(rf"{_LAYER}(?:self_attn|input_layernorm|post_attention_layernorm)\b"), r"\1.self_attn"),
        (re.compile(rf"{_LAYER}(?:mlp|(?:pre|post)_feedforward_layernorm)\b"), r"\1.mlp"),
    ),
    "gpt_neox": (
        (re.compile(rf"{_LAYER}(?:attention|input_layernorm)\b"), r"\1.attention"),
        (re.compile(rf"{_LAYER}(?:mlp|post_attention_layernorm)\b"), r"\1.mlp"),
    ),
    "gpt2": (
        (re.compile(rf"{_BLOCK}(?:attn|ln_1)\b"), r"\1.attn"),
        (re.compile(rf"{_BLOCK}(?:mlp|ln_2)\b"), r"\1.mlp"),
    ),
}
"""Rules for the layers of each family."""

SHARED_RULES: tuple[Rule, ...] = (
    (
        re.compile(r"(?:cls|score|embed_out|qa_outputs|vocab_\w+|\w*classifier|\w*head|\w*predictions)\b"),
        "head",
    ),
    (
        re.compile(
            rf"{_OUTSIDE_LAYERS}(?:embeddings|embeddings_project|embed_tokens|embed_in|wte|wpe"
            r"|rel_embeddings|encoder\.LayerNorm|relative_attention_bias|relative_position_bias)\b"
        ),
        "embeddings",
    ),
    (re.compile(rf"{_OUTSIDE_LAYERS}pooler\b"), "pooler"),
    (re.compile(rf"{_OUTSIDE_LAYERS}(?:norm|layernorm|ln_f|final_layer_norm)\b"), "final_norm"),
)
"""Rules for what lies outside the layers, for every family."""

_MODEL_TYPES = {
    "bert": (
        "bert", "camembert", "deberta", "deberta-v2", "distilbert", "electra", "mpnet", "roberta", "xlm-roberta",
    ),
    "vit": ("beit", "deit", "dinov2", "dinov2_with_registers", "vit", "vit_mae", "vit_msn"),
    "convnext": ("convnext", "convnextv2"),
    "llama": ("gemma", "granite", "llama", "mistral", "olmo", "phi3", "qwen2", "qwen3", "smollm3"),
    "llama with norms on both sides": ("gemma2", "gemma3_text", "olmo2", "olmo3"),
    "gpt_neox": ("gpt_neox",),
    "gpt2": ("gpt2", "gpt_neo"),
}  # fmt: skip

FAMILY_OF: dict[str, str] = {
    model_type: family for family, model_types in _MODEL_TYPES.items() for model_type in model_types
}
"""The family of each known `model_type`, as config.json spells it."""

_PATTERN_EXAMPLE = r"'(blocks\.\d+)\.'"
_FIRST_NUMBER = re.compile(r"((?:[^.]+\.)*?\d+)\.")


def partition(tensors: Iterable[str], model_type: str | None, pattern: str | None = None) -> Partition:
    """Group the tensors of a checkpoint to modules.

    Args:
        tensors: names on disk, in any order.
        model_type: the entry of config.json; one that `FAMILY_OF` does not list, or None, groups each name by
            its part up to the first number (`blocks.3`), or by its first component if it has none.
        pattern: for any other network, a regular expression searched in each name. It has one group, whose
            text is the module's name; tensors without a match form the module `other`. Overrides `model_type`.

    Returns:
        Modules in natural order (layer 2 before layer 10) of their first tensor; each tensor is in exactly one.

    >>> dict(partition(["blocks.10.w", "blocks.9.w", "blocks.9.b", "stem.w"], None).modules)
    {'blocks.9': ('blocks.9.b', 'blocks.9.w'), 'blocks.10': ('blocks.10.w',), 'stem': ('stem.w',)}
    """
    expression = None if pattern is None else _compile(pattern)
    rules = (*FAMILIES[FAMILY_OF[model_type]], *SHARED_RULES) if model_type in FAMILY_OF else ()
    modules: dict[str, list[str]] = {}
    for tensor in sorted(set(tensors), key=_natural_order):
        module = _module_by_rules(tensor, rules) if expression is None else _module_by_group(tensor, expression)
        modules.setdefault(module, []).append(tensor)
    return Partition({module: tuple(members) for module, members in modules.items()})


def is_head(tensor: str) -> bool:
    """Whether a tensor belongs to a task's head or a pooler, whatever the family: it says nothing of the features.

    >>> is_head("classifier.weight"), is_head("bert.pooler.dense.weight"), is_head("encoder.layer.0.output.weight")
    (True, True, False)
    """
    return _module_by_rules(tensor, SHARED_RULES) in ("head", "pooler")


def _module_by_rules(tensor: str, rules: tuple[Rule, ...]) -> str:
    for expression, template in rules:
        if match := expression.match(tensor):
            return match.expand(template)
    if match := _FIRST_NUMBER.match(tensor):
        return match[1]
    return tensor.partition(".")[0]


def _module_by_group(tensor: str, expression: re.Pattern[str]) -> str:
    match = expression.search(tensor)
    return (match and match[1]) or "other"


def _compile(pattern: str) -> re.Pattern[str]:
    if len(pattern) > LONGEST_PATTERN:
        raise UnknownModule(
            f"the module pattern has {len(pattern)} characters, more than {LONGEST_PATTERN}: write a shorter one"
        )
    try:
        expression = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise UnknownModule(
            f"module pattern {pattern!r} is not a regular expression ({reason}): correct it, e.g. {_PATTERN_EXAMPLE}"
        ) from None
    if _may_backtrack(pattern):
        raise UnknownModule(
            f"module pattern {pattern!r} repeats a group that repeats something, which can take forever: write it "
            f"without, e.g. {_PATTERN_EXAMPLE}"
        )
    if expression.groups != 1:
        raise UnknownModule(
            f"module pattern {pattern!r} has {expression.groups} groups: put exactly one around the module's name, "
            f"e.g. {_PATTERN_EXAMPLE}; (?:...) groups without capturing"
        )
    return expression


_REPEATED = re.compile(r"[*+]|\{\d*,\d*\}")
MOST_REPEATED = 4
"""Parts of a pattern that may repeat: with k of them a name of n characters can take n^k steps."""


def _may_backtrack(pattern: str) -> bool:
    """Whether matching may take far more than linear time: repetitions inside a repeated group, or too many.

    >>> _may_backtrack(r"(blocks\\.\\d+)\\."), _may_backtrack(r"([a-z.]+)+!"), _may_backtrack(r"(?:a\\.)*(b+)")
    (False, True, False)
    """
    plain = re.sub(r"\\.|\[\^?\]?[^\]]*\]", "x", pattern)  # escapes and sets of characters are single letters
    repeats_inside = [False]
    for place, letter in enumerate(plain):
        is_repeated = _REPEATED.match(plain, place) is not None
        if letter == "(":
            repeats_inside.append(False)
        elif letter == ")" and len(repeats_inside) > 1:
            inside = repeats_inside.pop()
            if inside and _REPEATED.match(plain, place + 1):
                return True
            repeats_inside[-1] |= inside
        elif is_repeated:
            repeats_inside[-1] = True
    return len(_REPEATED.findall(plain)) > MOST_REPEATED


def _natural_order(name: str) -> tuple[str, str]:
    """Numbers padded with zeros, so that they sort by value; then the name, so that no two are equal."""
    return re.sub(r"[0-9]+", lambda digits: digits[0].zfill(20), name), name
