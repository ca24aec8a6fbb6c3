"""Estimators of how well a frozen source fits a task, compared by `specialist_found.py` with leave-one-out prototypes.

Each takes features of the rows of the examples and gives losses: lower is better. Where a loss has parts, one for each
example or query, their spread tells what luck can do.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

RIDGES = (0.01, 0.1, 1.0, 10.0)
"""In units of the mean squared length of a centred row."""

N_FIXED_POINTS = 50


def ridge_losses(features: Tensor, labels: Tensor, examples: Tensor, n_classes: int) -> Tensor:
    """Squared error of each example's label by least squares that have not seen the row, mean over rows; (n_examples,).

    The residual without a row is the residual with it over 1 - h, where h is the row's own weight in what is predicted
    for it; the ridge is the one of least error.

    Args:
        features: of the rows, (n, d).
        labels: class of each row, (n,).
        examples: example of each row, (n,).
        n_classes: how many classes there are.
    """
    rows = _centred(features)
    targets = one_hot(labels, n_classes).double()
    targets = targets - targets.mean(dim=0)
    kernel = rows @ rows.T
    scale = kernel.diagonal().mean().clamp(min=1e-12)
    identity = torch.eye(len(rows), dtype=torch.float64)
    found = []
    for ridge in RIDGES:
        smooth = torch.linalg.solve(kernel + ridge * scale * identity, kernel) + 1 / len(rows)
        residuals = (targets - smooth @ targets) / (1 - smooth.diagonal()).clamp(min=1e-6)[:, None]
        found.append(residuals.square().sum(dim=1))
    errors = min(found, key=lambda each: float(each.mean()))
    counts = torch.bincount(examples)
    return errors.new_zeros(len(counts)).index_add(0, examples, errors / counts[examples])


def log_evidence(features: Tensor, labels: Tensor, n_classes: int) -> float:
    """Minus LogME (You et al., 2021): the greatest log evidence of Bayesian linear regression, by class and row.

    Args:
        features: of the rows, (n, d).
        labels: class of each row, (n,).
        n_classes: how many classes there are.
    """
    rows = normalize(features.double(), dim=-1)
    n_rows, n_features = rows.shape
    left, scales, _ = torch.linalg.svd(rows, full_matrices=False)
    squares = scales.square()
    targets = one_hot(labels, n_classes).double()
    along = (left.T @ targets).square()
    outside = targets.square().sum(dim=0) - along.sum(dim=0)
    total = 0.0
    for part, rest in zip(along.T, outside.clamp(min=0), strict=True):
        prior, noise = torch.tensor(1.0).double(), torch.tensor(1.0).double()
        for _ in range(N_FIXED_POINTS):
            known = (noise * squares / (prior + noise * squares)).sum()
            length = (noise**2 * squares * part / (prior + noise * squares).square()).sum()
            error = (prior**2 * part / (prior + noise * squares).square()).sum() + rest
            before = prior / noise
            prior = (known / length.clamp(min=1e-12)).clamp(1e-6, 1e6)
            noise = ((n_rows - known) / error.clamp(min=1e-12)).clamp(1e-6, 1e6)
            if abs(float(prior / noise / before) - 1) < 1e-3:
                break
        length = (noise**2 * squares * part / (prior + noise * squares).square()).sum()
        error = (prior**2 * part / (prior + noise * squares).square()).sum() + rest
        curvature = (prior + noise * squares).log().sum() + (n_features - len(squares)) * prior.log()
        evidence = n_features * prior.log() + n_rows * noise.log() - curvature
        evidence = (evidence - noise * error - prior * length - n_rows * torch.log(torch.tensor(2 * torch.pi))) / 2
        total += float(evidence) / n_rows
    return -total / n_classes


def h_score(features: Tensor, labels: Tensor, n_classes: int) -> float:
    """Minus the H-score (Bao et al., 2019), with the covariance shrunk as Ledoit and Wolf do (Ibrahim et al., 2022).

    Args:
        features: of the rows, (n, d).
        labels: class of each row, (n,).
        n_classes: how many classes there are.
    """
    rows = _centred(features)
    n_rows, n_features = rows.shape
    sums = rows.new_zeros(n_classes, n_features).index_add(0, labels, rows)
    means = (sums / torch.bincount(labels, minlength=n_classes)[:, None])[labels]
    kernel = rows @ rows.T
    trace, square = kernel.diagonal().sum() / n_rows, kernel.square().sum() / n_rows**2
    level = trace / n_features
    spread = (square - n_features * level**2).clamp(min=1e-24)
    luck = (kernel.diagonal().square().sum() / n_rows - square) / n_rows
    shrinkage = (luck / spread).clamp(1e-3, 1.0)
    # (s m I + (1 - s) X'X / n)^-1 by Woodbury, as there are fewer rows than features.
    ridge, share = shrinkage * level, (1 - shrinkage) / n_rows
    between = means @ means.T
    across = rows @ means.T
    inner = torch.eye(n_rows, dtype=torch.float64) + share / ridge * kernel
    reduced = between - share / ridge * across.T @ torch.linalg.solve(inner, across)
    return -float((1 - shrinkage) * reduced.diagonal().sum() / n_rows / ridge)


def query_losses(logits: Tensor) -> Tensor:
    """How unsure a source is of each unlabelled query, less how evenly it uses the classes; (n_queries,).

    Their mean is minus the mutual information of queries and classes.

    Args:
        logits: of the queries, (n_queries, n_classes).
    """
    logs = logits.double().log_softmax(dim=1)
    mean = logs.exp().mean(dim=0)
    return -(logs.exp() * (logs - mean.log())).sum(dim=1)


def _centred(features: Tensor) -> Tensor:
    unit = normalize(features.double(), dim=-1)
    return unit - unit.mean(dim=0)
