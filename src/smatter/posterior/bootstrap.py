"""The bootstrap: an untrained posterior from what would have been chosen, had other examples been given."""

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from smatter.errors import InvalidSupport
from smatter.posterior.categorical import Categorical


def resampled_counts(classes: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """How often each example is drawn in resamples that keep the size of each class, (n, n_examples).

    Args:
        classes: class of each example, (n_examples,).
        n: resamples.
        generator: of the draws.
    """
    counts = torch.zeros(n, len(classes), dtype=torch.float64)
    for label in classes.unique():
        members = (classes == label).nonzero().flatten()
        if len(members) < 2:
            raise InvalidSupport(
                f"class {int(label)} has one example, of which no other can be drawn: give two of each class, or use "
                "a posterior that does not resample"
            )
        drawn = torch.randint(len(members), (n, len(members)), generator=generator)
        counts[:, members] = one_hot(drawn, len(members)).sum(dim=1).double()
    return counts


def bootstrap_votes(points: Tensor, losses: Tensor, counts: Tensor) -> Categorical:
    """q(A | S): the share of resamples on which A has the least loss; ties share alike, broken ones get none.

    Args:
        points: the routings, (n_routings, d).
        losses: of each example by each routing, (..., n_routings, n_examples).
        counts: how often each example counts in each resample, (..., n_resamples, n_examples).
    """
    broken = ~losses.isfinite().all(dim=-1)
    if bool(broken.all(dim=-1).any()):
        raise InvalidSupport("no routing gives finite losses on some task: check its inputs and the sources")
    totals = counts.to(losses) @ losses.nan_to_num().mT
    totals = totals.masked_fill(broken.unsqueeze(-2), torch.inf)
    best = (totals == totals.amin(dim=-1, keepdim=True)).to(losses)
    votes = (best / best.sum(dim=-1, keepdim=True)).mean(dim=-2)
    return Categorical(points, votes.log())
