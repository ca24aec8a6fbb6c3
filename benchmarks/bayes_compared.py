"""Rules of `bayes.py` beside each other and beside what was there before, with intervals over draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from bayes_rules import Outcome
from common import Rows
from signs_tasks import Scores

from smatter.scores.intervals import Interval, bootstrap_interval
from smatter.scores.tail import cvar_of, cvar_reduction, quantile_of, worst_group_mean

HARM = 5.0
"""Points below the base that count as harm."""

Found = Mapping[str, Sequence[Outcome]]


def draw_of(name: str, index: int) -> str:
    """Tasks of one draw differ in their shifts alone."""
    _, *words = name.split("-")
    kind = next((word for word in reversed(words) if word in ("id", "ood", "mixed")), "ood")
    shots = next((word for word in words if word in ("1", "2") and words[0] in ("id", "ood", "mixed")), "5")
    return f"{kind} {shots} {index}"


def errors_of(found: Found, rule: str) -> np.ndarray:
    return np.array([each.error for each in found[rule]])


def losses_of(found: Found, rule: str) -> np.ndarray:
    return np.array([each.loss for each in found[rule]])


class Compared:
    """Rules on the same tasks, against each other and what is in no table.

    Args:
        found: outcomes of each rule.
        beside: errors and losses of what is in no table, task by task, from each source.
        jobs: the tasks.
    """

    def __init__(self, found: Found, beside: Sequence[Sequence[Scores]], jobs: Sequence[tuple[str, int]]) -> None:
        self.found, self.jobs, self.draws = found, jobs, [draw_of(*job) for job in jobs]
        self.beside = {key: np.array([each[key] for each in tasks]) for tasks in beside for key in tasks[0]}
        self.peers = tuple(key.removesuffix(" error") for key in self.beside if key.endswith(" error"))

    def of(self, rule: str, what: str = "error") -> np.ndarray:
        """Of a rule on each task, (n_tasks,)."""
        if rule in self.peers:
            return self.beside[f"{rule} {what}"]
        return (errors_of if what == "error" else losses_of)(self.found, rule)

    def gain(self, rule: str, peer: str, what: str = "error") -> Interval:
        """By how much a rule is better."""
        difference = self.of(peer, what) - self.of(rule, what)
        return self.interval(lambda rows: float(difference[rows].mean()))

    def interval(self, statistic: object) -> Interval:
        """Over draws."""
        generator = np.random.default_rng(3)
        return bootstrap_interval(statistic, self.draws, generator=generator, n_resamples=1000)  # type: ignore[arg-type]

    def tail(self, rule: str, peer: str, what: str, share: float = 0.1) -> Interval:
        """By which share the tail of a rule is lower."""
        ours, theirs = self.of(rule, what), self.of(peer, what)
        generator = np.random.default_rng(4)
        return cvar_reduction(ours, theirs, share, self.draws, generator=generator, n_resamples=1000)

    def row(self, rule: str) -> dict[str, object]:
        """All of a rule."""
        errors, losses = self.of(rule), self.of(rule, "loss")
        row: dict[str, object] = {"rule": rule}
        if rule not in self.peers:
            row["networks"] = float(np.mean([each.networks for each in self.found[rule]]))
        row |= {"error": errors.mean(), "loss": losses.mean()}
        for peer in ("today", "point", "members 4"):
            gain = self.gain(rule, peer)
            row |= {f"over {peer}": gain.mean, f"over {peer}, low": gain.low, f"over {peer}, high": gain.high}
        for share in (0.05, 0.1, 0.2):
            row |= {f"CVaR {share} of error": cvar_of(errors, share), f"CVaR {share} of loss": cvar_of(losses, share)}
        row |= {f"quantile {level}": quantile_of(errors, level) for level in (0.9, 0.95)}
        groups = [name.partition("-")[2] for name, _ in self.jobs]
        row["worst list"] = worst_group_mean(errors, groups).mean
        row["harm"] = self.harm(rule)
        return row

    def harm(self, rule: str) -> float:
        """Share of the tasks on which a rule is clearly worse than the base."""
        return float((self.of(rule) > self.of("plain base") + HARM).mean())


def group_rows(compared: Compared, rules: Sequence[str]) -> Rows:
    """Mean error of some rules on each kind of list."""
    rows: Rows = []
    kinds = [name.partition("-")[2] for name, _ in compared.jobs]
    groups = {"clean": ["id", "ood", "mixed"], "renderings": ["outside"], "corrupt": ["corrupt"]}
    chosen = {what: [kind.split("-")[0] in heads for kind in kinds] for what, heads in groups.items()}
    chosen |= {f"{n} shots": [kind.endswith(f"-{n}") and "corrupt" not in kind for kind in kinds] for n in (1, 2, 5)}
    chosen |= {kind: [each == kind for each in kinds] for kind in dict.fromkeys(kinds)}
    for what, mask in chosen.items():
        some = np.array(mask)
        if some.any():
            told: dict[str, object] = {"lists": what, "tasks": int(some.sum())}
            rows.append(told | {rule: float(compared.of(rule)[some].mean()) for rule in rules})
    return rows


def put(figures: dict[str, float], name: str, interval: Interval) -> None:
    """A figure with its interval."""
    figures |= {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}
