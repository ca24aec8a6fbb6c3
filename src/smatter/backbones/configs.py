"""Which networks Smatter builds from a stranger's config.json, and what of that file transformers gets to see.

Keys of `KEYS` with plain values of bounded size pass; all others are dropped, so that no name of code, of a repository
or of a kernel gets any further. Free of torch.
"""

import math
from collections.abc import Mapping
from typing import Any, NoReturn

from smatter.backbones.linear_classifiers import LINEAR_CLASSIFIERS
from smatter.backbones.modules import FAMILY_OF
from smatter.errors import IncompatibleSource

MODEL_TYPES = frozenset({*FAMILY_OF, *LINEAR_CLASSIFIERS, "modernbert", "nemotron", "opt", "resnet"})
"""The `model_type`s that a network can be built of."""

MAX_LAYERS = 512
"""Layers of a network: four times what the deepest known ones have, and still built in seconds."""

MAX_PATCHES = 10_000
"""Patches of a picture where each attends to all others: seven times what the largest supported networks see."""

MAX_LABELS = 100_000
"""Classes of a checkpoint's own classifier; the largest public ones have 22,000."""

MAX_NUMBER = 2**31 - 1
MAX_CHARACTERS = 1000
MAX_ITEMS = 10_000
"""Values in a list or an object; long ropes have a hundred."""

_LAYERS = (
    "num_hidden_layers", "n_layer", "n_layers", "num_layers", "depths", "num_stages", "num_encoder_blocks",
    "decoder_num_hidden_layers", "auxiliary_num_convs",
)  # fmt: skip
"""How many layers there are, or a list of how many there are in each stage."""

_BRANCHES = ("focal_levels", "pool_scales")
"""Lists of how many operators each layer has side by side."""

MAX_BRANCHES = 16

_OTHERS = (
    "_remove_final_layer_norm", "_sliding_window_pattern", "activation", "activation_function", "add_cross_attention",
    "add_fpn", "apply_layernorm", "attention_bias", "attention_dropout", "attention_head_size", "attention_multiplier",
    "attention_probs_dropout_prob", "attention_types", "attention_windows", "attn_logit_softcapping", "attn_pdrop",
    "auxiliary_channels", "auxiliary_concat_input", "auxiliary_loss_weight", "bos_token_id", "classifier_activation",
    "classifier_bias", "classifier_dropout", "classifier_dropout_prob", "classifier_pooling", "clip_qkv", "cls_dropout",
    "cls_token_id", "conv_act", "conv_groups", "conv_kernel_size", "decoder_bias", "decoder_hidden_size",
    "decoder_intermediate_size", "decoder_num_attention_heads", "dim", "do_layer_norm_before",
    "downsample_in_bottleneck", "downsample_in_first_stage", "drop_path_rate", "dropout", "embd_pdrop", "embed_dim",
    "embed_dropout", "embedding_dropout", "embedding_dynamic_padding", "embedding_multiplier", "embedding_size",
    "enable_bias", "encoder_stride", "eos_token_id", "ffn_dim", "final_logit_softcapping", "focal_windows",
    "global_attn_every_n_layers", "global_padding", "global_rope_theta", "head_dim", "hidden_act", "hidden_activation",
    "hidden_dim", "hidden_dropout", "hidden_dropout_prob", "hidden_size", "hidden_sizes", "init_std",
    "initializer_cutoff_factor", "initializer_range", "intermediate_size", "is_decoder", "is_encoder_decoder",
    "layer_norm_elementwise_affine", "layer_norm_eps", "layer_norm_epsilon", "layer_scale_init_value", "layer_type",
    "layer_types", "layerdrop", "layerscale_value", "legacy", "linear_attention", "local_attention", "local_rope_theta",
    "logits_scaling", "mask_ratio", "max_position_embeddings", "max_relative_positions", "max_window_layers",
    "mlp_bias", "mlp_dropout", "mlp_ratio", "mlp_ratios", "n_embd", "n_head", "n_heads", "n_inner", "n_positions",
    "no_rope_layer_interval", "no_rope_layers", "norm_bias", "norm_eps", "norm_pix_loss", "norm_rel_ebd",
    "normalize_modulator", "num_attention_heads", "num_channels", "num_groups", "num_heads", "num_key_value_heads",
    "num_register_tokens", "original_max_position_embeddings", "output_stride", "pad_token_id", "partial_rotary_factor",
    "patch_size", "patch_sizes", "pooler_act", "pooler_dropout", "pooler_hidden_act", "pooler_hidden_size",
    "pooler_output_size", "pos_att_type", "position_biased_input", "position_buckets", "prediction_head_size",
    "pretrained_window_sizes", "pretraining_tp", "qa_dropout", "qkv_bias", "query_pre_attn_scalar",
    "relative_attention", "relative_attention_num_buckets", "reorder_and_upcast_attn", "reshape_hidden_states",
    "reshape_last_stage", "resid_dropout", "resid_pdrop", "residual_multiplier", "rms_norm_eps", "rope_local_base_freq",
    "rope_theta", "rotary_emb_base", "rotary_pct", "scale_attn_by_inverse_layer_idx", "scale_attn_weights",
    "semantic_loss_ignore_index", "sep_token_id", "seq_classif_dropout", "share_att_key", "sinusoidal_pos_embds",
    "sliding_window", "sliding_window_pattern", "sparse_pred_ignore_index", "sparse_prediction", "sr_ratios", "strides",
    "summary_activation", "summary_first_dropout", "summary_last_dropout", "summary_proj_to_labels", "summary_type",
    "summary_use_proj", "talking_head", "tie_word_embeddings", "type_vocab_size", "use_absolute_embeddings",
    "use_absolute_position_embeddings", "use_auxiliary_head", "use_bidirectional_attention", "use_cache",
    "use_conv_embed", "use_layerscale", "use_mask_token", "use_mean_pooling", "use_parallel_residual",
    "use_post_layernorm", "use_post_layernorm_in_modulation", "use_relative_position_bias",
    "use_shared_relative_position_bias", "use_sliding_window", "use_swiglu_ffn", "vocab_size", "width_factor",
    "window_size", "word_embed_proj_dim",
)  # fmt: skip
"""Sizes, numbers, switches and names of functions, or lists of these."""

