"""Curves of `bayes.py`, as rows and as a picture: passes, what hindsight is worth, who abstains, and confidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from bayes_compared import Found, errors_of
from bayes_rules import Case, Outcome, Rule
from bayes_uncertainty import Study, query_losses, regret_of
from common import Rows
from theory_plots import Panel, draw, of_rows

from smatter.backbones.heads import prototype_temperature
from smatter.scores.calibration import Answers, answers_of, calibration_of, pooled_answers
from smatter.scores.coverage import risk_coverage
from smatter.scores.hindsight import hindsight_of
from smatter.scores.intervals import Interval, bootstrap_interval
from smatter.scores.reliability import calibration_error, reliability_rows

SIZES = (1, 2, 4, 8, 16)
SHARES = tuple(share / 20 for share in range(1, 21))


def hindsight_rows(cases: Sequence[Case]) -> Rows:
    """What the best of a few random routings and the point gains by the queries' labels: naive, and cross-fitted."""
    found: dict[int, list[tuple[float, float]]] = {size: [] for size in SIZES}
    for case in cases:
        generator = np.random.default_rng([9, case.number])
        known = case.table.truth >= 0
        wrong = (case.table.scores[:, known].argmax(dim=-1) != case.table.truth[known]).double().numpy()
        losses, order = query_losses(case), 1 + generator.permutation(len(case.names) - 1)
        for size in SIZES:
            rows = [0, *order[:size]]
            best = hindsight_of(wrong[rows], generator=generator, chosen_by=losses[rows])
            own = float(wrong[0].mean())
            found[size].append((100 * (own - best.naive), 100 * (own - best.crossed)))
    return [
        {"routings": size + 1, "naive": np.mean([naive for naive, _ in each]), "crossed": np.mean([c for _, c in each])}
        for size, each in found.items()
    ]


def coverage_rows(study: Study, scores: Mapping[str, str]) -> Rows:
    """Mean error of the tasks that are kept, at several shares.

    Args:
        study: of the judged tasks.
        scores: what each curve is called, and the score that it follows.
    """
    errors = study.errors("point")
    curves = {name: risk_coverage(study.scores[score], errors) for name, score in scores.items()}
    curves["oracle"] = risk_coverage(errors, errors)
    rows: Rows = []
    for share in SHARES:
        at = int(np.ceil(share * len(errors))) - 1
        rows.append({"coverage": share, **{name: float(curve.risk[at]) for name, curve in curves.items()}})
    return rows


def sure_rows(found: Mapping[str, Sequence[Outcome]], rules: Sequence[str]) -> Rows:
    """How often answers of some confidence are right."""
    rows: Rows = []
    for rule in rules:
        sure = np.concatenate([each.sure.detach().numpy() for each in found[rule]])
        right = np.concatenate([each.right.numpy() for each in found[rule]]).astype(float)
        gap = calibration_error(sure, right)
        for each in reliability_rows(sure, right, n_bins=10):
            rows.append({"rule": rule, "sure": each.score, "right": each.rate, "answers": each.n, "ece": gap})
    return rows


def calibration_rows(cases: Sequence[Case], rules: Mapping[str, Rule]) -> Rows:
    """How well the chances of answers agree with what is right, with the heads' temperature and without."""
    rows: Rows = []
    for label, rule in rules.items():
        found: dict[str, list[Answers]] = {"none": [], "of the head": []}
        for case in cases:
            table, weights = case.table, rule(case)
            known = table.truth >= 0
            scores = torch.tensordot(weights.to(table.scores), table.scores[:, known], 1).double()
            for what, temperature in zip(
                found, (1.0, prototype_temperature(table.n_shot, int((weights > 0).sum()))), strict=True
            ):
                chances = (scores / temperature).softmax(dim=1)
                found[what].append(answers_of(chances.numpy(), table.truth[known].numpy()))
        for what, answers in found.items():
            rows.append({"rule": label, "temperature": what, **asdict(calibration_of(pooled_answers(answers)))})
    return rows


def picture(path: Path, tables: Mapping[str, Rows]) -> None:
    """Four panels.

    Args:
        path: of the SVG.
        tables: of the result.
    """
    rules = {str(row["rule"]): row for row in tables["rules"]}

    def several(name: str, labels: Sequence[str]) -> object:
        rows = [
            {"x": rules[label]["networks"], "y": rules[label]["over today"], "y_low": rules[label]["over today, low"],
             "y_high": rules[label]["over today, high"]}
            for label in labels
        ]  # fmt: skip
        return of_rows(name, rows, "x", "y")

    passes = [
        several(
            "learnt posterior, half of the weight for the point", ["point", *(f"half {k}, average" for k in (2, 4, 8))]
        ),
        several("sources by weight (members)", ["point", *(f"members {k}" for k in (2, 4, 7))]),
        several("random sources", ["point", *(f"random members {k}" for k in (2, 4))]),
        several("plain average of predictions", ["uniform predictions"]),
    ]
    curves = [name for name in tables["coverage"][0] if name != "coverage"]
    panels = [
        Panel("Gain over the first router, in points", "networks of a task", "", passes, from_zero=False),
        Panel(
            "Best routing by the queries' own labels, gain in points", "routings to choose from", "",
            [of_rows("chosen and scored on the same", tables["hindsight"], "routings", "naive"),
             of_rows("cross-fitted", tables["hindsight"], "routings", "crossed")],
        ),
        Panel(
            "Error of the tasks that are kept, in percent", "share of the tasks", "",
            [of_rows(name, tables["coverage"], "coverage", name, mark="line") for name in curves], from_zero=False,
        ),
        Panel(
            "How often answers are right", "confidence", "",
            [of_rows(rule, [row for row in tables["reliability"] if row["rule"] == rule], "sure", "right")
             for rule in dict.fromkeys(str(row["rule"]) for row in tables["reliability"])],
        ),
    ]  # fmt: skip
    draw(path, panels)  # type: ignore[arg-type]


def part_rows(cases: Sequence[Case], found: Found, jobs: Sequence[tuple[str, int]]) -> Rows:
    """The error of the point in two parts: that of the best routing, cross-fitted, and what the routing adds."""
    own, best = errors_of(found, "point"), np.array([regret_of(case).best_error for case in cases])
    kinds = [name.split("-")[1] for name, _ in jobs]
    groups = {"all": list(kinds), "clean": ["id", "ood", "mixed"], "renderings": ["outside"], "corrupt": ["corrupt"]}
    rows: Rows = []
    for what, heads in groups.items():
        some = np.array([kind in heads for kind in kinds])
        if some.any():
            within, routing = float(best[some].mean()), float((own - best)[some].mean())
            rows.append({"lists": what, "tasks": int(some.sum()), "error": within + routing, "within": within,
                         "routing": routing})  # fmt: skip
    return rows


def hindsight_figures(cases: Sequence[Case], found: Found, draws: Sequence[str]) -> tuple[dict[str, float], Interval]:
    """What knowing the labels would give at one routing; and the gain of it, cross-fitted."""
    regrets = [regret_of(case) for case in cases]
    own = errors_of(found, "point")
    crossed = own - np.array([each.best_error for each in regrets])
    naive = own - np.array([each.naive_error for each in regrets])
    generator = np.random.default_rng(6)
    gain = bootstrap_interval(lambda rows: float(crossed[rows].mean()), draws, generator=generator, n_resamples=1000)
    return {"naive": float(naive.mean()), "cross-fitted": gain.mean}, gain
