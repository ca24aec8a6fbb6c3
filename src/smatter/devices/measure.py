"""From a library and a setting to a profile: time whole random stacks beside the base, fit, calibrate, test.

    P[measured q-quantile <= kappa * predicted + epsilon] >= 1 - delta          (AutoBudget paper, equation 20)

epsilon is chosen on the stacks that costs were fitted to; then kappa is a split-conformal bound over others. What the
profile says of itself, and its bound on what deltas add, was measured on a third lot: networks as budgets leave them,
whose units an allocation chose by the costs that were fitted.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from smatter.algebra.conformal import conformal_quantile
from smatter.budget.latency import Floats, LatencyModel, fit_costs, unbent
from smatter.devices.chosen import chosen_stack
from smatter.devices.composing import N_CASES, N_ROUNDS, measure_composing
from smatter.devices.profile import Profile, Quality
from smatter.devices.stacks import Bench, Stack, make_bench
from smatter.devices.timing import CASES_PER_BASE, Neighbours, Timed, is_quiet, seconds, time_cases, using_threads
from smatter.library.library import Library, open_library
from smatter.records import Progress, part, silent
from smatter.settings.devices import DeviceSetting, MeasureSettings

LEAST_ROUNDS, MOST_ROUNDS, CORRECTING_ROUNDS = 4, 60, 20
ROWS_ROUNDS, SPLIT_ROUNDS = 5, 5
SPLIT_DRAWN, SPLIT_STACKS = 20, 4
"""Drawn, and of these the largest, which are timed: what small ones take is lost in noise."""

BENDS = (-0.4, -0.2, 0.0, 0.2, 0.4)
"""Tried for what is not additive."""

CLEAR = 3.0
"""Standard errors by which such a term must lower squared errors."""

EPSILONS = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05)
"""Tried for epsilon, in shares of the base's time."""


def measure_profile(
    library: Library | str | Path,
    setting: DeviceSetting | None = None,
    settings: MeasureSettings | None = None,
    progress: Progress = silent,
) -> Profile:
    """Measure this device.

    Args:
        library: whose base is timed, with deltas on it; or its folder.
        setting: threads, rows, dtype, length; the defaults without.
        settings: how much is measured; the defaults without.
        progress: told the share of the work that each step is.
    """
    setting = setting or DeviceSetting()
    bench = make_bench(library if isinstance(library, Library) else open_library(library), setting)
    with using_threads(setting.threads):
        return _measured(bench, settings or MeasureSettings(), progress)


def _measured(bench: Bench, settings: MeasureSettings, progress: Progress) -> Profile:
    generator = np.random.default_rng(settings.seed)
    stacks = [bench.random_stack(generator) for _ in range(settings.n_fitted + settings.n_calibrated)]
    n_rounds = _n_rounds(bench, stacks, settings)
    passing = part(progress, 0.9 / (settings.n_stacks * n_rounds))
    timed = time_stacks(bench, stacks, n_rounds, generator, passing)
    bounded = fit_and_calibrate(
        stacks,
        timed.quantile(0.5),
        timed.quantile(settings.quantile),
        n_fitted=settings.n_fitted,
        delta=settings.delta,
        kinds=bench.kinds,
        switches=bench.rests,
    )
    chosen = [chosen_stack(bench, bounded.model, generator) for _ in range(settings.n_tested)]
    tested = time_stacks(bench, chosen, n_rounds, generator, passing)
    medians, high = tested.quantile(0.5), tested.quantile(settings.quantile)
    base = 1e3 * float(np.median(timed.base_seconds))
    record: dict[str, Any] = {
        "stacks_fitted": settings.n_fitted,
        "stacks_calibrated": settings.n_calibrated,
        "rounds": n_rounds,
        "signal_to_noise": timed.signal_to_noise,
        "base_p95_over_p50": timed.base_tail,
    }
    beside = _beside(bench, base, generator, timed, part(progress, 0.1))
    bounded = replace(bounded, kappa=beside["wider_by"] * bounded.kappa)
    predicted = bounded.model.relative(chosen)
    return Profile(
        unit="ms",
        method="stacks",
        fingerprint=bench.fingerprint,
        quantile=settings.quantile,
        base=base,
        costs={module: cost.numbers for module, cost in bounded.model.costs.items()},
        bend=bounded.model.bend,
        kappa=bounded.kappa,
        epsilon=base * bounded.epsilon,
        delta=settings.delta,
        **beside,
        quality=quality(predicted, medians, bounded.bound(chosen), high),
        points=tuple(zip((base * predicted).tolist(), (base * medians).tolist(), strict=True)),
        record=record,
    )


