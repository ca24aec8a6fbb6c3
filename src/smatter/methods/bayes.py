"""A posterior over routings: which networks are run, how sure that is, and what is done where it is not.

Bayes-routed paper, sections 3 to 5: q(w, alpha | S), a decision rule, a score U(S), and a fallback above a threshold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from smatter.compose.records import Decision
from smatter.errors import InvalidRouter, InvalidSettings
from smatter.methods import Fit, method
from smatter.settings.decisions import ESCALATE, USUAL, Limit, Rule, check_fallback

if TYPE_CHECKING:
    from smatter.live.mixture import LiveMixture
    from smatter.live.task import Task
    from smatter.posterior.learnt import LearntPosterior
    from smatter.records import Progress
    from smatter.route.store import TrainedRouter


@dataclass(frozen=True)
class BayesSettings:
    """How a posterior is used.

    Args:
        router: the router, with a posterior.
        decision: point, mean, map, gibbs:K, top:K or half:K, the router's own routing with half of the weight and the K
            likeliest others with the rest; half:3 by default, and map with a catalogue.
        abstain: a score, and at which share or error of calibration tasks it becomes too high: SCORE@coverage=0.8,
            which SCORE alone means too, or SCORE@risk=0.3; never by default. Some scores look at queries.
        fallback: what is done then: escalate, base, prior-mean, or a source's name.
        seed: of what gibbs draws.
        catalogue: a file of routings that are chosen among, instead of the posterior's own; a router without a
            posterior chooses by their losses on the examples.
    """

    router: TrainedRouter | None = None
    decision: str | None = None
    abstain: str | None = None
    fallback: str = ESCALATE
    seed: int = 0
    catalogue: str | None = field(default=None, metadata={"is_told": False, "is_file": True})

    def __post_init__(self) -> None:
        name = self.rule.name
        if self.abstain is not None:
            Limit.parse(self.abstain)
        if self.catalogue is not None and name in ("point", "mean", "half"):
            raise InvalidSettings(f"{self.rule} runs a mixture that is in no catalogue: use map, top:K or gibbs:K")
        if self.catalogue is not None and self.abstain is not None:
            raise InvalidSettings(
                "thresholds are of the posterior's own catalogue: leave out --abstain, or --catalogue"
            )

    @property
    def rule(self) -> Rule:
        """The decision."""
        return Rule.parse(self.decision or (USUAL if self.catalogue is None else "map"))

    @property
    def looks_at_queries(self) -> bool:
        """Whether the score or the posterior does."""
        from smatter.posterior.uncertainty import QUERIES

        if self.router is not None and _asks_for_queries(self.router.posterior):
            return True
        return self.abstain is not None and Limit.parse(self.abstain).score in QUERIES


@method(BayesSettings, needs_router=True, needs_posterior=True)
def bayes(live: LiveMixture, task: Task, settings: BayesSettings, progress: Progress) -> Fit:
    """Decide by a posterior over routings: a pass of each routing of its catalogue."""
    import torch

    from smatter.compose.members import Member
    from smatter.live.objectives import LeaveOneOut
    from smatter.methods.router import RoutedSettings, fit_of
    from smatter.posterior.decide import among_catalogue, decide, deployable
    from smatter.posterior.uncertainty import Facts, check_score, scores_of
    from smatter.records import part
    from smatter.route.abstain import instead, judge, threshold
    from smatter.route.encode import as_mixture
    from smatter.route.opening import route_task
    from smatter.route.table import base_row, pass_routings

    assert settings.router is not None and isinstance(task.objective, LeaveOneOut)
    rule, trained, library = settings.rule, settings.router, live.library
    posterior, base = _posterior(live, trained, settings.catalogue), library.manifest.base
    check_fallback(settings.fallback, library.names)
    if task.queries is None and _asks_for_queries(posterior):
        raise InvalidSettings("the router's posterior looks at inputs without labels: give them with --queries")
    limit = None if settings.abstain is None else Limit.parse(settings.abstain)
    most = math.inf
    if limit is not None:  # what no pass of a network can mend is told before the first
        check_score(limit.score, has_queries=task.queries is not None)
        most = threshold(posterior.calibration(str(rule)), limit, trained.certificates)
    routed = route_task(live, task.objective, trained, progress=part(progress, 0.5))
    table = pass_routings(live, task.objective, routed, posterior.catalogue, task.queries)
    progress(0.5)
    found, point = posterior(table), table.points[0]
    told = Decision(outcome="routed", rule=str(rule))
    facts = None
    if settings.catalogue is None:  # others may lack the base, and have no calibration to compare scores with
        facts = Facts(table, found, posterior.log_prior, base_row(posterior.catalogue, library.names.index(base)))
    if limit is not None and facts is not None:
        told = judge(facts, limit, most, posterior.calibration(str(rule)), settings.fallback)
    if told.outcome == "routed":
        generator = torch.Generator().manual_seed(settings.seed)
        able = deployable(found, rule, table)
        able = able if settings.catalogue is None else among_catalogue(able, table)
        deployed = decide(rule, able, point, generator)
    else:
        deployed = instead(settings.fallback, routed, point, library.names, base)
    n_sources = len(library.names)
    own, *others = (as_mixture(live, each[None, :n_sources], library.names).without_idle() for each in deployed.points)
    plain = fit_of(live, task, RoutedSettings(router=trained), routed)
    return replace(
        plain,
        mixture=own,
        experts=trained.mix(live, deployed.points[0, n_sources:-1]),
        members=tuple(Member(float(w), each) for w, each in zip(deployed.weights[1:], others, strict=True)),
        uncertainty=plain.uncertainty if facts is None else {**plain.uncertainty, **scores_of(facts)},
        decision=told.model_copy(update={"passes": float(len(deployed.points))}),
    )


def _asks_for_queries(posterior: LearntPosterior | None) -> bool:
    """Whether a posterior looks at unlabelled queries."""
    return posterior is not None and posterior.network is not None and posterior.network.settings.queries


def _posterior(live: LiveMixture, trained: TrainedRouter, catalogue: str | None) -> LearntPosterior:
    """The router's posterior, over another catalogue if one is given; refuses one that is for other sources."""
    from smatter.posterior.learnt import LearntPosterior
    from smatter.posterior.prior import uniform_prior
    from smatter.route.kept import read_catalogue
    from smatter.route.table import row_names

    known, digests = trained.posterior, live.library.manifest.digests
    if known is None and catalogue is None:
        raise InvalidRouter(
            "the router has no posterior over routings: give it one with `smatter train LIB SUITE -o NEW --from ROUTER "
            "--posterior categorical`"
        )
    sources = {name: digests[name] for name in live.library.names}
    if known is not None and list(sources.values()) != list(known.sources.values()):
        raise InvalidRouter(
            "the posterior is for other sources than the library's: train it anew, or adapt with --method router"
        )
    if catalogue is None:
        assert known is not None
        return known
    chosen = read_catalogue(Path(catalogue)).check_fits(live.library, trained)
    log_prior = uniform_prior(len(row_names(chosen)))
    if known is not None:
        return replace(known, catalogue=chosen, log_prior=log_prior, calibrations={})
    return LearntPosterior(None, chosen, log_prior=log_prior, sources=sources)
