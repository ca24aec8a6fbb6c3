"""Sparse residuals of a network: the nearest one with k elements or k modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

Projection = Callable[[Tensor], Tensor]


def keep_elements(n_kept: int) -> Projection:
    """A projection that keeps the elements of largest magnitude, over all tensors together (equation 7)."""

    def project(point: Tensor) -> Tensor:
        kept = point.abs().topk(min(n_kept, point.shape[1]), dim=1).indices
        return torch.zeros_like(point).scatter(1, kept, point.gather(1, kept))

    return project


def keep_modules(modules: Mapping[str, slice], n_kept: int) -> Projection:
    """A projection that keeps the modules of largest norm; each is one slice of the vector."""
    slices = list(modules.values())

    def project(point: Tensor) -> Tensor:
        norms = torch.stack([torch.linalg.vector_norm(point[:, where], dim=1) for where in slices], dim=1)
        result = torch.zeros_like(point)
        for task, chosen in enumerate(norms.topk(min(n_kept, len(slices)), dim=1).indices.tolist()):
            for number in chosen:
                result[task, slices[number]] = point[task, slices[number]]
        return result

    return project
