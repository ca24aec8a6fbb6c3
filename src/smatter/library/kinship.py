"""Whether a source descends from the base, judged matrix by matrix: fine-tuned, permuted, or of another start.

A mean of two networks computes what both compute only if each unit has the same place in both. Fine-tuning keeps it.
Over a whole network one layer with its heads in another order hardly shows, so the least similar matrix decides.
"""

import math

import numpy as np
from numpy.typing import NDArray

from smatter.backbones.modules import is_head
from smatter.compose.execute import Reader, as_float32, ranges
from smatter.library.findings import Finding
from smatter.library.similarity import ASTRAY, CHUNK, NARROWEST, NEAR_DUPLICATE, Similarity
from smatter.records import Partition

RELATED = 0.35
"""Least cosine of a matrix to the base's. Matrices of another initialisation have about 0; of the specialists of Signs,
which were trained far from their base, at least 0.63. Set on one half of the pairs of benchmarks/trust_pairs.py."""

MOVED_SHARE, LEAST_MOVED = 0.01, 2
"""Rows of a matrix that must lie elsewhere before it counts as permuted: this share, and this number."""

MANY = 16
"""Rows to be compared with are taken for at least as many: a network has many matrices that may have a few astray."""

CLEARER = 0.3
"""By how much a row must be more like another row of the base than like its own."""

SAMPLED, COMPARED, ELEMENTS = 256, 16_384, 1 << 25
"""Rows that are looked for, and rows of the base among which they are; more would not change the verdict. And how many
elements these may have, so that wide matrices fit in memory too."""


FAR = 0.4
"""How far sources may scatter around their mean, as a share of it, before mixing their weights is likely to lose points
against mixing their predictions (docs/making-sources.md)."""


def apart(similarity: Similarity) -> list[Finding]:
    """A warning where the sources as a whole lie too far apart to be mixed without loss."""
    if len(similarity.names) < 3 or similarity.scatter < FAR:
        return []
    others = similarity.overall_cosine[1:]
    message = (
        f"they scatter by {similarity.scatter:.2f} of their mean (cosine to the base {others.min():.2f} to "
        f"{others.max():.2f}): beyond {FAR} we saw mixed weights lose 1 to 7 points against averaged predictions; "
        "see docs/making-sources.md for tunes that mix"
    )
    return [Finding("warning", "scatter", "all sources", message)]


def relations(reader: Reader, similarity: Similarity, partition: Partition) -> list[Finding]:
    """Near-duplicates, and sources that have matrices of another network or in another order."""
    findings = []
    for first, *others in similarity.clusters:
        for name in others:
            message = f"is a near-duplicate of {first!r} (closer than {NEAR_DUPLICATE:.0%} of their deltas)"
            findings.append(Finding("warning", "near-duplicates", name, f"{message}: mixing the two changes little"))
    for column, name in enumerate(similarity.names[1:], start=1):
        findings += _kinship(reader, similarity, partition, name=name, column=column)
    return findings


def _kinship(reader: Reader, similarity: Similarity, partition: Partition, name: str, column: int) -> list[Finding]:
    cosines = {tensor: float(values[column]) for tensor, values in similarity.matrices.items()}
    body = {tensor: cosine for tensor, cosine in cosines.items() if not is_head(tensor)}
    permuted = [
        tensor
        for tensor, cosine in body.items()
        if _has_moved_rows(reader, similarity, name, tensor)
        or (cosine < RELATED and _has_moved_columns(reader, similarity, name, tensor))
    ]
    # What reads permuted rows has permuted columns, and is as unlike the base's as if it were of another network.
    explained = {partition.module_of(tensor) for tensor in permuted}
    strange = [
        tensor for tensor, cosine in body.items() if cosine < RELATED and partition.module_of(tensor) not in explained
    ]
    heads = [tensor for tensor, cosine in cosines.items() if is_head(tensor) and cosine < RELATED]
    findings = []
    if permuted:
        message = (
            f"has rows or columns of {_told(permuted, cosines, partition)} in another order than the base: heads, "
            "neurons or tokens were permuted, and a mixture would mix what does not belong together; put them in the "
            "base's order"
        )
        findings.append(Finding("error", "permuted", name, message, "permuted"))
    if strange:
        is_whole = len(strange) > len(body) / 2
        why = "it comes from another initialisation" if is_whole else "that part was initialised anew"
        message = (
            f"is unlike the base in {_told(strange, cosines, partition)}: {why}, and a mixture works like neither of "
            "the two; leave this source out"
        )
        findings.append(Finding("error", "unrelated", name, message, "unrelated"))
    if heads:
        message = f"has a head of its own ({_told(heads, cosines, partition)}): mixed heads name no classes well"
        findings.append(Finding("warning", "other head", name, message))
    return findings


