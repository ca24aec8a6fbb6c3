"""What makes the mixture of a checkpoint with the base meaningless or unsafe, told from headers and side files."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from smatter.errors import UnsafeFile
from smatter.files.reading import parse_json, read_small_file
from smatter.library.checkpoint import MAX_JSON_BYTES, Checkpoint
from smatter.library.manifest import is_excluded
from smatter.records import TensorSpec

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Finding:
    """One difference, and what to do about it; an error keeps a source out of the library."""

    severity: Severity
    kind: str
    source: str
    message: str

    def __str__(self) -> str:
        return f"{self.source}: {self.message}"


@dataclass(frozen=True)
class Pair:
    """The base and a candidate, each with the tensors that take part in mixing."""

    base: Checkpoint
    candidate: Checkpoint
    base_tensors: dict[str, TensorSpec]
    tensors: dict[str, TensorSpec]

    @property
    def shared(self) -> list[str]:
        """Names that both have."""
        return sorted(self.base_tensors.keys() & self.tensors.keys())

    def setting(self, key: str) -> tuple[Any, Any]:
        """A setting of config.json, the base's and the candidate's."""
        return self.base.config.get(key), self.candidate.config.get(key)


Check = Callable[[Pair], Iterator[tuple[Severity, str]]]


def compare(base: Checkpoint, candidate: Checkpoint, name: str, exclude: tuple[str, ...]) -> list[Finding]:
    """Every difference of a checkpoint from the base that its headers and side files show."""
    kept = (
        {tensor: spec for tensor, spec in checkpoint.tensors.items() if not is_excluded(tensor, exclude)}
        for checkpoint in (base, candidate)
    )
    pair = Pair(base, candidate, *kept)
    findings = []
    for kind, check in CHECKS.items():
        found = [Finding(severity, kind, name, message) for severity, message in check(pair)]
        findings += found
        if kind == "architecture" and found:
            break  # the rest would only repeat it in other words
    return findings


def _architecture(pair: Pair) -> Iterator[tuple[Severity, str]]:
    if pair.base.model_type != pair.candidate.model_type:
        yield (
            "error",
            f"is a {pair.candidate.model_type or 'network without config.json'}, the base a "
            f"{pair.base.model_type or 'network without config.json'}: a library holds one architecture",
        )


FUSED = re.compile(r"(qkv|query_key_value|c_attn|in_proj|Wqkv|qkv_proj|gate_up_proj)\b|in_proj_(weight|bias)")
SPLIT = re.compile(r"\b(q_proj|k_proj|v_proj|query|key|value|q_lin|gate_proj|up_proj)\b")


def _tensors(pair: Pair) -> Iterator[tuple[Severity, str]]:
    missing = [name for name in pair.base_tensors if name not in pair.tensors and name not in OUTPUT_LAYERS]
    extra = [name for name in pair.tensors if name not in pair.base_tensors and name not in OUTPUT_LAYERS]
    if not missing and not extra:
        return
    for fused, split, who, whose in ((extra, missing, "it", "the base"), (missing, extra, "the base", "it")):
        fused_names, split_names = [n for n in fused if FUSED.search(n)], [n for n in split if SPLIT.search(n)]
        if fused_names and split_names:
            yield (
                "error",
                f"{who} fuses projections ({fused_names[0]}) that {whose} keeps apart ({split_names[0]}): save both "
                "with the same version of the same model class",
            )
            return
    prefix = _common_prefix(missing, extra)
    if prefix:
        yield (
            "error",
            f"has the base's tensors under another prefix ({prefix}): load it with the base's class "
            f"({pair.base.architecture}; this one was written by {pair.candidate.architecture}) and save it again",
        )
        return
    for what, names in (("lacks", missing), ("has no counterpart in the base for", extra)):
        if names:
            shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            yield "error", f"{what} {shown}: leave a task's own head out with --exclude, or save the same model class"


def _common_prefix(missing: list[str], extra: list[str]) -> str | None:
    """The prefix whose adding or removal turns the extra names into missing ones, if one does for most."""
    for longer, shorter, sign in ((extra, set(missing), "+"), (missing, set(extra), "-")):
        for first in {name.partition(".")[0] for name in longer}:
            stripped = [name.removeprefix(f"{first}.") for name in longer if name.startswith(f"{first}.")]
            if stripped and sum(name in shorter for name in stripped) > 0.5 * max(len(shorter), 1):
                return f"{sign}{first}."
    return None


def _shapes(pair: Pair) -> Iterator[tuple[Severity, str]]:
    for name in pair.shared:
        ours, theirs = pair.base_tensors[name], pair.tensors[name]
        if ours.shape == theirs.shape:
            continue
        advice = "leave it out with --exclude if it is a task's own head"
        if re.search(r"position_embed|wpe\b|embed_positions", name):
            advice = "position embeddings for other lengths or image sizes do not mix: resize one first"
        elif re.search(r"word_embeddings|embed_tokens|wte\b|lm_head|decoder\.(weight|bias)", name):
            advice = "the vocabularies differ in size: resize one (resize_token_embeddings) with the same tokenizer"
        yield "error", f"{name} has shape {list(theirs.shape)}, the base's {list(ours.shape)}: {advice}"


def _dtypes(pair: Pair) -> Iterator[tuple[Severity, str]]:
    different = [name for name in pair.shared if pair.base_tensors[name].dtype != pair.tensors[name].dtype]
    mixable = [name for name in different if pair.base_tensors[name].is_floating and pair.tensors[name].is_floating]
    for name in sorted(set(different) - set(mixable)):
        yield (
            "error",
            f"{name} is {pair.tensors[name].dtype}, the base's {pair.base_tensors[name].dtype}: save it as the base's",
        )
    if mixable:
        name = min(mixable)
        yield (
            "warning",
            f"{len(mixable)} tensors are {pair.tensors[name].dtype}, the base's {pair.base_tensors[name].dtype}: mixed "
            "in float32, written as the base's",
        )


BUFFERS = re.compile(r"(running_mean|running_var|num_batches_tracked)$")


def _buffers(pair: Pair) -> Iterator[tuple[Severity, str]]:
    names = [name for name in pair.shared if BUFFERS.search(name)]
    if names:
        yield (
            "error",
            f"has batch-norm statistics ({names[0]}): a mixture's activations have others, so they do not mix; use a "
            "network with layer norm, or leave them out with --exclude and estimate them again after composing",
        )


OUTPUT_LAYERS = frozenset(
    {"lm_head.weight", "cls.predictions.decoder.weight", "embed_out.weight", "generator_lm_head.weight"}
)
"""Tensors that many networks tie to their word embeddings and then leave out of the file."""


def _tied(pair: Pair) -> Iterator[tuple[Severity, str]]:
    for name in sorted(OUTPUT_LAYERS & (pair.base_tensors.keys() ^ pair.tensors.keys())):
        who, whose = ("it", "the base") if name in pair.tensors else ("the base", "it")
        yield (
            "error",
            f"{who} stores {name}, {whose} ties it to the word embeddings: save both tied or both untied, or leave "
            "it out with --exclude",
        )
    ours, theirs = pair.setting("tie_word_embeddings")
    if ours is not None and theirs is not None and ours != theirs:
        yield (
            "error",
            f"config.json: tie_word_embeddings is {_short(theirs)}, the base's {_short(ours)}: save both alike",
        )


HARMLESS = frozenset({
    "_name_or_path", "architectures", "transformers_version", "torch_dtype", "dtype", "id2label", "label2id",
    "problem_type", "use_cache", "output_attentions", "output_hidden_states", "return_dict", "gradient_checkpointing",
    "auto_map", "_attn_implementation_autoset", "attn_implementation", "finetuning_task", "task_specific_params",
    "is_decoder", "hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "attention_dropout",
    "dropout", "drop_path_rate", "resid_pdrop", "embd_pdrop", "attn_pdrop", "initializer_range", "initializer_factor",
    "layer_scale_init_value", "num_labels", "vocab_size", "tie_word_embeddings", "bos_token_id", "eos_token_id",
    "pad_token_id", "summary_first_dropout", "_commit_hash", "name_or_path", "chunk_size_feed_forward",
})  # fmt: skip
"""Settings that do not change what a weight means, or that another check looks at."""


def _settings(pair: Pair) -> Iterator[tuple[Severity, str]]:
    for key in sorted((set(pair.base.config) | set(pair.candidate.config)) - HARMLESS):
        ours, theirs = pair.setting(key)
        if ours == theirs:
            continue
        if ours is None or theirs is None:
            yield (
                "warning",
                f"config.json: {key} is {_short(theirs)}, the base's {_short(ours)}: check that both mean the same",
            )
        else:
            yield (
                "error",
                f"config.json: {key} is {_short(theirs)}, the base's {_short(ours)}: the weights mean another network",
            )


def _labels(pair: Pair) -> Iterator[tuple[Severity, str]]:
    heads = [name for name in pair.shared if re.match(r"(classifier|score|qa_outputs)\b", name)]
    ours, theirs = pair.setting("id2label")
    if heads and ours != theirs:
        yield (
            "error",
            f"{min(heads)} is a head for other labels (id2label differs): leave it out with --exclude "
            f"'{min(heads).partition('.')[0]}.*'",
        )


def _vocabulary(pair: Pair) -> Iterator[tuple[Severity, str]]:
    ours, theirs = pair.setting("vocab_size")
    if ours is not None and theirs is not None and ours != theirs:
        yield (
            "error",
            f"config.json: vocab_size is {_short(theirs)}, the base's {_short(ours)}: use one tokenizer for all",
        )
    ours, theirs = read_vocabulary(pair.base.folder), read_vocabulary(pair.candidate.folder)
    if ours is None or theirs is None:
        if (ours is None) != (theirs is None):
            who = "it" if theirs is None else "the base"
            yield (
                "warning",
                f"{who} has no tokenizer files, so vocabularies cannot be compared; the export takes the base's",
            )
        return
    moved = [token for token in ours.keys() | theirs.keys() if ours.get(token) != theirs.get(token)]
    if moved:
        yield (
            "error",
            f"{len(moved)} tokens have another number than in the base's tokenizer ({min(moved, key=str)!r} for one): "
            "embeddings of different tokens would be mixed; use one tokenizer for all",
        )


CHECKS: dict[str, Check] = {
    "architecture": _architecture,
    "tensors": _tensors,
    "shapes": _shapes,
    "dtypes": _dtypes,
    "normalisation buffers": _buffers,
    "tied weights": _tied,
    "settings": _settings,
    "labels": _labels,
    "vocabulary": _vocabulary,
}


def read_vocabulary(folder: Path) -> dict[str, int] | None:
    """Token to number, from whichever tokenizer file there is; None when there is none that can be read."""
    for name, parse in VOCABULARIES.items():
        path = folder / name
        if path.exists():
            try:
                return parse(read_small_file(path, MAX_JSON_BYTES), path)
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                if isinstance(error, UnsafeFile):
                    raise
                raise UnsafeFile(
                    f"{path} is not a tokenizer file of the usual form; copy the checkpoint again"
                ) from None
    return None


def _tokenizer_json(text: bytes, path: Path) -> dict[str, int]:
    content = parse_json(text, path)
    vocabulary = content["model"].get("vocab", {})
    if isinstance(vocabulary, list):  # unigram models list pairs of token and score
        tokens = {str(entry[0]): number for number, entry in enumerate(vocabulary)}
    else:
        tokens = dict(vocabulary)
    return tokens | {token["content"]: token["id"] for token in content.get("added_tokens", [])}


def _vocab_json(text: bytes, path: Path) -> dict[str, int]:
    return dict(parse_json(text, path))


def _vocab_txt(text: bytes, _path: Path) -> dict[str, int]:
    return {token: number for number, token in enumerate(text.decode().splitlines())}


VOCABULARIES: dict[str, Callable[[bytes, Path], dict[str, int]]] = {
    "tokenizer.json": _tokenizer_json,
    "vocab.json": _vocab_json,
    "vocab.txt": _vocab_txt,
}


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
