"""Tasks of different sizes as one batch, for the pools."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class PaddedTasks(NamedTuple):
    """Tasks of different sizes as one batch: the first three arguments of `LogPool.of` and `LinearPool.of`."""

    scores: Tensor
    labels: Tensor
    row_weights: Tensor


def pad_tasks(scores: Sequence[Tensor], labels: Sequence[Tensor]) -> PaddedTasks:
    """Put tasks side by side: missing rows count zero times, missing classes score -inf.

    Args:
        scores: of each task, (n_sources, n_rows, n_classes); all tasks have the same sources.
        labels: the true class of each row of each task, (n_rows,).
    """
    n_rows, n_classes = (max(task.shape[axis] for task in scores) for axis in (1, 2))
    padded = torch.full((len(scores), len(scores[0]), n_rows, n_classes), -torch.inf, dtype=torch.float64)
    row_weights = torch.zeros(len(scores), n_rows, dtype=torch.float64)
    true = torch.zeros(len(scores), n_rows, dtype=torch.int64)
    for index, (task, classes) in enumerate(zip(scores, labels, strict=True)):
        padded[index, :, : task.shape[1], : task.shape[2]] = task
        row_weights[index, : len(classes)] = 1
        true[index, : len(classes)] = classes
    return PaddedTasks(padded, true, row_weights)
