"""How far a pair of weights and residual can be from the best, without enumerating supports.

Any vector u of one number per example bounds the squared loss from below by duality. With shares s, ridge alpha > 0 on
the residual and predictions P of the sources,

    min over w, D  >=  u'y - sum over blocks of max_r (P'u)_r - sum over the k largest units of |X'u|^2 / 2 alpha
                       - sum_i u_i^2 / 2 s_i,

which is the perspective relaxation of the sparsity constraint (Bertsimas and Van Parys, 2020) with the simplex added.
The errors of a solution, scaled to make the bound largest, are a good u.
"""

import torch
from torch import Tensor

from smatter.linear.loss import LinearLoss, predict
from smatter.linear.task import LinearTask


def lower_bound(task: LinearTask, weights: Tensor, residual: Tensor) -> Tensor | None:
    """A number that no pair can undercut, (n_tasks,); None where no bound is known.

    Known for squared losses of one output without ridge on theta, with alpha > 0 where there is a residual.
    """
    loss, pattern, alpha = task.loss, task.pattern, task.alpha
    if not isinstance(loss, LinearLoss) or not loss.is_quadratic or loss.ridge or loss.n_outputs != 1:
        return None
    if pattern is not None and not alpha > 0:
        return None
    errors = (loss.targets - loss.outputs(task.mixed(weights) + residual)).squeeze(1)
    shares = loss.weights[:, 0]
    dual = errors * shares
    if pattern is not None and pattern.free is not None:
        dual = _orthogonal(dual, shares, loss.features[:, :, pattern.free])
    predictions = (predict(loss, task.rows) @ dual.unsqueeze(-1)).squeeze(-1).unflatten(1, (task.n_blocks, -1))
    linear = (dual * loss.targets.squeeze(1)).sum(dim=1) - predictions.amax(dim=2).sum(dim=1)
    square = 0.5 * (dual.square() / torch.where(shares > 0, shares, 1.0)).sum(dim=1)
    if pattern is not None:
        products = pattern.sums((dual.unsqueeze(1) @ loss.features).squeeze(1).square())
        n_kept = min(pattern.n_kept, products.shape[1])
        square = square + products.topk(n_kept, dim=1).values.sum(dim=1) / (2 * alpha)
    # The best scale t of the dual vector: linear t - square t^2; a loss is never negative.
    best = linear.clamp(min=0).square() / (4 * square.clamp(min=torch.finfo(square.dtype).tiny))
    return torch.where(square > 0, best, 0.0)


def _orthogonal(dual: Tensor, shares: Tensor, free: Tensor) -> Tensor:
    """The dual vector without its part along free features, (n_tasks, n, f): nothing bounds their coefficients."""
    weighted = free * shares.unsqueeze(-1)
    products = (dual.unsqueeze(1) @ free).mT
    coefficients: Tensor = torch.linalg.lstsq(weighted.mT @ free, products).solution
    return dual - (weighted @ coefficients).squeeze(-1)
