"""What makes the mixture of a checkpoint with the base meaningless or unsafe, told from headers and side files."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from smatter.backbones.modules import is_head
from smatter.compose.execute import ranges
from smatter.library.checkpoint import Checkpoint
from smatter.library.configs import Difference, short
from smatter.library.configs import differences as config_differences
from smatter.library.findings import Finding, accepted, is_ok, shown
from smatter.library.fitted import (
    OUTPUT_LAYERS,
    common_prefix,
    is_derived,
    is_dispensable,
    names_in,
    word_embeddings_of,
)
from smatter.library.manifest import is_excluded
from smatter.library.side_files import side_file_differences
from smatter.library.vocabulary import vocabulary_differences
from smatter.records import TensorSpec


@dataclass(frozen=True)
class Pair:
    """The base and a candidate, with the tensors of the candidate that count.

    Args:
        base: the library's.
        candidate: the source's.
        exclude: patterns of tensors that the library leaves out.
        accept: keys of differences; tensors that they name are the base's in this source.
    """

    base: Checkpoint
    candidate: Checkpoint
    exclude: tuple[str, ...]
    accept: tuple[str, ...] = ()

    @cached_property
    def ours(self) -> dict[str, TensorSpec]:
        """The base's tensors."""
        return {name: spec for name, spec in self.base.tensors.items() if self._counts(name)}

    @cached_property
    def names(self) -> dict[str, str]:
        """The candidate's tensors by the base's names, of those that both have."""
        return {name: theirs for name, theirs in self._all_names.items() if name in self.ours}

    @cached_property
    def shared(self) -> dict[str, tuple[TensorSpec, TensorSpec]]:
        """What both have, by the base's names: the base's and the candidate's."""
        return {name: (self.ours[name], self.candidate.tensors[self.names[name]]) for name in sorted(self.names)}

    @cached_property
    def extra(self) -> dict[str, TensorSpec]:
        """What only the candidate has."""
        known = {*self._all_names.values()}
        return {name: spec for name, spec in self.candidate.tensors.items() if name not in known and self._counts(name)}

    @cached_property
    def _all_names(self) -> dict[str, str]:
        return names_in(self.base.tensors, self.candidate)  # as `fit_to` finds them

    def _counts(self, name: str) -> bool:
        return not is_excluded(name, self.exclude) and not is_excluded(name, self.accept)

    def setting(self, key: str) -> tuple[Any, Any]:
        """A setting of config.json, the base's and the candidate's."""
        return self.base.config.get(key), self.candidate.config.get(key)


Check = Callable[[Pair], Iterator[Difference]]


def compare(
    base: Checkpoint, candidate: Checkpoint, name: str, exclude: tuple[str, ...] = (), accept: tuple[str, ...] = ()
) -> list[Finding]:
    """Every difference of a checkpoint from the base that its headers and side files show.

    Args:
        base: the library's.
        candidate: the source's.
        name: of the source.
        exclude: patterns of tensors that the library leaves out.
        accept: keys of differences that the user has accepted.
    """
    pair, findings = Pair(base, candidate, exclude, accept), list[Finding]()
    for kind, check in CHECKS.items():
        found = [Finding(each.severity, kind, name, each.message, each.key) for each in check(pair)]
        findings += accepted(found, accept)
        if kind == "architecture" and not is_ok(findings):
            break  # the rest would only repeat it in other words
    return findings


def compare_side_files(
    base: Checkpoint,
    folder: Path,
    config: dict[str, Any],
    name: str,
    exclude: tuple[str, ...] = (),
    accept: tuple[str, ...] = (),
) -> list[Finding]:
    """Differences of a stored source, of which config.json and tokenizer are kept as they came."""
    found = [("tensors", each) for each in _replaced(base, exclude, accept)]
    found += [("settings", each) for each in config_differences(base.config, config)]
    found += [("vocabulary", each) for each in _vocabulary_of(base.config, config)]
    found += [("vocabulary", each) for each in vocabulary_differences(base.folder, folder)]
    found += [("side files", each) for each in side_file_differences(base.folder, folder)]
    return accepted([Finding(each.severity, kind, name, each.message, each.key) for kind, each in found], accept)


