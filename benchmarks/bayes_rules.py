"""What `bayes.py` compares: decision rules as weights of a table's rows, in one pass and in several."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from smatter.algebra.luck import difference_error
from smatter.algebra.simplex import straight_through_top
from smatter.backbones.heads import prototype_temperature
from smatter.methods._members import FAINT
from smatter.posterior.bootstrap import bootstrap_votes, resampled_counts
from smatter.posterior.categorical import Categorical
from smatter.posterior.task_table import TaskTable
from smatter.route.evidence import pooled_weights
from smatter.route.table import WITH_EXPERTS

Rule = Callable[["Case"], Tensor]
"""From a task to weights of the scores of its rows, (n_routings,)."""


@dataclass(frozen=True)
class Case:
    """A task as rules see it.

    Args:
        table: what its routings make of it; the first is the router's point.
        names: of the rows.
        sources: names of the library's sources.
        number: of the task, for what is drawn.
        posteriors: over its rows, by name.
    """

    table: TaskTable
    names: tuple[str, ...]
    sources: tuple[str, ...]
    number: int
    posteriors: Mapping[str, Categorical]

    def row(self, name: str) -> int:
        """The number of a row."""
        return self.names.index(name)

    def one(self, row: int) -> Tensor:
        """One network alone."""
        return torch.eye(len(self.names), dtype=torch.float64)[row]

    @property
    def alone(self) -> list[int]:
        """Rows of the sources, without experts."""
        return [self.row(name) for name in self.sources]

    @property
    def beside(self) -> list[int]:
        """Rows of the sources with the experts of the point, which several networks of a task share."""
        return [self.row(f"{name}{WITH_EXPERTS}") for name in self.sources]

    @property
    def pooled(self) -> Tensor:
        """Weights of the sources' predictions by evidence and the router's prior, (n_sources,)."""
        return pooled_weights(self.table.losses[self.alone], prior=self.table.prior).double()


@dataclass(frozen=True)
class Outcome:
    """What a rule does on a task.

    Args:
        error: share of wrong queries in percent.
        loss: of the queries, in nats.
        right: of each query.
        sure: largest probability of each query.
        networks: that are run.
    """

    error: float
    loss: float
    right: Tensor
    sure: Tensor
    networks: int


def judge(case: Case, weights: Tensor) -> Outcome:
    """Average the scores of a task's rows and compare with the truth."""
    table, networks = case.table, int((weights > 0).sum())
    known = table.truth >= 0
    scores = torch.tensordot(weights.to(table.scores), table.scores[:, known], 1)
    logits = scores / prototype_temperature(table.n_shot, networks)
    right = logits.argmax(dim=1) == table.truth[known]
    sure = logits.softmax(dim=1).amax(dim=1)
    loss = float(cross_entropy(logits.double(), table.truth[known]))
    return Outcome(100 * (1 - float(right.double().mean())), loss, right=right, sure=sure, networks=networks)


def members(n_networks: int, share: float | None = None) -> Rule:
    """The mixed network and the sources of most weight, as `adapt --mix both` takes them.

    Args:
        n_networks: of a task.
        share: of the mixed network; as much as the others have on average without.
    """

    def rule(case: Case) -> Tensor:
        pooled = case.pooled
        order = sorted(range(len(pooled)), key=lambda number: (-float(pooled[number]), case.sources[number]))
        kept = [number for number in order[: n_networks - 1] if float(pooled[number]) >= FAINT] or order[:1]
        own = 1 / (len(kept) + 1) if share is None else share
        weights = case.one(0) * own
        for number in kept:
            weights[case.beside[number]] += float(pooled[number] / pooled[kept].sum()) * (1 - own)
        return weights

    return rule


def random_members(n_networks: int) -> Rule:
    """The mixed network with half of the weight and random sources with the rest."""

    def rule(case: Case) -> Tensor:
        generator = torch.Generator().manual_seed(case.number)
        kept = torch.randperm(len(case.sources), generator=generator)[: n_networks - 1].tolist()
        weights = case.one(0) / 2
        for number in kept:
            weights[case.beside[number]] += 0.5 / len(kept)
        return weights

    return rule


def uniform_predictions(case: Case) -> Tensor:
    """The plain average of the sources' predictions."""
    weights = torch.zeros(len(case.names), dtype=torch.float64)
    weights[case.alone] = 1 / len(case.alone)
    return weights


def pooled_predictions(case: Case) -> Tensor:
    """Sources by evidence and the router's prior, in the experts of the point."""
    weights = torch.zeros(len(case.names), dtype=torch.float64)
    weights[case.beside] = case.pooled
    return weights


def least_loss(case: Case) -> Tensor:
    """The routing of least leave-one-out loss: search over the whole catalogue, at one pass."""
    return case.one(int(case.table.losses.mean(dim=1).argmin()))


def least_source(case: Case) -> Tensor:
    """The source of least leave-one-out loss."""
    return case.one(case.alone[int(case.table.losses[case.alone].mean(dim=1).argmin())])


def one_row(name: str) -> Rule:
    """Always the same row."""
    return lambda case: case.one(case.row(name))


def shared_experts(case: Case, posterior: Categorical) -> Categorical:
    """The posterior over rows that open the experts of the point."""
    is_able = case.table.is_beside.clone()
    is_able[0] = True
    return replace(posterior, logits=posterior.logits.masked_fill(~is_able, -torch.inf))


def likeliest(name: str) -> Rule:
    """The likeliest routing alone."""
    return lambda case: case.one(int(case.posteriors[name].logits.argmax()))


def drawn(name: str, n_networks: int) -> Rule:
    """Random routings, averaged."""

    def rule(case: Case) -> Tensor:
        generator = torch.Generator().manual_seed(case.number)
        found = case.posteriors[name]
        found = shared_experts(case, found) if n_networks > 1 else found
        rows = torch.multinomial(found.probs.detach(), n_networks, replacement=True, generator=generator)
        return torch.bincount(rows, minlength=len(case.names)).double() / n_networks

    return rule


def top(name: str, n_networks: int) -> Rule:
    """The likeliest routings by their probabilities."""

    def rule(case: Case) -> Tensor:
        return straight_through_top(shared_experts(case, case.posteriors[name]).probs.detach()[None], n_networks)[0]

    return rule


def half(name: str, n_networks: int) -> Rule:
    """Half for the point, half for the likeliest others."""

    def rule(case: Case) -> Tensor:
        probs = shared_experts(case, case.posteriors[name]).probs.detach().clone()
        probs[0] = 0
        if not float(probs.sum()) > 0:  # nobody else is thought possible
            return case.one(0)
        others = straight_through_top((probs / probs.sum())[None], n_networks - 1)[0]
        return others / 2 + case.one(0).to(others) / 2

    return rule


def untrained(case: Case) -> dict[str, Categorical]:
    """Posteriors that need no training: evidence at some temperatures, and votes of resampled supports."""
    losses, points = case.table.losses, case.table.points
    error = difference_error(losses)
    found = {f"evidence {t:g}": Categorical(points, -losses.mean(dim=1) / (t * error)) for t in (1.0, 3.0)}
    classes = case.table.classes
    if int(torch.bincount(classes).min()) > 1:
        counts = resampled_counts(classes, 100, torch.Generator().manual_seed(case.number))
        found["bootstrap"] = bootstrap_votes(points, losses, counts)
    else:
        found["bootstrap"] = found["evidence 1"]
    return {name: case.table.counted_once(each) for name, each in found.items()}
