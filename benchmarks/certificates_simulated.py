"""Simulations behind certificates.py: every bound against a truth that is known, one row each."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from common import Rows
from scipy import integrate, stats

from smatter.certify.bound import UpperBound
from smatter.certify.conformal import (
    adaptive_scores,
    conformal_limit,
    conformal_limit_of_tasks,
    coverage_by_group,
    excess_loss_limit,
    least_ambiguous_scores,
    limits_by_group,
    prediction_sets,
    true_class_scores,
)
from smatter.certify.ensembles import average_bound, gibbs_losses, map_loss_limits
from smatter.certify.mean import MEAN_BOUNDS, mean_bound_betting, mean_bound_kl, mean_bounds_of_choices
from smatter.certify.pac_bayes import pac_bayes_kl, pac_bayes_mcallester, relative_entropy
from smatter.certify.selective import learn_then_test, mean_bound_binomial, selective_bound
from smatter.certify.streams import block_mean_bound, mean_sequence_betting, running_mean_sequence
from smatter.certify.tail import CVAR_BOUNDS, cvar_bound_pac_bayes

DELTA, SHARE = 0.05, 0.1
Draw = Callable[[np.random.Generator, int], np.ndarray]
Trial = Callable[[np.random.Generator], Iterator[tuple[str, bool, float]]]
"""One draw: the name of each bound that it tries, whether the bound failed, and its gap (NaN where it has none)."""


@dataclass(frozen=True)
class Shape:
    """Losses whose mean and CVaR are known.

    Args:
        name: in the tables.
        draw: n losses.
        mean: true.
        cvar: true, of the worst share.
        is_task: a mean over the queries of a task; others are single errors, or rare disasters.
    """

    name: str
    draw: Draw
    mean: float
    cvar: float
    is_task: bool = True


def tasks(name: str, a: float, b: float, n_queries: int = 75) -> Shape:
    """Share of wrong answers in tasks whose difficulty varies: binomial with a beta-distributed rate."""
    masses = stats.betabinom(n_queries, a, b).pmf(np.arange(n_queries + 1))
    values = np.arange(n_queries + 1) / n_queries

    def draw(generator: np.random.Generator, n: int) -> np.ndarray:
        return generator.binomial(n_queries, generator.beta(a, b, n)) / n_queries

    return Shape(name, draw, float(masses @ values), _cvar(values, masses))


def _cvar(values: np.ndarray, masses: np.ndarray) -> float:
    before = np.concatenate([[0.0], np.cumsum(masses[::-1])[:-1]])
    return float(np.clip(np.minimum(masses[::-1], SHARE - before), 0, None) @ values[::-1] / SHARE)


def spread(name: str, a: float, b: float) -> Shape:
    law = stats.beta(a, b)
    cvar = integrate.quad(law.isf, 0, SHARE)[0] / SHARE
    return Shape(name, lambda generator, n: generator.beta(a, b, n), float(law.mean()), float(cvar))


def coin(rate: float) -> Shape:
    def draw(generator: np.random.Generator, n: int) -> np.ndarray:
        return (generator.random(n) < rate).astype(float)

    return Shape(f"errors, {rate:g}", draw, rate, min(1.0, rate / SHARE), False)


def rare(rate: float, bad: float, good: float) -> Shape:
    def draw(generator: np.random.Generator, n: int) -> np.ndarray:
        return np.where(generator.random(n) < rate, bad, good)

    cvar = bad if rate >= SHARE else (rate * bad + (SHARE - rate) * good) / SHARE
    return Shape(f"disasters, {rate:g}", draw, rate * bad + (1 - rate) * good, cvar, False)


SHAPES = (
    tasks("tasks, easy", 1.5, 12), tasks("tasks, middling", 3, 7), tasks("tasks, of all kinds", 0.8, 1.6),
    spread("beta 2, 5", 2, 5), coin(0.05), coin(0.5), rare(0.05, 0.9, 0.1),
)  # fmt: skip


def of_a_mean(shape: Shape, n: int) -> Trial:
    def trial(generator: np.random.Generator) -> Iterator[tuple[str, bool, float]]:
        losses = shape.draw(generator, n)
        for name, bound in MEAN_BOUNDS.items():
            yield _judged(f"mean, {name}", bound(losses, DELTA), shape.mean)
        if not shape.is_task and shape.name.startswith("errors"):
            yield _judged("mean, binomial tail", mean_bound_binomial(losses, DELTA), shape.mean)

    return trial


def of_a_tail(shape: Shape, n: int) -> Trial:
    def trial(generator: np.random.Generator) -> Iterator[tuple[str, bool, float]]:
        losses = shape.draw(generator, n)
        for name, bound in CVAR_BOUNDS.items():
            yield _judged(f"CVaR, {name}", bound(losses, SHARE, DELTA), shape.cvar)

    return trial


def of_choices(shape: Shape, n: int, k: int = 20) -> Trial:
    """k routers that are equally good; the one that looks best on the tasks is certified on the same tasks."""
    prior = np.full(k, 1 / k)

    def trial(generator: np.random.Generator) -> Iterator[tuple[str, bool, float]]:
        losses = shape.draw(generator, k * n).reshape(k, n)
        best = int(losses.mean(axis=1).argmin())
        chosen = mean_bounds_of_choices(losses, DELTA, mean_bound_kl)[best]
        yield _judged(f"mean, best of {k}", chosen, shape.mean)
        posterior = np.exp(-50 * (losses.mean(axis=1) - losses.mean(axis=1).min()))
        posterior /= posterior.sum()
        gibbs, divergence = posterior @ losses, float(relative_entropy(posterior, prior))
        yield _judged("mean, PAC-Bayes (McAllester)", pac_bayes_mcallester(gibbs, divergence, DELTA), shape.mean)
        yield _judged("mean, PAC-Bayes (kl)", pac_bayes_kl(gibbs, divergence, DELTA), shape.mean)
        one = np.eye(k)[best]  # CVaR of a mixture is not known in closed form, that of one router is
        yield _judged("CVaR, PAC-Bayes", cvar_bound_pac_bayes(losses, one, prior, SHARE, DELTA), shape.cvar)

    return trial


def of_selection(n: int) -> Trial:
    """Uncertainty u is uniform and a task errs with probability u / 2: the risk up to u is u / 4, the coverage u."""
    thresholds = np.linspace(0.2, 1.0, 17)

    def trial(generator: np.random.Generator) -> Iterator[tuple[str, bool, float]]:
        scores = generator.random(n)
        losses = (generator.random(n) < scores / 2).astype(float)
        found = selective_bound(losses, scores, 0.4, DELTA, mean_bound_binomial)
        yield _judged("selective risk, threshold fixed", found.risk, 0.1)
        yield "coverage from below", found.coverage_low > 0.4, found.coverage - found.coverage_low
        for in_sequence, name in ((False, "all at once"), (True, "in sequence")):
            chosen = learn_then_test(
                losses, scores, thresholds, 0.12, DELTA, bound=mean_bound_binomial, in_sequence=in_sequence
            )
            failed = chosen is not None and chosen.threshold / 4 > 0.12
            yield f"learn then test, {name}", failed, chosen.risk.gap if chosen else np.nan

    return trial


def of_ensembles(n: int, n_routings: int = 4, n_classes: int = 5) -> Trial:
    """Predictions of routings for n tasks of one query each; the truth is the mean over 20,000 such tasks."""

    def draw(generator: np.random.Generator, count: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        logits = 1.5 * np.eye(n_classes)[0] + generator.normal(size=(count, n_routings, n_classes))
        predictions = np.exp(2 * logits)
        predictions /= predictions.sum(axis=2, keepdims=True)
        posterior = generator.dirichlet(np.ones(n_routings), count)
        average = (posterior[:, :, None] * predictions).sum(axis=1)
        truth = np.eye(n_classes)[0]
        wrong = (predictions.argmax(axis=2) != 0).astype(float)
        votes = (posterior[:, :, None] * np.eye(n_classes)[predictions.argmax(axis=2)]).sum(axis=1)
        of_map = np.take_along_axis(wrong, posterior.argmax(axis=1)[:, None], axis=1)[:, 0]
        limits = map_loss_limits(gibbs_losses(posterior, wrong), posterior.max(axis=1))
        least = (
            0.01 / n_classes
        )  # probabilities are mixed with a hundredth of the uniform: NLL then has a largest value
        nll = [np.log(0.99 * each + least) / np.log(least) for each in (predictions[:, :, 0], average[:, 0])]
        return {
            "nll": (gibbs_losses(posterior, nll[0]), nll[1]),
            "brier": (
                gibbs_losses(posterior, ((predictions - truth) ** 2).sum(axis=2) / 2),
                ((average - truth) ** 2).sum(axis=1) / 2,
            ),
            "vote error": (gibbs_losses(posterior, wrong), (votes.argmax(axis=1) != 0).astype(float)),
            "soft error": (gibbs_losses(posterior, 1 - predictions[:, :, 0]), (average.argmax(axis=1) != 0) * 1.0),
            "MAP": (limits, of_map),
        }

    true = {name: pair[1].mean() for name, pair in draw(np.random.default_rng(99), 20_000).items()}

    def trial(generator: np.random.Generator) -> Iterator[tuple[str, bool, float]]:
        for name, (gibbs, measured) in draw(generator, n).items():
            bound = mean_bound_betting(gibbs, DELTA)
            found = bound if name == "MAP" else average_bound(bound, name)
            yield f"Gibbs to {name}", found.value < true[name], found.value - float(measured.mean())

    return trial


def of_conformal(n: int) -> Trial:
    """One new query, or one new task, for each calibration set."""

    def trial(generator: np.random.Generator) -> Iterator[tuple[str, bool, float]]:
        logits = generator.normal(size=(n + 1, 5))
        labels = (logits + generator.gumbel(size=(n + 1, 5))).argmax(axis=1)
        predictions = np.exp(3 * logits) / np.exp(3 * logits).sum(axis=1, keepdims=True)
        rules = {
            "LAC": least_ambiguous_scores(predictions),
            "APS": adaptive_scores(predictions),
            "APS, random parts": adaptive_scores(predictions, generator.random(n + 1)),
        }
        for name, scores in rules.items():
            limit = conformal_limit(true_class_scores(scores[:-1], labels[:-1]), DELTA)
            yield f"conformal sets, {name}", not prediction_sets(scores[-1:], limit)[0, labels[-1]], np.nan
        scales = generator.random(n + 1) + 0.1
        excess = scales * generator.normal(size=n + 1)
        limit = excess_loss_limit(excess[:-1], DELTA, scales[:-1])
        yield "conformal limit of excess loss", excess[-1] > scales[-1] * limit.value, np.nan

    return trial


def of_queries(n: int) -> Trial:
    """A query of a new task, for each calibration set; queries of a task are alike, and tasks have 1 to 30 of them."""

    def trial(generator: np.random.Generator) -> Iterator[tuple[str, bool, float]]:
        sizes = generator.choice([1, 5, 30], size=n + 1)
        scores = [generator.normal() + generator.normal(size=size) / size for size in sizes]
        limit = conformal_limit_of_tasks(scores[:-1], DELTA)
        yield "conformal limit, all queries of each task", scores[-1][0] > limit.value, np.nan

    return trial


def of_streams(n: int) -> Trial:
    """Watched after every task: it counts as a failure if the bound was too small at any time."""

    def trial(generator: np.random.Generator) -> Iterator[tuple[str, bool, float]]:
        losses = (generator.random(n) < 0.3).astype(float)
        bounds = mean_sequence_betting(losses, DELTA)
        yield "stream, constant mean (any time)", bool((bounds < 0.3).any()), bounds[-1] - losses.mean()
        expected = 0.3 + 0.25 * np.sin(np.arange(n) / 40 + 6 * generator.random())
        losses = (generator.random(n) < expected).astype(float)
        bounds, truth = running_mean_sequence(losses, DELTA), np.cumsum(expected) / np.arange(1, n + 1)
        yield "stream, drifting (any time)", bool((bounds < truth).any()), bounds[-1] - losses.mean()
        dependent = (np.convolve(generator.random(n + 10) - 0.5, np.ones(11), "valid") > 0).astype(float)
        yield _judged("stream, blocks", block_mean_bound(dependent, 10, 10, DELTA), 0.5)

    return trial


def _judged(name: str, bound: UpperBound, truth: float) -> tuple[str, bool, float]:
    return name, bound.value < truth - 1e-12, bound.gap


def violation_rows(trials: dict[str, Trial], n_draws: int, tick: Callable[[], None], seed: int = 0) -> Rows:
    """How often each bound failed; of several shapes of losses the worst one.

    Args:
        trials: by the shape of their losses.
        n_draws: of each.
        tick: told of each trial.
        seed: of the draws.
    """
    worst: dict[str, dict] = {}
    for number, (shape, trial) in enumerate(trials.items()):
        generator = np.random.default_rng([seed, number])
        failed: dict[str, list[bool]] = {}
        gaps: dict[str, list[float]] = {}
        for _ in range(n_draws):
            for name, is_failure, gap in trial(generator):
                failed.setdefault(name, []).append(bool(is_failure))
                gaps.setdefault(name, []).append(gap)
        for name, each in failed.items():
            mean_gap = float(np.nanmean(gaps[name])) if np.isfinite(gaps[name]).any() else None
            row = {"bound": name, "worst_shape": shape, "violation_rate": float(np.mean(each)), "gap": mean_gap}
            if name not in worst or row["violation_rate"] > worst[name]["violation_rate"]:
                worst[name] = row
        tick()
    return list(worst.values())


def all_trials(n: int) -> dict[str, Trial]:
    """All that is simulated, by the shape of the losses, with n tasks for each draw."""
    trials = {f"{shape.name}": of_a_mean(shape, n) for shape in SHAPES}
    trials |= {f"{shape.name} (tail)": of_a_tail(shape, 2 * n) for shape in SHAPES}
    trials |= {f"{shape.name} (choice)": of_choices(shape, n) for shape in (SHAPES[1], SHAPES[5], SHAPES[4])}
    return trials | {
        "uniform scores": of_selection(2 * n),
        "four routings": of_ensembles(n),
        "sure predictions": of_conformal(n),
        "coins": of_streams(2 * n),
        "alike queries": of_queries(n),
    }


def gap_rows(n_draws: int, tick: Callable[[], None], n_mean: int = 1000, n_tail: int = 5000) -> Rows:
    """How far bounds are above what was measured, at the sizes that an issue names."""
    rows = []
    for number, shape in enumerate(SHAPES):
        generator = np.random.default_rng([1, number])
        gaps: dict[str, list[float]] = {}
        for _ in range(n_draws):
            losses, tail = shape.draw(generator, n_mean), shape.draw(generator, n_tail)
            for name, bound in MEAN_BOUNDS.items():
                gaps.setdefault(f"mean_{name}", []).append(bound(losses, DELTA).gap)
            for name, of_tail in CVAR_BOUNDS.items():
                gaps.setdefault(f"cvar10_{name}", []).append(of_tail(tail, SHARE, DELTA).gap)
        means = {name: float(np.mean(each)) for name, each in gaps.items()}
        rows.append({"losses": shape.name, "is_task": shape.is_task, "mean": shape.mean, "cvar10": shape.cvar} | means)
        tick()
    return rows


def group_coverage_rows(n_draws: int, n_calibration: int = 500) -> Rows:
    """Coverage of sets by class, with one limit for all and with one for each; class 4 is hard to predict."""
    generator, shares = np.random.default_rng(2), np.array([0.3, 0.3, 0.2, 0.1, 0.1])
    found: dict[str, list[dict]] = {"one limit": [], "a limit for each class": []}
    for _ in range(n_draws):
        labels = generator.choice(5, 2 * n_calibration, p=shares)
        strength = np.where(labels == 4, 0.5, 3.0)[:, None]
        logits = strength * np.eye(5)[labels] + generator.normal(size=(len(labels), 5))
        scores = least_ambiguous_scores(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))
        own = true_class_scores(scores, labels)
        known, new = slice(n_calibration), slice(n_calibration, None)
        one = conformal_limit(own[known], 0.1).value
        each = limits_by_group(own[known], labels[known].tolist(), 0.1)
        groups = labels[new].tolist()
        found["one limit"].append(coverage_by_group(own[new] <= one, groups))
        limits = np.array([each[group].value if group in each else np.inf for group in groups])
        found["a limit for each class"].append(coverage_by_group(own[new] <= limits, groups))
    return [
        {"limits": name} | {f"class {c}": float(np.mean([row[c] for row in rows if c in row])) for c in range(5)}
        for name, rows in found.items()
    ]
