"""Whether two config.json mean the same network, whichever version of transformers wrote them."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from smatter.backbones.configs import KEYS, MODEL_TYPES, checked_settings
from smatter.backbones.gate import StrangersError, strangers_errors, transformers
from smatter.errors import SmatterError
from smatter.library.findings import Severity


@dataclass(frozen=True)
class Difference:
    """One difference of two checkpoints.

    Args:
        severity: an error forbids mixing, unless the user accepts it.
        message: what it is, and a remedy.
        key: what `--accept` calls it; none where it cannot be accepted.
    """

    severity: Severity
    message: str
    key: str | None = None


HARMLESS = frozenset({
    "_name_or_path", "architectures", "transformers_version", "torch_dtype", "dtype", "id2label", "label2id",
    "problem_type", "use_cache", "output_attentions", "output_hidden_states", "return_dict", "gradient_checkpointing",
    "auto_map", "_attn_implementation_autoset", "attn_implementation", "finetuning_task", "task_specific_params",
    "hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "attention_dropout",
    "dropout", "drop_path_rate", "resid_pdrop", "embd_pdrop", "attn_pdrop", "initializer_range", "initializer_factor",
    "layer_scale_init_value", "num_labels", "vocab_size", "tie_word_embeddings", "bos_token_id", "eos_token_id",
    "pad_token_id", "summary_first_dropout", "_commit_hash", "name_or_path", "chunk_size_feed_forward", "model_type",
})  # fmt: skip
"""Settings that do not change what a weight means, or that another check looks at."""

TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")


def differences(base: Mapping[str, Any], candidate: Mapping[str, Any]) -> Iterator[Difference]:
    """How a source's config.json differs from the base's.

    Where transformers knows the model type, it completes both first: it fills in what a file leaves out, and brings
    older forms, such as a bare `rope_theta`, to the present one. What it does not know cannot change the network.
    """
    ours, theirs = (
        {key: value for key, value in config.items() if key not in HARMLESS} for config in (base, candidate)
    )
    if ours != theirs:
        complete = [each for each in (_completed(base), _completed(candidate)) if each]
        if is_complete := len(complete) == 2:
            ours, theirs = complete
        for key in sorted(ours.keys() | theirs.keys()):
            if ours.get(key) != theirs.get(key):
                yield _difference(key, ours, theirs, is_complete)
    for key in TOKENS:
        if (mine := base.get(key)) != (other := candidate.get(key)) and other is not None:
            yield Difference(
                "warning", f"config.json: {key} is {short(other)}, the base's {short(mine)}: exports take the base's"
            )


def _difference(key: str, ours: Mapping[str, Any], theirs: Mapping[str, Any], is_complete: bool) -> Difference:
    what = f"config.json: {key} is {short(theirs.get(key))}, the base's {short(ours.get(key))}"
    if not is_complete and (ours.get(key) is None or theirs.get(key) is None):
        return Difference("warning", f"{what}: check that both mean the same")
    if key == "max_position_embeddings" and _is_plain_rotary(ours) and _is_plain_rotary(theirs):
        return Difference("warning", f"{what}: rotary positions have no table, so both mix; exports say the base's")
    return Difference("error", f"{what}: the weights mean another network", key)


def _is_plain_rotary(settings: Mapping[str, Any]) -> bool:
    """Whether positions are rotations whose angles do not depend on the longest length."""
    rope = settings.get("rope_parameters")
    return isinstance(rope, dict) and rope.get("rope_type") == "default"


def _completed(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """All settings that say how a network computes, as transformers understands them; None where it does not."""
    if config.get("model_type") not in MODEL_TYPES:
        return None
    try:
        with strangers_errors():
            settings = {key: value for key, value in checked_settings(config).items() if key not in HARMLESS}
            full = transformers().AutoConfig.for_model(config["model_type"], **settings).to_dict()
    except (StrangersError, SmatterError):
        return None
    for rope in _ropes(full.get("rope_parameters")):
        rope.pop("type", None)  # the older word for `rope_type`, which is there by now
    return {key: _as_file(value) for key, value in full.items() if key in KEYS - HARMLESS}


def _ropes(parameters: Any) -> list[dict[str, Any]]:
    """How positions are rotated: in all layers alike, or by kind of layer."""
    if not isinstance(parameters, dict):
        return []
    return [parameters, *(each for each in parameters.values() if isinstance(each, dict))]


def _as_file(value: Any) -> Any:
    """A value as it comes back from a file: tuples are lists there."""
    return json.loads(json.dumps(value, default=str))


def short(value: Any) -> str:
    """A setting for people."""
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
