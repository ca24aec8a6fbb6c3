"""An amortised posterior over the rows of a table: a score of each routing from what the examples say of it.

    q(A | S) = softmax(log p(A) + s(phi(A, S)))        or another family (`posterior.families`)

phi compares routing A with the router's point and with the other routings: by leave-one-out losses, by weights, and by
how often it names an example otherwise. No parameter belongs to a source, an expert or a routing, so catalogues may
change without training anew (Bayes-routed paper, section 4).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from smatter.algebra.layers import seeded_linear
from smatter.algebra.luck import difference_error
from smatter.errors import InvalidSettings
from smatter.posterior.categorical import Categorical
from smatter.posterior.families import Density, UpperLevel, chosen_rows, density_of, row_families
from smatter.posterior.task_table import TaskTable
from smatter.settings import check_choices
from smatter.settings.posteriors import Family

N_FACTS, N_QUERY_FACTS = 14, 2
MAX_WIDTH = 1_024
LARGEST_EXCESS, LARGEST_LOSS = 10.0, 3.0
"""Standard errors and nats beyond which a difference says nothing more."""


@dataclass(frozen=True)
class PosteriorSettings:
    """What an amortised posterior is made of.

    Args:
        width: of its hidden layer.
        queries: whether it looks at unlabelled queries too.
        family: how q is parameterised; see `posterior.families`.
    """

    width: int = 16
    queries: bool = False
    family: Family = "categorical"

    def __post_init__(self) -> None:
        check_choices(self, family=Family)
        if not 1 <= self.width <= MAX_WIDTH:
            raise InvalidSettings(f"a hidden layer of {self.width}: give from 1 to {MAX_WIDTH}")


class Amortised(nn.Module):
    """See the module's text.

    Args:
        settings: what it is made of.
        generator: of the first weights; at first every routing has the prior's probability.
    """

    def __init__(self, settings: PosteriorSettings, generator: torch.Generator) -> None:
        super().__init__()
        self.settings = settings
        n_facts = N_FACTS + (N_QUERY_FACTS if settings.queries else 0)
        n_scores = 2 if settings.family == "logistic-normal" else 1
        self.score = _scorer(n_facts, settings.width, n_scores, generator)
        self.family_score = None
        if settings.family == "two-level":
            self.family_score = _scorer(2 * n_facts, settings.width, 1, generator)

    def forward(self, table: TaskTable, log_prior: Tensor, facts: Tensor | None = None) -> Categorical:
        """The posterior of a task, over the rows of its table; arguments as `density` has them."""
        return table.counted_once(chosen_rows(table.points, self.density(table, log_prior, facts)))

    def density(self, table: TaskTable, log_prior: Tensor, facts: Tensor | None = None) -> Density:
        """The posterior of a task in its family.

        Args:
            table: what the routings make of it.
            log_prior: log p, (n_routings,); -inf for those that must not be chosen.
            facts: as `facts_of` gives them, where they are known.
        """
        facts = facts_of(table, self.settings.queries) if facts is None else facts
        return self.densities(facts, log_prior, row_families(table.points, len(table.prior)), len(table.prior) + 1)

    def densities(self, facts: Tensor, log_prior: Tensor, families: Tensor, n_families: int) -> Density:
        """The posterior of one task or of several, whose rows are numbered: points do not matter here.

        Args:
            facts: of the rows, (..., n_routings, n_facts).
            log_prior: log p, (n_routings,).
            families: of the rows, (..., n_routings); see `row_families`.
            n_families: how many there may be.
        """
        levels = None
        if self.family_score is not None:
            members = one_hot(families, n_families).bool().unsqueeze(-1)  # (..., n_routings, n_families, 1)
            each = facts.unsqueeze(-2)
            mean = (each * members).sum(dim=-3) / members.sum(dim=-3).clamp(min=1)
            least = each.masked_fill(~members, torch.inf).amin(dim=-3).nan_to_num(posinf=0.0)
            levels = UpperLevel(families, self.family_score(torch.cat([mean, least], dim=-1)).squeeze(-1))
        rows = torch.arange(facts.shape[-2]).unsqueeze(-1)
        return density_of(self.settings.family, rows, log_prior, self.score(facts), levels)

    def prior(self, log_prior: Tensor, *shape: int) -> Density:
        """The prior as a density of the family.

        Args:
            log_prior: log p, (n_routings,).
            shape: of the tasks; one alone by default.
        """
        rows = torch.arange(len(log_prior)).unsqueeze(-1)
        return density_of(self.settings.family, rows, log_prior, torch.zeros(*shape, len(log_prior), 2))


def _scorer(n_facts: int, width: int, n_scores: int, generator: torch.Generator) -> nn.Sequential:
    """Scores of facts, zero at first: every routing has the prior's probability."""
    last = seeded_linear(width, n_scores, generator)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(seeded_linear(n_facts, width, generator), nn.GELU(), last)


def facts_of(table: TaskTable, queries: bool = False) -> Tensor:
    """phi: what is known of each routing, (n_routings, N_FACTS); two more with queries.

    Args:
        table: what the routings make of a task; the first is the router's point.
        queries: whether unlabelled queries are looked at.
    """
    losses, n_sources = table.losses, len(table.prior)
    means, error = table.means, difference_error(losses)
    weights, experts = table.points[:, :n_sources], table.points[:, n_sources:]
    above = [
        ((means - means[0]) / error).clamp(-LARGEST_EXCESS, LARGEST_EXCESS),
        ((means - means.min()) / error).clamp(max=LARGEST_EXCESS),
        (means - means[0]).clamp(-LARGEST_LOSS, LARGEST_LOSS),
    ]
    alike = [
        torch.minimum(weights, weights[0]).sum(dim=1),
        torch.minimum(weights, table.prior).sum(dim=1),
        weights.amax(dim=1),
        torch.minimum(experts, experts[0]).sum(dim=1),
        experts[:, -1],
        experts[0, -1].expand(len(means)),
        (table.points == table.points[0]).all(dim=1).float(),
    ]
    named = table.held_out.argmax(dim=-1)
    alike.append((named != named[0]).float().mean(dim=1))
    counts = torch.tensor([float(table.n_classes), table.n_shot]).log()
    shape = [*counts.expand(len(means), 2).unbind(dim=1), means[0].clamp(max=LARGEST_LOSS).expand(len(means))]
    found = [*above, *alike, *shape]
    if queries:
        answers = table.scores.softmax(dim=-1)
        sure = answers.amax(dim=-1).mean(dim=1)
        found += [(answers.argmax(dim=-1) != answers[0].argmax(dim=-1)).float().mean(dim=1), sure - sure[0]]
    return torch.stack([each.float() for each in found], dim=1)
