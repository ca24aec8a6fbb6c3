"""How well scores of uncertainty tell misrouted tasks, and what abstaining and escalating are worth, for `bayes.py`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from bayes_compared import Found, draw_of
from bayes_rules import Case, Outcome, judge
from common import Rows
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from smatter.backbones.heads import prototype_temperature
from smatter.posterior.prior import uniform_prior
from smatter.posterior.uncertainty import QUERIES, SCORES, SUPPORT, Facts
from smatter.scores.coverage import area_under_risk_coverage, risk_with_fallback, selective_risk_at, share_of_gain
from smatter.scores.hindsight import hindsight_of, split_halves
from smatter.scores.intervals import Interval, bootstrap_interval
from smatter.scores.ranking import auroc, average_ranks, partial_rank_correlation

Floats = NDArray[np.float64]
EXCESS = 0.1
"""Nats by which another routing must be better for a task to count as misrouted."""

FREE = ("loss", "doubt", "narrowness")
"""Scores that need no posterior: they tell how hard a task is."""

LEARNT, LEARNT_SUPPORT = "learnt", "learnt, support only"
N_RESAMPLES = 500


def scores_of(case: Case, posterior: str, log_prior: torch.Tensor) -> dict[str, float]:
    """Every score of one task; one that cannot be told is in the middle later."""
    facts = Facts(case.table, case.posteriors[posterior], log_prior, case.row("base"))
    return {name: score(facts) for name, score in SCORES.items()}


def query_losses(case: Case) -> Floats:
    """Loss of each query by each routing, (n_routings, n_queries)."""
    table, known = case.table, case.table.truth >= 0
    logits = table.scores[:, known].double() / prototype_temperature(table.n_shot)
    rows = [cross_entropy(each, table.truth[known], reduction="none") for each in logits]
    return torch.stack(rows).numpy()


@dataclass(frozen=True)
class Regret:
    """By how much one routing's loss is above that of the one that labels of queries choose.

    Args:
        naive: chosen and scored on the same queries.
        crossed: chosen on one half and scored on the other.
        halves: two estimates of the second, from halves of the queries that share none; what one says of the other is
            what labels could say.
        best_error: error in percent of the cross-fitted choice.
    """

    naive: float
    crossed: float
    halves: tuple[float, float]
    best_error: float
    naive_error: float


def regret_of(case: Case) -> Regret:
    """Of the router's point, over all routings of a task."""
    losses = query_losses(case)
    known = case.table.truth >= 0
    wrong = (case.table.scores[:, known].argmax(dim=-1) != case.table.truth[known]).double().numpy()
    generator = np.random.default_rng([5, case.number])
    found = hindsight_of(losses, generator=generator)
    errors = hindsight_of(wrong, generator=generator, chosen_by=losses)
    half = split_halves(losses.shape[1], 1, generator)[0]
    halves = []
    for part in (half, ~half):
        some = losses[:, part]
        halves.append(
            float(some[0].mean()) - hindsight_of(some, generator=generator).crossed if part.sum() > 3 else 0.0
        )
    own = float(losses[0].mean())
    return Regret(
        own - found.naive, own - found.crossed, (halves[0], halves[1]), 100 * errors.crossed, 100 * errors.naive
    )


@dataclass(frozen=True)
class Study:
    """Scores and outcomes of many tasks.

    Args:
        scores: by name, (n_tasks,) each.
        excess: of the point over the cross-fitted best, in nats, (n_tasks,).
        halves: two independent estimates of it, (2, n_tasks).
        outcomes: of rules, by name, one for each task.
        lists: of each task.
        draws: of each task; those of one draw are alike.
        ways: classes of each task.
        base_loss: of each task.
        margin: of the base, of each task.
    """

    scores: Mapping[str, Floats]
    excess: Floats
    halves: Floats
    outcomes: Mapping[str, Sequence[Outcome]]
    lists: Sequence[str]
    draws: Sequence[str]
    ways: Floats
    base_loss: Floats
    margin: Floats

    @cached_property
    def misrouted(self) -> Floats:
        """Whether another routing is clearly better."""
        return (self.excess > EXCESS).astype(float)

    def errors(self, rule: str) -> Floats:
        """Errors of a rule in percent."""
        return np.array([each.error for each in self.outcomes[rule]])

    def interval(self, statistic: object) -> Interval:
        """Over draws."""
        generator = np.random.default_rng(17)
        return bootstrap_interval(statistic, self.draws, generator=generator, n_resamples=N_RESAMPLES)  # type: ignore[arg-type]


def filled(values: Sequence[float]) -> Floats:
    """Scores with the median where one could not be told."""
    found = np.array(values, float)
    return np.where(np.isnan(found), np.nanmedian(found), found)


