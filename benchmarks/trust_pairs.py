"""`library check` on pairs of checkpoints of which it is known whether they mix: how often is its verdict wrong?

Each kind has pairs of several families, in two halves: the least cosine of a related matrix was set on the first, and
is judged on the second.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from trust_bases import ROOT, Checkpoint, Family, Tensors, families, permuted

from smatter.errors import SmatterError
from smatter.library.check import check_library
from smatter.library.edit import add_source, init_library
from smatter.library.kinship import RELATED
from smatter.library.manifest import FormName

FORMS: tuple[FormName, ...] = ("whole", "delta", "bf16-delta", "int8", "low-rank")


@dataclass(frozen=True)
class Pair:
    """Two checkpoints and what is known of them.

    Args:
        kind: what was done to the candidate.
        family: of the base.
        base: of the library.
        candidate: to add.
        mixes: whether mixtures mean something.
        form: how it is stored.
    """

    kind: str
    family: str
    base: Checkpoint
    candidate: Checkpoint
    mixes: bool
    form: FormName = "whole"


def pairs(quick: bool) -> dict[str, Any]:
    """Verdicts on all pairs: `figures` of the second half, and `tables`."""
    torch.set_num_threads(1)
    found = families(ROOT / ".bench" / "trust-packages")
    made = [each for name, family in found.items() for each in _pairs(name, family)]
    by_kind: dict[str, list[Pair]] = {}
    for pair in made:
        by_kind.setdefault(pair.kind, []).append(pair)
    rows = []
    for kind, members in by_kind.items():
        for number, pair in enumerate(members[:2] if quick else members):
            rows.append({"kind": kind, "family": pair.family, "half": number % 2 + 1, "form": pair.form} | _judge(pair))
    second = [row for row in rows if row["half"] == 2]
    first = [row for row in rows if row["half"] == 1]
    related = [row["least_cosine"] for row in first if row["mixes"] and row["least_cosine"] is not None]
    strange = [row["least_cosine"] for row in first if row["kind"] == "part re-initialised"]
    figures = {
        "pairs": len(rows),
        "pairs_judged": len(second),
        "false_refusals": sum(row["mixes"] and not row["passed"] for row in second),
        "false_passes": sum(not row["mixes"] and row["passed"] for row in second),
        "false_verdicts_of_first_half": sum(row["mixes"] != row["passed"] for row in first),
        "check_disagrees_with_add": sum(row["checked"] not in (None, row["passed"]) for row in rows),
        "least_cosine_of_related": min(related),
        "largest_cosine_of_strange": max(value for value in strange if value is not None),
        "threshold": RELATED,
    }
    kinds = [
        {
            "kind": kind,
            "pairs": len(members),
            "mix": sum(row["mixes"] for row in members),
            "right": sum(row["mixes"] == row["passed"] for row in members),
        }
        for kind in by_kind
        for members in [[row for row in rows if row["kind"] == kind]]
    ]
    return {"figures": figures, "tables": {"kinds": kinds, "pairs": rows}}


def _judge(pair: Pair) -> dict[str, Any]:
    """What `add` says of a pair, what `check` says of the library after it, and the least cosine of a matrix."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        init_library(folder / "library", pair.base.write(folder / "base"))
        candidate = pair.candidate.write(folder / "candidate")
        told: dict[str, Any] = {"mixes": pair.mixes, "passed": True, "checked": None, "least_cosine": None, "why": ""}
        try:
            library, findings = add_source(folder / "library", candidate, form=pair.form)
        except SmatterError as error:
            told |= {"passed": False, "why": str(error).partition(" does not mix with 'base': ")[2][:120]}
            try:  # how unlike it is, all the same
                library, _ = add_source(folder / "library", candidate, accept=_keys(str(error)))
            except SmatterError:
                return told
        else:
            told["why"] = "; ".join(finding.message for finding in findings)[:120]
        report = check_library(library)
        if told["passed"]:
            told["checked"] = report.ok
        if report.similarity:
            told["least_cosine"] = round(min(float(each[1]) for each in report.similarity.matrices.values()), 4)
    return told


def _keys(refusal: str) -> list[str]:
    return [refusal.partition("(--accept ")[2].partition(" if ")[0]]


