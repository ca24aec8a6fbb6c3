"""From a library and a setting to a profile: time whole random stacks beside the base, fit, calibrate, test.

    P[measured q-quantile <= kappa * predicted + epsilon] >= 1 - delta          (AutoBudget paper, equation 20)

epsilon is chosen on the stacks that costs were fitted to; then kappa is a split-conformal bound over others. What the
profile says of itself was measured on a third lot.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from smatter.budget.latency import Floats, LatencyModel, bent, conformal_factor, fit_costs
from smatter.devices.composing import N_CASES, N_ROUNDS, measure_composing
from smatter.devices.profile import Profile, Quality
from smatter.devices.stacks import Bench, Setting, Stack
from smatter.devices.timing import CASES_PER_BASE, Timed, seconds, time_cases, using_threads
from smatter.errors import InvalidSettings
from smatter.library.library import Library

LEAST_ROUNDS, MOST_ROUNDS, CORRECTING_ROUNDS = 5, 60, 20
SPLIT_STACKS, SPLIT_ROUNDS = 10, 7
BENDS = tuple(round(0.02 * number - 0.5, 2) for number in range(51))
"""Tried for what is not additive."""

EPSILONS = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05)
"""Tried for epsilon, in shares of the base's time."""


@dataclass(frozen=True)
class MeasureSettings:
    """How much is measured.

    Args:
        n_fitted: stacks that costs are fitted to.
        n_calibrated: other stacks, that the bound is taken from.
        n_tested: others again, that say what the profile is worth.
        seconds: about how long it may take; every stack is timed five times at least.
        quantile: of a stack's times that the bound is for.
        delta: how likely a new stack may exceed its bound.
        seed: of the stacks.
    """

    n_fitted: int = 90
    n_calibrated: int = 100
    n_tested: int = 40
    seconds: float = 90.0
    quantile: float = 0.5
    delta: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n_fitted < 20 or not 0 < self.delta < 1 or not 0 < self.quantile < 1 or not self.seconds > 0:
            raise InvalidSettings("fit at least 20 stacks, in positive time, with shares between 0 and 1")
        if (self.n_calibrated + 1) * self.delta < 1:
            needed = int(np.ceil(1 / self.delta)) - 1
            raise InvalidSettings(f"a bound that fails with probability {self.delta:g} needs {needed} stacks or more")


def measure_profile(
    library: Library, setting: Setting, settings: MeasureSettings, progress: Callable[[float], None] = lambda _: None
) -> Profile:
    """Measure this device.

    Args:
        library: whose base is timed, with deltas on it.
        setting: threads, rows, dtype, length.
        settings: how much.
        progress: told the share of the work that each step is.
    """
    bench = Bench(library, setting)
    with using_threads(setting.threads):
        return _measured(bench, settings, progress)


def _measured(bench: Bench, settings: MeasureSettings, progress: Callable[[float], None]) -> Profile:
    generator = np.random.default_rng(settings.seed)
    n_stacks = settings.n_fitted + settings.n_calibrated + settings.n_tested
    stacks = [bench.random_stack(generator) for _ in range(n_stacks)]
    n_rounds = _n_rounds(bench, stacks, settings)
    timed = time_stacks(bench, stacks, n_rounds, generator, lambda runs: progress(0.9 * runs / (n_stacks * n_rounds)))
    fitted = slice(0, settings.n_fitted)
    calibrated = slice(settings.n_fitted, settings.n_fitted + settings.n_calibrated)
    tested = slice(settings.n_fitted + settings.n_calibrated, None)
    medians, high = timed.quantile(0.5), timed.quantile(settings.quantile)
    model = fit_costs(stacks[fitted], medians[fitted], bench.kinds, bench.rests)
    model = with_bend(model, stacks[fitted], medians[fitted])
    predicted = model.relative(stacks)
    epsilon = choose_epsilon(predicted[fitted], high[fitted], settings.delta)
    kappa = timed.unrest * conformal_factor(((high - epsilon) / predicted)[calibrated].tolist(), settings.delta)
    base = 1e3 * float(np.median(timed.base_seconds))
    record: dict[str, Any] = {
        "stacks_fitted": settings.n_fitted,
        "stacks_calibrated": settings.n_calibrated,
        "rounds": n_rounds,
        "signal_to_noise": timed.signal_to_noise,
        "base_p95_over_p50": timed.base_tail,
    }
    beside = _beside(bench, base, generator, lambda share: progress(0.1 * share))
    return Profile(
        unit="ms",
        method="stacks",
        fingerprint=bench.fingerprint,
        quantile=settings.quantile,
        base=base,
        costs={module: cost.numbers for module, cost in model.costs.items()},
        bend=model.bend,
        kappa=kappa,
        epsilon=epsilon * base,
        delta=settings.delta,
        others=timed.others,
        is_quiet=timed.is_quiet,
        wider_by=timed.unrest,
        **beside,
        quality=quality(predicted[tested], medians[tested], kappa * predicted[tested] + epsilon, high[tested]),
        points=tuple(zip((base * predicted[tested]).tolist(), (base * medians[tested]).tolist(), strict=True)),
        record=record,
    )