_FRACTIONS = ("partial_rotary_factor", "rotary_pct")
_OBJECTS = ("rope_parameters", "rope_scaling", "image_size")
_LABELS = ("id2label", "num_labels")

KEYS = frozenset({*_LAYERS, *_BRANCHES, *_OTHERS, *_OBJECTS, *_LABELS})
"""Keys of config.json that say how a network of `MODEL_TYPES` computes."""


def supported_type(config: Mapping[str, Any]) -> str:
    """The config's model type; one that no network can be built of is refused."""
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise IncompatibleSource("the base has no config.json with a model_type: copy it to the base's folder")
    if model_type not in MODEL_TYPES:
        raise IncompatibleSource(
            f"networks of type {model_type[:80]!r} can be composed but not run here: use a base of type "
            "bert, roberta, distilbert, deberta-v2, vit, dinov2, convnext, swin, llama, qwen3, gemma2, gpt2 or the like"
        )
    return model_type


def checked_settings(config: Mapping[str, Any], n_tensors: int | None = None) -> dict[str, Any]:
    """What transformers may be told of a config of a supported type; absurd values are refused.

    Args:
        config: the content of config.json.
        n_tensors: how many the checkpoint has, which its layers cannot outnumber; None for a config that is trusted.
    """
    settings = {key: value for key, value in config.items() if key in KEYS}
    for key, value in settings.items():
        depth = 3 if key in _OBJECTS or key in ("attention_types", "id2label") else 1
        limit = MAX_LABELS if key == "id2label" else MAX_ITEMS
        if not _is_plain(value, depth, limit) or (isinstance(value, dict) and key not in (*_OBJECTS, "id2label")):
            _refuse(key, value)
    most = MAX_LAYERS if n_tensors is None else min(MAX_LAYERS, n_tensors)
    limits = {**dict.fromkeys(_LAYERS, most), **dict.fromkeys(_BRANCHES, MAX_BRANCHES), "num_labels": MAX_LABELS}
    for key, limit in limits.items():
        if settings.get(key) is not None and _largest(key, settings[key]) > limit:
            _refuse(key, settings[key])
    _check_fractions(settings)
    if any(isinstance(stride, int) and stride < 2 for stride in _listed(settings.get("strides"))):
        _refuse("strides", settings["strides"])  # a stage that keeps all tokens takes time in their square
    if _n_patches(config) > MAX_PATCHES:
        _refuse("image_size", settings["image_size"])
    if settings.get("attention_types") is not None and _attention_layers(settings["attention_types"]) > most:
        _refuse("attention_types", settings["attention_types"])
    return settings


def _refuse(key: str, value: Any) -> NoReturn:
    told = " ".join(ascii(value).split())
    raise IncompatibleSource(
        f"the base's config.json says {key} = {told[:60]}, which does not fit its tensors or is beyond all bounds: "
        "copy the config.json that belongs to the base"
    )


def _is_plain(value: Any, depth: int, limit: int) -> bool:
    """Whether a value is a short text, a bounded number, or a bounded list or object of such."""
    if isinstance(value, dict):
        keys, values = list(value), list(value.values())
        return depth > 0 and len(keys) <= limit and all(_is_plain(each, depth - 1, limit) for each in (*keys, *values))
    if isinstance(value, list | tuple):
        return depth > 0 and len(value) <= limit and all(_is_plain(each, depth - 1, limit) for each in value)
    if isinstance(value, str):
        return len(value) <= MAX_CHARACTERS
    if isinstance(value, int):
        return abs(value) <= MAX_NUMBER
    return value is None or (isinstance(value, float) and math.isfinite(value))


def _largest(key: str, value: Any) -> float:
    """A natural number; of a list of such the sum, or the largest if they are branches. Infinite for anything else."""
    numbers = _listed(value)
    if not all(isinstance(each, int) and each >= 0 for each in numbers):
        return math.inf
    return max(numbers, default=0) if key in _BRANCHES else sum(numbers)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _check_fractions(settings: Mapping[str, Any]) -> None:
    """Refuse rotary embeddings of more than all dimensions, at any depth: no tensor on disk shows them."""
    for key, value in settings.items():
        if isinstance(value, dict):
            _check_fractions(value)
        elif key in _FRACTIONS and not (value is None or (isinstance(value, int | float) and 0 <= value <= 1)):
            _refuse(key, value)


def _n_patches(config: Mapping[str, Any]) -> float:
    """Patches of one picture where each attends to all others, as far as the config tells; else zero."""
    sizes = [_listed(config.get(key)) for key in ("image_size", "patch_size")]
    is_known = all(size and all(isinstance(each, int) and each > 0 for each in size) for size in sizes)
    if not is_known or not (FAMILY_OF.get(config["model_type"]) == "vit" or config["model_type"] == "ijepa"):
        return 0
    image, patch = sizes
    return float(image[0] / patch[0] * image[-1] / patch[-1])


def _attention_layers(types: Any) -> float:
    """Layers of GPT-Neo's list of (kinds of layers, how often they come)."""
    total = 0
    for pair in types if isinstance(types, list | tuple) else (types,):
        if not (isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], list | tuple)):
            return math.inf
        if not isinstance(pair[1], int):
            return math.inf
        total += len(pair[0]) * max(pair[1], 0)
    return total