def _pairs(name: str, family: Family) -> Iterator[Pair]:
    base, (near, middle, far) = family.base, family.fine_tunes
    own = {"family": name, "base": base}
    n_layers = 1 + max(map(_layer, base.tensors))
    for form, tuned in zip(FORMS, (near, middle, near, middle, middle), strict=True):
        yield Pair("fine-tuned", candidate=tuned, mixes=True, form=form, **own)
    for tuned in (middle, far):
        yield Pair("fine-tuned far", candidate=tuned, mixes=True, **own)
    for twin in (base, base.but(lambda tensors: _nudge(tensors, 1e-6))):
        yield Pair("twin", candidate=twin, mixes=True, **own)
    if family.heads:
        yield from _permuted("heads permuted", family, family.heads, family.n_heads, n_layers, own)
    yield from _permuted("neurons permuted", family, family.neurons, 0, n_layers, own)
    for start, part in ((near, range(n_layers)), (middle, range(1, 2))):
        yield Pair("part re-initialised", candidate=start.but(lambda t, p=part: _anew(t, p)), mixes=False, **own)
    yield from _of_files(near, middle, own)
    yield from _of_settings(near, middle, own)


def _permuted(
    kind: str, family: Family, units: tuple[str, str], n_heads: int, n_layers: int, own: dict[str, Any]
) -> Iterator[Pair]:
    """Units in another order: of all layers, of one, and two units swapped in one."""
    near, middle, _ = family.fine_tunes
    for number, (start, layers) in enumerate(((near, range(n_layers)), (middle, range(1, 2)), (near, range(1, 2)))):

        def change(tensors: Tensors, number: int = number, layers: range = layers) -> None:
            for layer in layers:
                rows = _n_rows(tensors, units[0], layer)
                count = n_heads or rows
                order = torch.randperm(count, generator=torch.Generator().manual_seed(number))
                if number == 2:
                    few = 2 if n_heads else max(2, count // 20)
                    order = torch.cat([torch.arange(few).roll(1), torch.arange(few, count)])
                permuted(tensors, units, order, range(layer, layer + 1), rows // count if count else 1)

        yield Pair(kind, candidate=start.but(change), mixes=False, **own)


def _n_rows(tensors: Tensors, expression: str, layer: int) -> int:
    """Rows of a matrix of a layer."""
    return next(
        tensor.shape[0]
        for name, tensor in tensors.items()
        if tensor.ndim > 1 and re.search(expression, name) and _layer(name) == layer
    )


def _layer(name: str) -> int:
    found = re.search(r"\.(\d+)\.", name)
    return int(found[1]) if found else -1


def _of_files(near: Checkpoint, middle: Checkpoint, own: dict[str, Any]) -> Iterator[Pair]:
    """Other tokenizers, other heads, tensors that only one of the two has."""
    words = [f"word{number}" for number in range(30)]
    base = Checkpoint(own["base"].config, own["base"].tensors, _vocabulary(words))
    with_words = dict(own, base=base)
    swapped, other = [*words[:3], words[4], words[3], *words[5:]], [f"other{number}" for number in range(30)]
    for start, vocabulary in ((near, swapped), (middle, other)):
        told = Checkpoint(start.config, start.tensors, _vocabulary(vocabulary))
        yield Pair("other tokenizer", candidate=told, mixes=False, **with_words)
    for start in (near, middle):
        more = Checkpoint(start.config, start.tensors, _vocabulary([*words, "<extra>"]))
        yield Pair("tokens in unused rows", candidate=more, mixes=True, **with_words)
    head = {"classifier.weight": torch.randn(3, 16), "classifier.bias": torch.zeros(3)}
    yield Pair("other task head", candidate=near.but(lambda t: t.update(head)), mixes=True, **own)
    labels = [{"id2label": {str(number): f"{start}{number}" for number in range(3)}} for start in "ab"]
    other_head = {"classifier.weight": torch.randn(3, 16), "classifier.bias": torch.ones(3)}
    headed = dict(own, base=own["base"].but(lambda t: t.update(head)).saying(**labels[0]))
    told = middle.but(lambda t: t.update(other_head)).saying(**labels[1])
    yield Pair("other task head", candidate=told, mixes=False, **headed)
    buffer = {"embeddings.position_ids": torch.arange(64)[None]}
    plain = own["base"].but(lambda t: t.pop("embeddings.position_ids", None))
    yield Pair(
        "buffer on one side", candidate=near.but(lambda t: t.update(buffer)), mixes=True, **dict(own, base=plain)
    )
    full = own["base"].but(lambda t: t.update(buffer))
    without = middle.but(lambda t: t.pop("embeddings.position_ids", None))
    yield Pair("buffer on one side", candidate=without, mixes=True, **dict(own, base=full))


def _of_settings(near: Checkpoint, middle: Checkpoint, own: dict[str, Any]) -> Iterator[Pair]:
    """Other positions, harmless keys, and files as other versions of transformers write them."""
    base = own["base"]
    if "rope_parameters" in base.config:
        older = middle.saying(rope_parameters=None, rope_theta=1e6)
        yield Pair("other positions", candidate=older, mixes=False, **own)
        newer = near.saying(rope_parameters={"rope_theta": 5e5, "rope_type": "default"})
        yield Pair("other positions", candidate=newer, mixes=False, **own)
        yield Pair("harmless keys", candidate=near.saying(max_position_embeddings=4096), mixes=True, **own)
    elif base.config["model_type"] == "bert":
        table = "embeddings.position_embeddings.weight"
        longer = near.but(lambda t: t.update({table: torch.cat([t[table], t[table]])})).saying(
            max_position_embeddings=1024
        )
        yield Pair("other positions", candidate=longer, mixes=False, **own)
    elif base.config["model_type"] == "vit":
        table = "embeddings.position_embeddings"
        larger = middle.but(lambda t: t.update({table: t[table][:, :10].clone()})).saying(image_size=24)
        yield Pair("other positions", candidate=larger, mixes=False, **own)
    yield Pair("harmless keys", candidate=middle.saying(unsloth_version="2025.3", use_cache=False), mixes=True, **own)
    yield Pair("harmless keys", candidate=near.saying(_name_or_path="someone/x", trained_by="peft"), mixes=True, **own)
    for start, told in ((near, _as_version_4(near.config)), (middle, _as_version_5(middle.config))):
        yield Pair(
            "other version of transformers", candidate=Checkpoint(told, start.tensors, start.files), mixes=True, **own
        )


def _as_version_4(config: Any) -> dict[str, Any]:
    """As transformers 4 wrote it: `torch_dtype`, and the base of rotations on its own."""
    told = {key: value for key, value in config.items() if key not in ("dtype", "rope_parameters")}
    if rope := config.get("rope_parameters"):
        told |= {"rope_theta": rope["rope_theta"], "rope_scaling": None}
    return told | {"torch_dtype": "float32", "transformers_version": "4.41.2", "use_cache": True, "pruned_heads": {}}


def _as_version_5(config: Any) -> dict[str, Any]:
    """As this version writes it, with all that it knows."""
    from transformers import AutoConfig

    kept = {key: value for key, value in config.items() if key not in ("model_type", "transformers_version")}
    return json.loads(AutoConfig.for_model(config["model_type"], **kept).to_json_string(use_diff=False))


def _vocabulary(words: list[str]) -> dict[str, bytes]:
    return {"vocab.json": json.dumps({word: number for number, word in enumerate(words)}).encode()}


def _nudge(tensors: Tensors, size: float) -> None:
    generator = torch.Generator().manual_seed(0)
    for name, tensor in tensors.items():
        if tensor.is_floating_point():
            tensors[name] = tensor + size * tensor.abs().mean() * torch.randn(tensor.shape, generator=generator)


def _anew(tensors: Tensors, layers: range) -> None:
    """Matrices of some layers drawn again at their own scale."""
    generator = torch.Generator().manual_seed(1)
    for name, tensor in tensors.items():
        if tensor.ndim > 1 and any(f".{layer}." in name for layer in layers):
            tensors[name] = tensor.std() * torch.randn(tensor.shape, generator=generator)


if __name__ == "__main__":
    shutil.rmtree(ROOT / ".bench" / "pairs", ignore_errors=True)
    print(json.dumps(pairs(quick=False), indent=1))