def correct_profile(
    bench: Bench,
    earlier: Profile,
    n_points: int,
    quantile: float,
    delta: float,
    progress: Progress = silent,
) -> Profile:
    """An earlier profile of the same network, corrected by a few stacks that are timed here; see `Profile`."""
    earlier.check_network(bench.fingerprint)
    with using_threads(bench.setting.threads):
        generator = np.random.default_rng(1)
        stacks = [bench.random_stack(generator) for _ in range(n_points)]
        n_rounds = max(CORRECTING_ROUNDS, _least_rounds(quantile))
        n_runs = n_points * n_rounds
        timed = time_stacks(bench, stacks, n_rounds, generator, part(progress, 0.9 / n_runs))
        base = 1e3 * float(np.median(timed.base_seconds))
        medians, high = base * timed.quantile(0.5), base * timed.quantile(quantile)
        corrected = earlier.corrected(bench.fingerprint, stacks, medians, high=high, quantile=quantile, delta=delta)
        beside = _beside(bench, corrected.base, generator, timed, part(progress, 0.1))
    return corrected.model_copy(update={"kappa": beside["wider_by"] * corrected.kappa, **beside})


def _beside(
    bench: Bench, base: float, generator: np.random.Generator, timed: Timed, progress: Progress
) -> dict[str, Any]:
    """What else a profile holds: other numbers of rows, batches of several tasks, composing, and the neighbours."""
    watch = Neighbours()
    rows, per_task, steps = time_rows(bench, base), time_split(bench, generator), N_CASES * N_ROUNDS
    composing = measure_composing(bench, generator, part(progress, 1 / steps))
    others = max((each for each in (timed.others, watch.cores()) if each is not None), default=None)
    neighbours = {"others": others, "is_quiet": is_quiet(others), "wider_by": timed.wider_by(others)}
    return {"rows": rows, "per_task": per_task, "composing": composing, **neighbours}


def time_stacks(
    bench: Bench,
    stacks: Sequence[Stack],
    n_rounds: int,
    generator: np.random.Generator,
    progress: Progress = silent,
) -> Timed:
    """Time stacks beside the base; which groups are active is drawn once for each."""
    seeds = generator.integers(2**32, size=len(stacks)).tolist()
    cases = [lambda stack=stack, seed=seed: bench.case(stack, seed) for stack, seed in zip(stacks, seeds, strict=True)]
    return time_cases(bench.plain(), cases, n_rounds, generator, progress)


@dataclass(frozen=True)
class Bounded:
    """A model with its bound, kappa * predicted + epsilon, as multiples of the base's time."""

    model: LatencyModel
    kappa: float
    epsilon: float

    def bound(self, stacks: Sequence[Stack]) -> Floats:
        """What each stack takes at most."""
        return self.kappa * self.model.relative(stacks) + self.epsilon


