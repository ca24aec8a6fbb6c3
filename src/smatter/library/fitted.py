"""A checkpoint in the base's terms: under its names, and with its tensors where the checkpoint has none that count."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from smatter.backbones.modules import is_head
from smatter.files.reading import Array, MappedFile
from smatter.library.checkpoint import Checkpoint
from smatter.library.manifest import is_excluded
from smatter.records import TensorSpec

OUTPUT_LAYERS = frozenset(
    {"lm_head.weight", "cls.predictions.decoder.weight", "embed_out.weight", "generator_lm_head.weight"}
)
"""Tensors that many networks tie to their word embeddings and then leave out of the file."""

_WORD_EMBEDDINGS = re.compile(r"(word_embeddings|embed_tokens|wte|embed_in)\.weight$")

_PREDICTS_TOKENS = re.compile(r"LM|PreTraining|HeadsModel$")
"""Classes with an output layer: one that is in no file can only be tied, whether the configuration says so or not."""

_DERIVED = re.compile(r"(^|\.)(position_ids|token_type_ids|inv_freq|masked_bias|relative_position_index)$")
_CAUSAL_MASK = re.compile(r"\b(attn|attention)\.bias$")


def is_derived(name: str, spec: TensorSpec) -> bool:
    """Whether a tensor follows from the configuration, so that some versions of a library save it and some do not."""
    return not spec.is_floating or bool(_DERIVED.search(name) or (_CAUSAL_MASK.search(name) and len(spec.shape) == 4))


def is_dispensable(name: str, spec: TensorSpec) -> bool:
    """Whether the base's tensor stands in for one that a source lacks, unasked: what is derived, or of a task's head.

    Classes for a task leave out the pooler, the head of pretraining, or both. An output layer may be tied, which is to
    be found out first.
    """
    return is_derived(name, spec) or (is_head(name) and name not in OUTPUT_LAYERS)


def common_prefix(base: Iterable[str], candidate: Iterable[str]) -> str:
    """The prefix that a candidate's names have and the base's lack, as "+bert.", or the reverse, as "-bert."; or none.

    Classes for a task save their backbone under its name, and the backbone's own class does not.
    """
    ours, theirs = set(base), set(candidate)
    for longer, shorter, sign in ((theirs - ours, ours - theirs, "+"), (ours - theirs, theirs - ours, "-")):
        for first in sorted({name.partition(".")[0] for name in longer}):
            stripped = [name.removeprefix(f"{first}.") for name in longer if name.startswith(f"{first}.")]
            if stripped and sum(name in shorter for name in stripped) > 0.5 * max(len(shorter), 1):
                return f"{sign}{first}."
    return ""


def names_in(base: Mapping[str, TensorSpec], candidate: Checkpoint) -> dict[str, str]:
    """Which tensor of a candidate is which of the base, by the base's names; those it lacks are not there."""
    sign, prefix = (found := common_prefix(base, candidate.tensors))[:1], found[1:]
    names = {}
    for name in base:
        theirs = f"{prefix}{name}" if sign == "+" else name.removeprefix(prefix) if sign == "-" else name
        for each in (theirs, name):
            if each in candidate.tensors:
                names[name] = each
                break
    for name in OUTPUT_LAYERS & base.keys() - names.keys():  # it is tied: its values are the word embeddings'
        tied = [other for other in names if _WORD_EMBEDDINGS.search(other) and base[other].shape == base[name].shape]
        says = candidate.config.get("tie_word_embeddings", bool(_PREDICTS_TOKENS.search(candidate.architecture)))
        if len(tied) == 1 and says is True:
            names[name] = names[tied[0]]
    return names


def word_embeddings_of(checkpoint: Checkpoint, layer: str) -> str | None:
    """The tensor that an output layer of a checkpoint would be tied to."""
    shape = checkpoint.tensors[layer].shape
    found = [name for name, spec in checkpoint.tensors.items() if _WORD_EMBEDDINGS.search(name) and spec.shape == shape]
    return found[0] if len(found) == 1 else None


@dataclass(frozen=True)
class Fitted:
    """A checkpoint as a library reads it.

    Args:
        checkpoint: the source's own.
        base: the library's.
        names: tensors of the checkpoint, by the base's names; the other ones are the base's.
        tensors: what each tensor is, by the base's names.
    """

    checkpoint: Checkpoint
    base: Checkpoint
    names: Mapping[str, str]
    tensors: dict[str, TensorSpec]

    @property
    def weight_files(self) -> Mapping[str, MappedFile]:
        """The source's files."""
        return self.checkpoint.weight_files

    @property
    def is_as_saved(self) -> bool:
        """Whether another program finds the same values under the same names, but for integers."""
        return all(self.names.get(name) == name for name, spec in self.tensors.items() if spec.is_floating)

    def read(self, name: str, start: int, stop: int) -> Array:
        """Elements start..stop of a tensor, flat."""
        if name in self.names:
            return self.checkpoint.read(self.names[name], start, stop)
        return self.base.read(name, start, stop)


def fit_to(base: Checkpoint, checkpoint: Checkpoint, accept: tuple[str, ...] = ()) -> "Checkpoint | Fitted":
    """A checkpoint in the base's terms; the checkpoint itself where that is the same.

    Args:
        base: the library's.
        checkpoint: a source's.
        accept: names of tensors, or patterns, that do not count in this source: the base's stand in for them.
    """
    found = names_in(base.tensors, checkpoint)
    names = {name: theirs for name, theirs in found.items() if not is_excluded(name, accept)}
    lacking = [
        name
        for name, spec in base.tensors.items()
        if name not in names and (name in found or is_dispensable(name, spec) or is_excluded(name, accept))
    ]
    if not lacking and all(name == theirs for name, theirs in names.items()):
        return checkpoint
    tensors = {name: checkpoint.tensors[theirs] for name, theirs in names.items()}
    tensors |= {name: base.tensors[name] for name in lacking}
    return Fitted(checkpoint, base, names, tensors)