def _replaced(base: Checkpoint, exclude: tuple[str, ...], accept: tuple[str, ...]) -> Iterator[Difference]:
    """Which tensors of a source are the base's because the user said so."""
    names = [name for name in base.tensors if is_excluded(name, accept) and not is_excluded(name, exclude)]
    if names:
        verb = "is the base's" if len(names) == 1 else "are the base's"
        yield Difference("accepted", f"{shown(names)} {verb} in this source")


def _architecture(pair: Pair) -> Iterator[Difference]:
    ours, theirs = (each.model_type or "network without config.json" for each in (pair.base, pair.candidate))
    if ours != theirs:
        message = f"is a {theirs}, the base a {ours}: a library holds one architecture"
        yield Difference("error", message, "model_type")


FUSED = re.compile(r"(qkv|query_key_value|c_attn|in_proj|Wqkv|qkv_proj|gate_up_proj)\b|in_proj_(weight|bias)")
SPLIT = re.compile(r"\b(q_proj|k_proj|v_proj|query|key|value|q_lin|gate_proj|up_proj)\b")


def _tensors(pair: Pair) -> Iterator[Difference]:
    replaced = [*_replaced(pair.base, pair.exclude, pair.accept)]
    if replaced and not any(pair.ours[name].is_floating for name in pair.names):
        yield Difference("error", "nothing would be left of it: let --accept name only what differs")
        return
    yield from replaced
    lacking = {name: spec for name, spec in pair.ours.items() if name not in pair.names and name not in OUTPUT_LAYERS}
    missing = [name for name, spec in lacking.items() if not is_dispensable(name, spec)]
    rest = {name: spec for name, spec in pair.extra.items() if name not in OUTPUT_LAYERS}
    left_out = [name for name, spec in rest.items() if is_derived(name, spec)]
    extra = [name for name in rest if name not in left_out]
    for fused, split, who, whose in ((extra, missing, "it", "the base"), (missing, extra, "the base", "it")):
        fused_names, split_names = [n for n in fused if FUSED.search(n)], [n for n in split if SPLIT.search(n)]
        if fused_names and split_names:
            message = (
                f"{who} fuses projections ({fused_names[0]}) that {whose} keeps apart ({split_names[0]}): save both "
                "with the same version of the same model class"
            )
            yield Difference("error", message)
            return
    if prefix := common_prefix(pair.base.tensors, pair.candidate.tensors):
        who = "its names begin" if prefix.startswith("+") else "the base's names begin"
        yield Difference("note", f"{who} with {prefix[1:]!r} where the other's do not: read by the base's names")
    for name in missing:
        message = f"lacks {name}: save it with the base's class ({pair.base.architecture}), or take the base's"
        yield Difference("error", message, name)
    own_head = [name for name in extra if is_head(name)]
    for name in sorted({*extra} - {*own_head}):
        message = f"has no counterpart in the base for {name}: save it with the base's class, or leave it out"
        yield Difference("error", message, name)
    if no_head := [name for name, spec in lacking.items() if is_head(name) and not is_derived(name, spec)]:
        yield Difference("warning", f"lacks the base's head ({shown(no_head)}): the base's stands in")
    if own_head:
        yield Difference("note", f"{shown(own_head)}: a head that the base does not have, left out of mixtures")
    if left_out:
        yield Difference("note", f"{shown(left_out)}: follows from the configuration, left out of mixtures")


def _shapes(pair: Pair) -> Iterator[Difference]:
    for name, (ours, theirs) in pair.shared.items():
        if ours.shape == theirs.shape:
            continue
        advice = "leave it out of the library with `init --exclude` if it is a task's own head"
        if is_derived(name, ours):
            advice = "it goes with positions that the base does not have"
        elif re.search(r"position_embed|wpe\b|embed_positions", name):
            advice = "position embeddings for other lengths or image sizes do not mix: resize one first"
        elif re.search(r"word_embeddings|embed_tokens|wte\b|lm_head|decoder\.(weight|bias)", name):
            advice = "the vocabularies differ in size: resize one (resize_token_embeddings) with the same tokenizer"
        message = f"{name} has shape {list(theirs.shape)}, the base's {list(ours.shape)}: {advice}, or keep the base's"
        yield Difference("error", message, name)


