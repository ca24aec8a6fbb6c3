"""From a residual to what a task adds on a shared base, in whichever form of each operator takes the fewest numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from smatter.compose.residual import Residual
from smatter.errors import InvalidResidual
from smatter.records import TensorSpec
from smatter.runtime.deltas import Addend, Again, Bias, Columns, OwnDeltas, RankFactors, Rows, Scale, ScatteredElements
from smatter.runtime.places import Place, with_parameters

ELEMENT_COST = 8
"""Numbers of a dense matrix that take as long to apply as one scattered element."""

LARGEST_RANK = 64
"""More rank components are not looked for."""

RANK_ERROR = 1e-6
"""Share of a matrix's norm that rank components may miss."""


def dense_values(residual: Residual, places: Mapping[str, Place], specs: Mapping[str, TensorSpec]) -> dict[str, Tensor]:
    """A copy of what a residual changes, tensor by tensor, in full; refused where a tensor is at no place."""
    residual.check_fits(specs)
    found = {}
    for disk in residual.tensors:
        tensor = torch.from_numpy(residual.in_full(disk, specs[disk].shape).copy())
        if bool(tensor.any()):
            if disk not in places:
                raise InvalidResidual(f"tasks that share a base cannot correct {disk!r}: use the merged runtime")
            found[disk] = tensor
    return found


def pack(values: Mapping[str, Tensor], places: Mapping[str, Place], base: Mapping[str, Tensor]) -> OwnDeltas:
    """What a task of its own adds.

    Args:
        values: what each tensor differs by, by name on disk; see `dense_values`.
        places: of the network, by names of tensors on disk.
        base: the tensors that the task shares; terms have their dtype.
    """
    terms: dict[str, Sequence[Addend]] = {}
    for place in dict.fromkeys(places[disk] for disk in values):
        own = {name: values[disk] for name, disk in place.tensors.items() if disk in values}
        if place.kind == "linear":
            dtype = base[place.key].dtype
            terms[place.key] = linear_terms(own.get("weight"), own.get("bias"), place.is_transposed, dtype)
        else:
            terms[place.key] = (whole_term(place, own, base),)
    return OwnDeltas(terms)


def whole_term(place: Place, values: Mapping[str, Tensor], base: Mapping[str, Tensor]) -> Again | Bias | Scale:
    """What is added at a place that is no linear operator, given what its parameters differ by."""
    dtype = base[place.key].dtype
    if place.kind == "leaf":
        return Again(with_parameters(place.module, {name: tensor.to(dtype) for name, tensor in values.items()}))
    if place.kind == "scale":
        ((_, change),) = values.items()
        now = base[place.key].float()
        if bool(((now == 0) & (change != 0)).any()):
            raise InvalidResidual(f"{place.key!r} is zero where the task differs from it: use the merged runtime")
        return Scale(torch.where(change == 0, 0.0, change / now).to(dtype))
    everything = torch.zeros(base[place.tensors["position_embeddings"]].shape[1:])
    for tensor in values.values():
        everything[: tensor.shape[1]] += tensor[0]
    return Bias(everything.to(dtype))


def linear_terms(weight: Tensor | None, bias: Tensor | None, is_transposed: bool, dtype: torch.dtype) -> list[Addend]:
    """What is added to a linear operator, given what its weight and bias differ by."""
    terms: list[Addend] = []
    if weight is not None:
        matrix = weight.T if is_transposed else weight
        mask = matrix.numpy() != 0  # several times faster than torch at this
        rows, columns = (torch.from_numpy(np.flatnonzero(mask.any(axis=axis))) for axis in (1, 0))
        n_out, n_in = matrix.shape
        costs = {"rows": len(rows) * n_in, "columns": len(columns) * n_out}
        if dtype == torch.float32:  # torch has no product of sparse matrices in less
            costs["elements"] = ELEMENT_COST * int(np.count_nonzero(mask))
        form = min(costs, key=lambda form: costs[form])
        largest = min(LARGEST_RANK, costs[form] // (n_in + n_out))
        corner = matrix[rows[: largest + 1]][:, columns[: largest + 1]]
        factors = low_rank(matrix, largest) if _rank(corner) <= largest else None  # most are not worth a closer look
        if factors is not None:
            terms.append(RankFactors(*(part.to(dtype).contiguous() for part in factors)))
        elif form == "elements":
            terms.append(ScatteredElements(matrix))
        elif form == "columns":
            terms.append(Columns(columns, matrix[:, columns].T.to(dtype).contiguous()))
        else:
            own = None
            if bias is not None and bool(torch.isin((bias != 0).nonzero().flatten(), rows).all()):
                own, bias = bias[rows].to(dtype), None
            terms.append(Rows(rows, matrix[rows].T.to(dtype).contiguous(), own))
    if bias is not None:
        terms.append(Bias(bias.to(dtype)))
    return terms


def low_rank(matrix: Tensor, largest: int) -> tuple[Tensor, Tensor] | None:
    """Rank components of a matrix, if there are no more than `largest`: (n_in, rank) and (rank, n_out).

    The columns' space is found from random combinations of them, which is quick where the rank is low (Halko,
    Martinsson and Tropp, 2011), and verified.
    """
    if largest < 1:
        return None
    exact, generator = matrix.double(), torch.Generator().manual_seed(0)
    probes = torch.randn(matrix.shape[1], largest + 1, generator=generator, dtype=torch.float64)
    frame, _ = torch.linalg.qr(exact @ probes)
    inside = frame.T @ exact
    if float((exact - frame @ inside).norm()) > RANK_ERROR * float(exact.norm()):
        return None
    left, strengths, right = torch.linalg.svd(inside, full_matrices=False)
    rank = int((strengths > RANK_ERROR * strengths[0]).sum())
    return (right[:rank].T, (frame @ left[:, :rank] * strengths[:rank]).T) if rank <= largest else None


def _rank(matrix: Tensor) -> int:
    strengths = torch.linalg.svdvals(matrix.double())
    return int((strengths > RANK_ERROR * strengths[0]).sum())
