"""Random problems with independent answers."""

import cvxpy
import numpy as np
import torch

from smatter.linear.links import Link, Logistic, Squared
from smatter.linear.loss import LinearLoss

Tensor = torch.Tensor
KINDS = ["random", "identical", "collinear", "few examples", "zero features", "one source", "sparse truth"]


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def make_task(
    kind: str, n_tasks: int, n_examples: int, n_features: int, n_sources: int, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Features (n_tasks, n, d), targets (n_tasks, 1, n) and sources (1, R, d) of one kind."""
    if kind == "few examples":
        n_examples = max(2, n_sources // 2)
    features = normal(n_tasks, n_examples, n_features, seed=seed)
    sources = normal(1, 1 if kind == "one source" else n_sources, n_features, seed=seed + 1)
    if kind == "identical":
        sources[:, 1] = sources[:, 0]
    if kind == "collinear":
        sources[:, 2] = 0.5 * (sources[:, 0] + sources[:, 1]) + 1e-5 * sources[:, 2]
    if kind == "zero features":
        features[:] = 0
    weights = torch.rand(n_tasks, sources.shape[1], generator=generator(seed + 2), dtype=torch.float64)
    truth = weights / weights.sum(dim=1, keepdim=True) @ sources[0]
    if kind == "sparse truth":
        truth[:, :2] += 1.5
    targets = (features @ truth.unsqueeze(-1)).mT + 0.7 * normal(n_tasks, 1, n_examples, seed=seed + 3)
    return features, targets, sources


def make_loss(features: Tensor, targets: Tensor, link: Link, ridge: float = 0.0) -> LinearLoss:
    """Targets become labels for a logistic loss."""
    targets = (targets > 0).double() if isinstance(link, Logistic) else targets
    return LinearLoss(features, targets, link, ridge)


def reference(loss: LinearLoss, task: int, sources: Tensor, alpha: float = 0.0, columns: tuple[int, ...] = ()) -> float:
    """The least loss of one task over the simplex and a residual on some columns, by cvxpy and clarabel."""
    features, targets = loss.features[task].numpy(), loss.targets[task, 0].numpy()
    weights = cvxpy.Variable(sources.shape[1], nonneg=True)
    theta = sources[0].numpy().T @ weights
    penalty: cvxpy.Expression = cvxpy.Constant(0.0)
    if columns:
        residual = cvxpy.Variable(len(columns))
        theta = theta + np.eye(features.shape[1])[:, list(columns)] @ residual
        penalty = alpha / 2 * cvxpy.sum_squares(residual)
    outputs = features @ theta
    if isinstance(loss.link, Squared):
        mean = cvxpy.sum_squares(outputs - targets) / (2 * len(targets))
    else:
        mean = cvxpy.sum(cvxpy.logistic(outputs) - cvxpy.multiply(targets, outputs)) / len(targets)
    objective = mean + loss.ridge / 2 * cvxpy.sum_squares(theta) + penalty
    problem = cvxpy.Problem(cvxpy.Minimize(objective), [cvxpy.sum(weights) == 1])
    return float(problem.solve(solver=cvxpy.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10))