class Learnt:
    """A score learnt from others: least squares on their ranks among the training tasks, with a ridge.

    Args:
        scores: of the training tasks, by name, (n_tasks,) each.
        excess: what is predicted, its rank, (n_tasks,).
        names: of the scores that it may use.
    """

    def __init__(self, scores: Mapping[str, Floats], excess: Floats, names: Sequence[str]) -> None:
        self.names = names
        self.known = {name: np.sort(scores[name]) for name in names}
        design = self._design(scores)
        target = average_ranks(excess) / len(excess) - 0.5
        gram = design.T @ design + 0.02 * len(excess) * np.eye(design.shape[1])
        self.weights = np.linalg.solve(gram, design.T @ target)

    def _design(self, scores: Mapping[str, Floats]) -> Floats:
        """Ranks among the training tasks, and their squares, centred."""
        ranks = [np.searchsorted(self.known[name], scores[name]) / len(self.known[name]) - 0.5 for name in self.names]
        return np.stack([*ranks, *(each**2 - 1 / 12 for each in ranks)], axis=1)

    def __call__(self, scores: Mapping[str, Floats]) -> Floats:
        """Of other tasks, (n_tasks,)."""
        return self._design(scores) @ self.weights


def score_rows(study: Study, gains: Floats) -> list[dict[str, object]]:
    """Every score: what it knows of misrouting, of hardness, and of where more passes pay."""
    errors, rows = study.errors("point"), []
    covariates, groups = (study.ways, study.base_loss, study.margin), (study.lists,)
    for name, values in study.scores.items():
        found = study.interval(lambda rows, v=values: auroc(v[rows], study.misrouted[rows]))
        partial = partial_rank_correlation(values, study.excess, covariates=covariates, memberships=groups)
        kept = study.interval(lambda rows, v=values: share_of_gain(v[rows], gains[rows], 0.5))
        rows.append(
            {
                "score": name, "looks_at": "support" if name in SUPPORT or name == LEARNT_SUPPORT else "queries",
                "auroc": found.mean, "auroc_low": found.low, "auroc_high": found.high, "partial": partial,
                "hardness": float(np.corrcoef(average_ranks(values), average_ranks(errors))[0, 1]),
                "gain_kept_at_half": kept.mean, "gain_kept_low": kept.low, "gain_kept_high": kept.high,
                "selective_80": selective_risk_at(values, errors, 0.8).share_of_oracle,
                "selective_95": selective_risk_at(values, errors, 0.95).share_of_oracle,
                "aurc": area_under_risk_coverage(values, errors).risk,
            }
        )  # fmt: skip
    return rows


def fallback_rows(study: Study, score: str, fallbacks: Sequence[str]) -> list[dict[str, object]]:
    """Error over all tasks where the least sure get something else."""
    values, own, rows = study.scores[score], study.errors("point"), []
    for fallback in fallbacks:
        other = study.errors(fallback)
        for coverage in (0.5, 0.65, 0.8, 0.95):
            chance = study.interval(
                lambda rows, o=other, c=coverage: (
                    risk_with_fallback(values[rows], own[rows], o[rows], c) - float(own[rows].mean())
                )
            )
            plain = float((other - own).mean()) * (1 - coverage)
            rows.append(
                {
                    "score": score, "fallback": fallback, "coverage": coverage, "difference": chance.mean,
                    "low": chance.low, "high": chance.high, "at_random": plain,
                }
            )  # fmt: skip
    return rows


def names_for(which: str) -> list[str]:
    """Scores that a learnt one may use."""
    return list(SUPPORT) if which == LEARNT_SUPPORT else [*SUPPORT, *QUERIES]


def ceiling(study: Study) -> float:
    """AUROC of one half of the labelled queries for what the other says."""
    first, second = study.halves
    found = [auroc(a, (b > EXCESS).astype(float)) for a, b in ((first, second), (second, first))]
    return math.fsum(found) / 2


def study_of(
    cases: Sequence[Case], found: Found, jobs: Sequence[tuple[str, int]], learnt: Mapping[str, Learnt]
) -> Study:
    """Scores and outcomes of some tasks; `learnt` scores from others are added."""
    prior = uniform_prior(len(cases[0].names))
    rows = [scores_of(case, "gibbs", prior) for case in cases]
    scores = {name: filled([row[name] for row in rows]) for name in rows[0]}
    scores |= {name: each(scores) for name, each in learnt.items()}
    regrets = [regret_of(case) for case in cases]
    base = [judge(case, case.one(case.row("base"))) for case in cases]
    return Study(
        scores,
        excess=np.array([each.crossed for each in regrets]),
        halves=np.array([each.halves for each in regrets]).T,
        outcomes=found,
        lists=[name for name, _ in jobs],
        draws=[draw_of(*job) for job in jobs],
        ways=np.array([case.table.n_classes for case in cases], float),
        base_loss=np.array([each.loss for each in base]),
        margin=np.array([float(each.sure.mean()) for each in base]),
    )