def _dtypes(pair: Pair) -> Iterator[Difference]:
    different = {name: each for name, each in pair.shared.items() if each[0].dtype != each[1].dtype}
    mixable = [name for name, (ours, theirs) in different.items() if ours.is_floating and theirs.is_floating]
    for name in sorted(different.keys() - {*mixable}):
        ours, theirs = different[name]
        yield Difference("error", f"{name} is {theirs.dtype}, the base's {ours.dtype}: save it as the base's", name)
    if mixable:
        ours, theirs = different[mixable[0]]
        message = f"{len(mixable)} tensors are {theirs.dtype}, the base's {ours.dtype}: mixed in float32"
        yield Difference("warning", f"{message}, written as the base's")


BUFFERS = re.compile(r"(running_mean|running_var|num_batches_tracked)$")


def _buffers(pair: Pair) -> Iterator[Difference]:
    names = [name for name in pair.shared if BUFFERS.search(name)]
    if names:
        message = (
            f"has batch-norm statistics ({names[0]}): a mixture's activations have others, so they do not mix; use a "
            "network with layer norm, or leave them out with `init --exclude` and estimate them again after composing"
        )
        yield Difference("error", message, "batch-norm")


def _tied(pair: Pair) -> Iterator[Difference]:
    for name in sorted(OUTPUT_LAYERS):
        if name in pair.ours and name not in pair.names:
            message = f"lacks {name}, the output layer: save it with the base's class ({pair.base.architecture})"
            if pair.candidate.config.get("tie_word_embeddings") is True:
                message = f"the base stores {name}, it ties it to the word embeddings: save both tied or both untied"
            yield Difference("error", f"{message}, or keep the base's", name)
        elif name in pair.ours and pair.names[name] != name and not pair.names[name].endswith(f".{name}"):
            yield Difference("note", f"{name} is tied to its word embeddings, and read from there")
        elif name in pair.extra:
            yield _own_output_layer(pair, name)
    ours, theirs = pair.setting("tie_word_embeddings")
    if ours is not None and theirs is not None and ours != theirs:
        message = f"config.json: tie_word_embeddings is {short(theirs)}, the base's {short(ours)}: save both alike"
        yield Difference("error", message, "tie_word_embeddings")


NO_OUTPUT_LAYER = re.compile(r"(?<!Head)(?<!Heads)Model$|Classification$|QuestionAnswering$")
"""Classes that predict no tokens: GPT2Model, not GPT2LMHeadModel."""


def _own_output_layer(pair: Pair, name: str) -> Difference:
    """An output layer that only the candidate stores: of no account if it is a copy, or if the base has no output."""
    candidate, tied = pair.candidate, word_embeddings_of(pair.candidate, name)
    if NO_OUTPUT_LAYER.search(pair.base.architecture):
        return Difference("note", f"{name}: an output layer that the base does not have, left out")
    blocks = ranges(candidate.tensors[name].n_elements)
    if tied and all(np.array_equal(candidate.read(name, *block), candidate.read(tied, *block)) for block in blocks):
        return Difference("note", f"{name} is a copy of its word embeddings, as the base has them: left out")
    message = f"it stores {name}, the base ties it to the word embeddings: save both tied or both untied"
    return Difference("error", f"{message}, or leave it out", name)


def _settings(pair: Pair) -> Iterator[Difference]:
    return config_differences(pair.base.config, pair.candidate.config)


def _labels(pair: Pair) -> Iterator[Difference]:
    heads = [name for name in pair.shared if re.match(r"(classifier|score|qa_outputs)\b", name)]
    ours, theirs = pair.setting("id2label")
    if heads and ours != theirs:
        pattern = f"'{min(heads).partition('.')[0]}.*'"
        message = (
            f"{min(heads)} is a head for other labels (id2label differs): leave it out of the library with `init "
            f"--exclude {pattern}`, keep the base's with --accept {pattern}"
        )
        yield Difference("error", message, "id2label")


def _vocabulary(pair: Pair) -> Iterator[Difference]:
    yield from _vocabulary_of(pair.base.config, pair.candidate.config)
    yield from vocabulary_differences(pair.base.folder, pair.candidate.folder)


def _vocabulary_of(base: dict[str, Any], config: dict[str, Any]) -> Iterator[Difference]:
    ours, theirs = base.get("vocab_size"), config.get("vocab_size")
    if ours is not None and theirs is not None and ours != theirs:
        message = f"config.json: vocab_size is {short(theirs)}, the base's {short(ours)}: use one tokenizer for all"
        yield Difference("error", message, "vocab_size")


def _side_files(pair: Pair) -> Iterator[Difference]:
    return side_file_differences(pair.base.folder, pair.candidate.folder)


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
    "side files": _side_files,
}
