"""Scores of sources on labelled rows, and pools of them by other means."""

import warnings

import cvxpy
import numpy as np
import torch

from smatter.solve.pools import LinearPool, LogPool

Tensor = torch.Tensor
POOLS = [LogPool, LinearPool]


def make_scores(
    n_tasks: int, n_sources: int, n_rows: int, n_classes: int, scale: float = 2.0, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Scores that favour the true class, more so the later the source; (n_tasks, n_sources, n_rows, n_classes)."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(n_tasks, n_sources, n_rows, n_classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(n_classes, (n_tasks, n_rows), generator=generator)
    skill = torch.linspace(0.2, 1, n_sources, dtype=torch.float64)[:, None, None]
    return scale * (scores + skill * torch.nn.functional.one_hot(labels, n_classes)[:, None]), labels


def random_weights(n_tasks: int, n_sources: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    draws = -torch.rand(n_tasks, 1, n_sources, generator=generator, dtype=torch.float64).log()
    return draws / draws.sum(dim=-1, keepdim=True)


def plain_loss(
    pool: type, scores: Tensor, labels: Tensor, weights: Tensor, pull: float = 0.0, center: Tensor | None = None
) -> Tensor:
    """The definition, for one task: scores (n_sources, n_rows, n_classes), weights (n_sources,)."""
    n_sources, n_rows, _ = scores.shape
    if pool is LogPool:
        mixed = (weights @ scores.flatten(1)).reshape(scores.shape[1:]).log_softmax(dim=-1)
    else:
        mixed = (weights.log()[:, None, None] + scores.log_softmax(dim=-1)).logsumexp(dim=0)
    fit = torch.nn.functional.nll_loss(mixed, labels)
    away = weights - (1 / n_sources if center is None else center)
    return fit + pull / (2 * n_rows) * n_sources * away.square().sum()


def reference(
    pool: type, scores: Tensor, labels: Tensor, pull: float = 0.0, center: Tensor | None = None
) -> tuple[float, np.ndarray]:
    """Least loss and weights of one task, by cvxpy and clarabel."""
    n_sources, n_rows, n_classes = scores.shape
    weights = cvxpy.Variable(n_sources, nonneg=True)
    rows = np.arange(n_rows)
    if pool is LogPool:
        mixed = cvxpy.reshape(scores.flatten(1).numpy().T @ weights, (n_rows, n_classes), order="C")
        own = scores.numpy()[:, rows, labels.numpy()].T @ weights
        fit = cvxpy.sum(cvxpy.log_sum_exp(mixed, axis=1) - own) / n_rows
    else:
        chances = scores.softmax(dim=-1).numpy()[:, rows, labels.numpy()]
        fit = -cvxpy.sum(cvxpy.log(chances.T @ weights)) / n_rows
    middle = np.full(n_sources, 1 / n_sources) if center is None else center.numpy()
    objective = fit + pull / (2 * n_rows) * n_sources * cvxpy.sum_squares(weights - middle)
    problem = cvxpy.Problem(cvxpy.Minimize(objective), [cvxpy.sum(weights) == 1])
    exact = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-13)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # where clarabel cannot be that exact, its best is close enough
        problem.solve(solver=cvxpy.CLARABEL, **exact)
    return float(problem.value), np.asarray(weights.value)


def grid(n_sources: int, n_steps: int = 200) -> Tensor:
    """All weights of two or three sources in equal steps, (n_points, 1, n_sources)."""
    first = torch.arange(n_steps + 1, dtype=torch.float64) / n_steps
    if n_sources == 2:
        return torch.stack([first, 1 - first], dim=1)[:, None]
    pairs = torch.cartesian_prod(first, first)
    pairs = pairs[pairs.sum(dim=1) <= 1]
    return torch.cat([pairs, 1 - pairs.sum(dim=1, keepdim=True)], dim=1)[:, None]