def uncertainty(figures: dict[str, float], known: Study, study: Study, several: str) -> dict[str, Rows]:
    """Misrouting, abstention and escalation.

    Args:
        figures: what is found is added.
        known: of validation tasks, on which scores, and how many tasks are escalated, are chosen.
        study: of the judged tasks.
        several: the rule that unsure tasks escalate to.
    """
    gains = study.errors("point") - study.errors(several)
    rows = score_rows(study, gains)
    for name, where in (("", "queries"), ("_support", "support")):
        best = LEARNT if where == "queries" else LEARNT_SUPPORT
        row = next(row for row in rows if row["score"] == best)
        figures |= {f"misrouting_auroc{name}": row["auroc"], f"misrouting_auroc{name}_low": row["auroc_low"],
                    f"misrouting_auroc{name}_high": row["auroc_high"], f"misrouting_partial{name}": row["partial"],
                    f"gain_kept_at_half{name}": row["gain_kept_at_half"]}  # fmt: skip
        figures[f"misrouting_auroc{name}_best_single"] = max(
            row["auroc"] for row in rows if row["looks_at"] == where and "learnt" not in str(row["score"])
        )
    figures |= {"misrouted": float(study.misrouted.mean()), "misrouting_auroc_labels": ceiling(study)}
    chosen = {}
    errors = known.errors("point")
    support = [str(row["score"]) for row in rows if row["looks_at"] == "support"]
    for label, names in (("with_queries", list(study.scores)), ("support", support), ("routing_free", list(FREE))):
        chosen[label] = max(names, key=lambda name: selective_risk_at(known.scores[name], errors, 0.8).share_of_oracle)
    shares = {
        (label, coverage): selective_risk_at(study.scores[name], study.errors("point"), coverage).share_of_oracle
        for label, name in chosen.items()
        for coverage in (0.8, 0.95)
    }
    figures |= {
        "selective_share_of_oracle_80": shares["with_queries", 0.8],
        "selective_share_support_80": shares["support", 0.8],
        "selective_share_of_oracle_95": shares["with_queries", 0.95],
        "selective_share_support_95": shares["support", 0.95],
        "routing_adds_80": shares["with_queries", 0.8] - shares["routing_free", 0.8],
    }
    fallbacks = fallback_rows(study, LEARNT, (several, "members 7", "base", "equal weights"))
    told = [row for row in fallback_rows(known, LEARNT, (several,)) if 0.5 <= row["coverage"] <= 0.8]
    coverage = min(told, key=lambda row: row["difference"])["coverage"]
    best = next(row for row in fallbacks if (row["fallback"], row["coverage"]) == (several, coverage))
    figures["escalated"] = 1 - coverage
    figures |= {"escalation_risk_difference": best["difference"], "escalation_risk_difference_low": best["low"],
                "escalation_risk_difference_high": best["high"]}  # fmt: skip
    return {
        "scores": rows,
        "fallbacks": fallbacks,
        "chosen": [{"for": key, "score": name} for key, name in chosen.items()],
    }


def misrouted_rows(study: Study, names: Sequence[str]) -> Rows:
    """How many tasks are misrouted among those of like scores, a tenth of the tasks each."""
    rows: Rows = []
    for name in names:
        order = np.argsort(study.scores[name], kind="stable")
        for tenth in np.array_split(order, 10):
            score, share = float(study.scores[name][tenth].mean()), float(study.misrouted[tenth].mean())
            rows.append(
                {"score": name, "value": score, "misrouted": share, "excess": float(study.excess[tenth].mean())}
            )
    return rows


def answer_rows(study: Study, rules: Sequence[str]) -> Rows:
    """Abstaining answer by answer, the least confident first, all tasks together: area under risk and coverage."""
    rows: Rows = []
    for rule in rules:
        unsure = np.concatenate([1 - each.sure.detach().numpy() for each in study.outcomes[rule]])
        wrong = np.concatenate([~each.right.numpy() for each in study.outcomes[rule]]).astype(float)
        found = area_under_risk_coverage(unsure, wrong)
        rows.append({"rule": rule, "answers": len(wrong), "aurc": found.risk, "oracle": found.oracle,
                     "random": found.random, "share of oracle": found.share_of_oracle})  # fmt: skip
    return rows