def correct_profile(
    bench: Bench,
    earlier: Profile,
    n_points: int,
    quantile: float,
    delta: float,
    progress: Callable[[float], None] = lambda _: None,
) -> Profile:
    """An earlier profile of the same network, corrected by a few stacks that are timed here; see `Profile`."""
    earlier.check_network(bench.fingerprint)
    with using_threads(bench.setting.threads):
        generator = np.random.default_rng(1)
        stacks = [bench.random_stack(generator) for _ in range(n_points)]
        n_runs = n_points * CORRECTING_ROUNDS
        timed = time_stacks(bench, stacks, CORRECTING_ROUNDS, generator, lambda runs: progress(0.9 * runs / n_runs))
        base = 1e3 * float(np.median(timed.base_seconds))
        medians, high = base * timed.quantile(0.5), base * timed.quantile(quantile)
        corrected = earlier.corrected(bench.fingerprint, stacks, medians, high, quantile, delta)
        beside = _beside(bench, corrected.base, generator, lambda share: progress(0.1 * share))
    return corrected.model_copy(
        update={"kappa": timed.unrest * corrected.kappa, "others": timed.others, "is_quiet": timed.is_quiet,
                "wider_by": timed.unrest, **beside}
    )  # fmt: skip


def _beside(
    bench: Bench, base: float, generator: np.random.Generator, progress: Callable[[float], None]
) -> dict[str, Any]:
    """What else a profile holds: the base with other numbers of rows, batches of several tasks, composing."""
    rows, per_task, steps = time_rows(bench, base), time_split(bench, generator), N_CASES * N_ROUNDS
    composing = measure_composing(bench.library, bench.base.resident, generator, lambda n: progress(n / steps))
    return {"rows": rows, "per_task": per_task, "composing": composing}


def time_stacks(
    bench: Bench,
    stacks: Sequence[Stack],
    n_rounds: int,
    generator: np.random.Generator,
    progress: Callable[[int], None] = lambda _: None,
) -> Timed:
    """Time stacks beside the base; which groups are active is drawn once for each."""
    seeds = generator.integers(2**32, size=len(stacks)).tolist()
    cases = [lambda stack=stack, seed=seed: bench.case(stack, seed) for stack, seed in zip(stacks, seeds, strict=True)]
    return time_cases(bench.plain(), cases, n_rounds, generator, progress)


def with_bend(model: LatencyModel, stacks: Sequence[Stack], ratios: Floats) -> LatencyModel:
    """The model with a term for what is not additive, if each half of the stacks gains by what the other half says."""
    extra = model.relative(stacks) - 1

    def error(bend: float, part: slice) -> float:
        return float((((1 + bent(extra[part], bend)) / ratios[part] - 1) ** 2).sum())

    def best(part: slice) -> float:
        return min(BENDS, key=lambda bend: error(bend, part))

    half = slice(0, len(extra) // 2), slice(len(extra) // 2, None)
    gains = [error(best(one), other) < 0.95 * error(0.0, other) for one, other in (half, half[::-1])]
    return replace(model, bend=best(slice(None))) if all(gains) else model


def choose_epsilon(predicted: Floats, measured: Floats, delta: float) -> float:
    """The offset with which a bound of that confidence is closest on these stacks, in shares of the base's time."""

    def slack(epsilon: float) -> float:
        kappa = conformal_factor(((measured - epsilon) / predicted).tolist(), delta)
        return float(((kappa * predicted + epsilon) / measured).mean())

    return min(EPSILONS, key=slack)


def quality(predicted: Floats, medians: Floats, bound: Floats, high: Floats) -> Quality:
    """What a model is worth on stacks that it has not seen."""
    off = np.abs(medians / predicted - 1)
    return Quality(
        n_tested=len(off),
        within_5_percent=float((off <= 0.05).mean()),
        within_10_percent=float((off <= 0.10).mean()),
        spearman=float(spearmanr(predicted, medians).statistic),
        coverage=float((high <= bound).mean()),
        slack=float((bound / high - 1).mean()),
    )


def time_rows(bench: Bench, base: float) -> dict[int, float]:
    """What the base takes with other numbers of rows, in ms, each timed beside the usual number."""
    found = {}
    whole = bench.plain()
    batch = bench.setting.batch
    for n_rows in sorted({1, 2, batch // 2, 2 * batch, 8 * batch} - {0, batch}):
        times = -(-n_rows // batch)
        inputs = {
            name: tensor.repeat(times, *[1] * (tensor.ndim - 1))[:n_rows] for name, tensor in bench.inputs.items()
        }

        def some(inputs: dict[str, Any] = inputs) -> object:
            return bench.base.features(inputs, [])

        some()
        ratios = [seconds(some) / seconds(whole) for _ in range(9)]
        found[n_rows] = base * float(np.median(ratios))
    return found


def time_split(bench: Bench, generator: np.random.Generator) -> float:
    """Share of what deltas take that every task of a batch takes for itself, from batches with a task for each row.

    If one task with all rows takes x more than the base, n tasks with a row each take x (1 - share) + n x share.
    """
    n_rows = bench.setting.batch
    if n_rows == 1:
        return 1.0
    stacks = [bench.random_stack(generator) for _ in range(SPLIT_STACKS)]
    cases = [lambda stack=stack: bench.case(stack, 0) for stack in stacks]
    cases += [lambda stack=stack: bench.split_case(stack) for stack in stacks]
    whole, split = np.split(time_cases(bench.plain(), cases, SPLIT_ROUNDS, generator).quantile(0.5) - 1, 2)
    return float(np.clip((whole @ (split - whole)) / ((n_rows - 1) * (whole @ whole)), 0, 1))


def _n_rounds(bench: Bench, stacks: Sequence[Stack], settings: MeasureSettings) -> int:
    """As many as fit the time, by a few trial runs."""
    whole = bench.plain()
    whole()
    begin = time.perf_counter()
    tried = stacks[: 4 * CASES_PER_BASE]
    for number, stack in enumerate(tried):
        if number % CASES_PER_BASE == 0:
            whole()
        bench.case(stack, number)()
    each = (time.perf_counter() - begin) / len(tried)
    return int(np.clip(0.85 * settings.seconds / (each * len(stacks)), LEAST_ROUNDS, MOST_ROUNDS))
