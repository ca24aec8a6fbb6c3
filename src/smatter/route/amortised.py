"""An amortised posterior over the rows of a table: a score of each routing from what the examples say of it.

    q(A | S) = softmax(log p(A) + s(phi(A, S)))

phi compares routing A with the router's point and with the other routings: by leave-one-out losses, by weights, and by
how often it names an example otherwise. No parameter belongs to a source, an expert or a routing, so catalogues may
change without training anew (Bayes-routed paper, section 4).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from smatter.route.encode import linear
from smatter.route.evidence import difference_error
from smatter.route.posteriors.categorical import Categorical
from smatter.route.task_table import TaskTable

N_FACTS, N_QUERY_FACTS = 14, 2
LARGEST_EXCESS, LARGEST_LOSS = 10.0, 3.0
"""Standard errors and nats beyond which a difference says nothing more."""


@dataclass(frozen=True)
class PosteriorSettings:
    """What an amortised posterior is made of.

    Args:
        width: of its hidden layer.
        queries: whether it looks at unlabelled queries too.
    """

    width: int = 16
    queries: bool = False


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
        last = linear(settings.width, 1, generator)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.score = nn.Sequential(linear(n_facts, settings.width, generator), nn.GELU(), last)

    def forward(self, table: TaskTable, log_prior: Tensor, facts: Tensor | None = None) -> Categorical:
        """The posterior of a task.

        Args:
            table: what the routings make of it.
            log_prior: log p, (n_routings,); -inf for those that must not be chosen.
            facts: as `facts_of` gives them, where they are known.
        """
        facts = facts_of(table, self.settings.queries) if facts is None else facts
        return Categorical(table.points, self.score(facts).squeeze(-1) + log_prior.to(facts))


def facts_of(table: TaskTable, queries: bool = False) -> Tensor:
    """phi: what is known of each routing, (n_routings, N_FACTS); two more with queries.

    Args:
        table: what the routings make of a task; the first is the router's point.
        queries: whether unlabelled queries are looked at.
    """
    losses, n_sources = table.losses, len(table.prior)
    means, error = losses.mean(dim=1), difference_error(losses)
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