def _told(tensors: list[str], cosines: dict[str, float], partition: Partition) -> str:
    """The least similar module, its least similar matrix, and how many modules more there are."""
    lowest = min(tensors, key=lambda tensor: cosines[tensor])
    modules = {partition.module_of(tensor) for tensor in tensors}
    more = f" and {len(modules) - 1} more modules" if len(modules) > 1 else ""
    return f"{partition.module_of(lowest)}{more} (cosine {round(cosines[lowest], 2) + 0:.2f} in {lowest})"


def _has_moved_rows(reader: Reader, similarity: Similarity, name: str, tensor: str) -> bool:
    """Whether rows that are unlike the base's are other rows of the base.

    Each of some rows that lie astray is compared with the base's rows astray.
    """
    astray = similarity.astray.get((name, tensor), np.empty(0, np.int64))
    base, spec = similarity.names[0], reader.spec(name, tensor)
    if len(astray) < _enough(spec.shape[0]):
        return False
    most = max(LEAST_MOVED, min(COMPARED, ELEMENTS * spec.shape[0] // spec.n_elements))
    asked, offered = astray[:: -(-len(astray) // min(SAMPLED, most))], astray[:: -(-len(astray) // most)]
    own, itself, others = (
        _rows(reader, source, tensor, rows) for source, rows in ((name, asked), (base, asked), (base, offered))
    )
    centre = others.mean(axis=0) * (len(others) >= MANY)  # few rows have a mean by chance
    share = _moved_share(*(_unit(rows - centre) for rows in (own, itself, others)))
    return share * len(astray) >= _enough(spec.shape[0])


def _has_moved_columns(reader: Reader, similarity: Similarity, name: str, tensor: str) -> bool:
    """Whether columns are other columns of the base, as in embeddings whose features were permuted."""
    spec = reader.spec(name, tensor)
    width = spec.n_elements // spec.shape[0]
    n_rows = min(spec.shape[0], ELEMENTS // width, COMPARED)
    if n_rows < NARROWEST or not LEAST_MOVED <= width <= COMPARED:
        return False
    own, base = (
        _unit(np.ascontiguousarray(_rows(reader, source, tensor, np.arange(n_rows)).T))
        for source in (name, similarity.names[0])
    )
    asked = slice(None, None, -(-width // SAMPLED))
    return _moved_share(own[asked], base[asked], base) * width >= _enough(width)


def _enough(n_rows: int) -> float:
    return max(LEAST_MOVED, MOVED_SHARE * n_rows)


def _moved_share(own: NDArray[np.float32], itself: NDArray[np.float32], others: NDArray[np.float32]) -> float:
    """Which share of some rows are other rows of the base; all rows are of length one.

    A row that is not permuted finds one that is more like it only by chance, which in few dimensions is not rare: the
    best of k random directions in d dimensions has a cosine of about sqrt(2 log k / d). Where that is near one, nothing
    can be said. Rows that all went to one place are not permuted.

    Args:
        own: of the source.
        itself: the base's rows in the same places.
        others: the base's rows in all places that they may come from.
    """
    enough = max(ASTRAY, 1.5 * math.sqrt(2 * math.log(max(len(others), MANY)) / own.shape[1]))
    cosines = own @ others.T
    best = cosines.max(axis=1)
    found = (best >= enough) & (best >= np.einsum("nd,nd->n", own, itself) + CLEARER)
    return len(set(cosines.argmax(axis=1)[found].tolist())) / len(own)


def _rows(reader: Reader, source: str, tensor: str, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """Some rows of a matrix, in ascending order; read block by block, since forms decode blocks."""
    spec = reader.spec(source, tensor)
    width = spec.n_elements // spec.shape[0]
    values = np.empty((len(rows), width), np.float32)
    for start, stop in ranges(spec.shape[0], max(1, CHUNK // width)):
        first, last = np.searchsorted(rows, (start, stop))
        if first < last:
            block = as_float32(reader.read(source, tensor, start * width, stop * width), spec.dtype)
            values[first:last] = block.reshape(-1, width)[rows[first:last] - start]
    return values


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    norms: NDArray[np.float32] = np.linalg.norm(rows, axis=1, keepdims=True)
    norms[norms == 0] = 1
    return rows / norms
