"""Integrals over simplices of two and three weights, as independent answers for densities on them."""

from collections.abc import Callable

import numpy as np
import torch

N_NODES = 160


def nodes(d: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points, (n, d), and their volumes, (n,): tanh-sinh quadrature, which forgives what densities do at the edges."""
    steps, width = np.linspace(-3.2, 3.2, N_NODES, retstep=True)
    inner = np.pi / 2 * np.sinh(steps)
    line = 1 / (1 + np.exp(-2 * inner))  # of (0, 1); its complement without cancellation is line[::-1]
    volume = width * np.pi / 2 * np.cosh(steps) / np.cosh(inner) ** 2 / 2
    first, rest = torch.from_numpy(line), torch.from_numpy(line[::-1].copy())
    volumes = torch.from_numpy(volume)
    if d == 2:
        return torch.stack([first, rest], dim=1), volumes
    assert d == 3
    # (x, (1 - x) y, (1 - x)(1 - y)) has Jacobian 1 - x.
    x, left, y, after = first[:, None], rest[:, None], first[None], rest[None]
    points = torch.stack(torch.broadcast_tensors(x, left * y, left * after), dim=-1)
    return points.reshape(-1, 3), (volumes[:, None] * left * volumes[None]).reshape(-1)


def integrate(d: int, values: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    points, volumes = nodes(d)
    found = values(points)
    return (found * volumes.reshape(-1, *(1 for _ in found.shape[1:]))).sum(dim=0)


def expectation(posterior, d: int, values: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Expected values, by integration of the posterior's own density, which must itself integrate to one."""

    def weighted(points: torch.Tensor) -> torch.Tensor:
        found = values(points)
        return posterior.log_prob(points).exp().reshape(-1, *(1 for _ in found.shape[1:])) * found

    return integrate(d, weighted)