def fit_and_calibrate(
    stacks: Sequence[Stack],
    medians: Floats,
    high: Floats,
    n_fitted: int,
    delta: float,
    kinds: Mapping[str, str],
    switches: Collection[str] = (),
) -> Bounded:
    """Costs and epsilon from the first stacks, kappa from the others; see the top of this file.

    Args:
        stacks: that were timed.
        medians: of their times, as multiples of the base's, for costs.
        high: the quantile that is bounded.
        n_fitted: how many are the first.
        delta: how likely a new stack may exceed its bound.
        kinds: of each module; costs of a kind are alike.
        switches: names of what is either off or on.
    """
    model = fit_model(stacks[:n_fitted], medians[:n_fitted], kinds, switches)
    predicted = model.relative(stacks)
    epsilon = choose_epsilon(predicted[:n_fitted], high[:n_fitted], delta)
    kappa = conformal_quantile(((high - epsilon) / predicted)[n_fitted:].tolist(), delta)
    return Bounded(model, kappa, epsilon)


def fit_model(
    stacks: Sequence[Stack], ratios: Floats, kinds: Mapping[str, str], switches: Collection[str] = ()
) -> LatencyModel:
    """Costs, with a term for what is not additive where each half of the stacks predicts the other better with it."""

    def fitted(bend: float, part: slice) -> LatencyModel:
        straight = 1 + unbent(ratios[part] - 1, bend)
        return replace(fit_costs(stacks[part], straight, kinds, switches), bend=bend)

    def errors(bend: float) -> Floats:
        if not np.isfinite(unbent(ratios - 1, bend)).all():
            return np.full(len(stacks), np.inf)
        half = slice(0, len(stacks) // 2), slice(len(stacks) // 2, None)
        off = [fitted(bend, one).relative(stacks[other]) / ratios[other] - 1 for one, other in (half[::-1], half)]
        return np.concatenate(off) ** 2

    found = {bend: errors(bend) for bend in BENDS}
    best = min(BENDS, key=lambda bend: found[bend].sum())
    gain = found[0.0] - found[best]
    is_real = gain.mean() > CLEAR * gain.std() / np.sqrt(len(gain))
    return fitted(best if is_real else 0.0, slice(None))


def choose_epsilon(predicted: Floats, measured: Floats, delta: float) -> float:
    """The offset with which a bound of that confidence is closest on these stacks, in shares of the base's time."""

    def slack(epsilon: float) -> float:
        kappa = conformal_quantile(((measured - epsilon) / predicted).tolist(), delta)
        return float(((kappa * predicted + epsilon) / measured).mean())

    return min(EPSILONS, key=slack)


def quality(predicted: Floats, medians: Floats, bound: Floats, high: Floats) -> Quality:
    """What a model is worth on stacks that it has not seen."""
    from scipy.stats import spearmanr  # a quarter of a second, which adapting does not need

    off = np.abs(medians / predicted - 1)
    return Quality(
        n_tested=len(off),
        within_5_percent=float((off <= 0.05).mean()),
        within_10_percent=float((off <= 0.10).mean()),
        spearman=float(spearmanr(predicted, medians).statistic) if np.ptp(predicted) > 0 < np.ptp(medians) else 0.0,
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
        ratios = [seconds(some) / seconds(whole) for _ in range(ROWS_ROUNDS)]
        found[n_rows] = base * float(np.median(ratios))
    return found


def time_split(bench: Bench, generator: np.random.Generator) -> float:
    """Share of what deltas take that every task of a batch takes for itself, from batches with a task for each row.

    If one task with all rows takes x more than the base, n tasks with a row each take x (1 - share) + n x share.
    """
    n_rows = bench.setting.batch
    if n_rows == 1:
        return 1.0
    drawn = [bench.random_stack(generator) for _ in range(SPLIT_DRAWN)]
    stacks = sorted(drawn, key=lambda stack: bench.deltas(stack, 0).n_bytes)[-SPLIT_STACKS:]
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
    least = _least_rounds(settings.quantile)
    return int(np.clip(0.85 * settings.seconds / (each * settings.n_stacks), least, max(least, MOST_ROUNDS)))


def _least_rounds(quantile: float) -> int:
    """Enough that a run above the quantile is to be expected."""
    return max(LEAST_ROUNDS, int(np.ceil(1 / (1 - quantile))))
