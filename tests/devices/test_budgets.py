"""Budgets on profiles: what they allow of a bank's units, what that costs, and what is promised."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_routers import make_router
from small_runtimes import random_bank

from smatter.budget.latency import LatencyModel, ModuleCost
from smatter.compose.experts import ExpertMix
from smatter.compose.mixture import Mixture
from smatter.devices.active import active_fractions
from smatter.devices.budgets import Budgets, open_fractions, reach, unit_slots
from smatter.devices.chosen import chosen_stack
from smatter.devices.cut import SupportLoss, cut_experts, with_open
from smatter.devices.profile import Profile, read_profile, write_profile
from smatter.devices.stacks import make_bench
from smatter.devices.unmeasured import counted_profile, product_profile
from smatter.errors import BudgetInfeasible, InvalidProfile, InvalidSettings
from smatter.library.banks import PlacedBank
from smatter.library.library import Library
from smatter.live.mixture import LiveMixture
from smatter.live.task import Task
from smatter.route.store import read_router
from smatter.runtime.shared import SharedRuntime
from smatter.settings.devices import DeviceSetting
from smatter.settings.training import UnitKind
from smatter.tasks.suite import Suite

POINTS = tuple((10.0 + 0.1 * n, 10.0 + 0.1 * n * (1.5 if n % 2 else 0.8)) for n in range(41))
"""Predicted and measured: half of the deltas take half as much again."""


@pytest.fixture(scope="module")
def live(tiny_library: Library) -> LiveMixture:
    return LiveMixture(tiny_library)


@pytest.fixture(scope="module")
def task(live: LiveMixture, tiny_suite: Suite, tmp_path_factory: pytest.TempPathFactory) -> tuple[Task, ExpertMix]:
    """A task, and experts that open about half of the units."""
    folder, support = make_router(live.library, tiny_suite, tmp_path_factory.mktemp("budgets") / "router")
    trained = read_router(folder)
    trained.check_fits(live)
    experts = trained.mix(live, torch.tensor([0.7, 0.3]))
    assert experts is not None
    return Task.of(live, support), experts


@pytest.fixture(scope="module")
def counted(live: LiveMixture) -> Profile:
    return counted_profile(make_bench(live.library, DeviceSetting(batch=2)))


def measured(profile: Profile, **more: object) -> Profile:
    """As if it had been timed."""
    return Profile(**{**profile.model_dump(), "unit": "ms", "method": "stacks", "base": 10.0, **more})  # type: ignore[arg-type]


def bank_of(live: LiveMixture, experts: ExpertMix) -> PlacedBank:
    return live.library.bank(experts.bank)


def opened(live: LiveMixture, experts: ExpertMix) -> np.ndarray:
    return bank_of(live, experts).bank.gates(experts)


EVEN = Mixture.of({"s0": 0.5, "s1": 0.5})


@pytest.mark.parametrize("share", [0.0, 0.2, 0.6, 0.95])
def test_what_is_cut_keeps_its_budget_and_opens_nothing_new(
    live: LiveMixture, task: tuple[Task, ExpertMix], counted: Profile, share: float
) -> None:
    given, experts = task
    before = opened(live, experts)
    full = counted.predict(open_fractions(bank_of(live, experts), before))[0]
    allowed = counted.base + share * (full - counted.base)
    budgets = Budgets.of(f"{allowed / 1e6:.12g}MB", counted)
    passes = live.n_forwards + live.n_backwards
    cut = cut_experts(live, given.objective, EVEN, experts, budgets)
    assert live.n_forwards + live.n_backwards - passes <= 5
    after = opened(live, cut)
    assert cut.alpha == experts.alpha and cut.bank == experts.bank
    np.testing.assert_array_equal(after[after > 0], before[after > 0])
    spent = budgets.spent(open_fractions(bank_of(live, cut), after))[0]
    assert spent.predicted <= allowed * (1 + 1e-9) and spent.promised == spent.predicted
    assert share or not after.any()
    recipe = live.library.recipe(EVEN, experts=cut)  # whatever reads recipes counts the same
    by_residual = counted.predict(active_fractions(live.library, recipe))[0]
    assert by_residual == pytest.approx(spent.predicted)


def test_a_budget_for_everything_closes_nothing_and_passes_nothing(
    live: LiveMixture, task: tuple[Task, ExpertMix], counted: Profile
) -> None:
    given, experts = task
    passes = live.n_forwards + live.n_backwards
    assert cut_experts(live, given.objective, EVEN, experts, Budgets.of("100x", counted)) is experts
    assert live.n_forwards + live.n_backwards == passes


@pytest.mark.parametrize("share", [0.2, 0.6])
def test_learnt_values_need_no_pass_and_decide(
    live: LiveMixture, task: tuple[Task, ExpertMix], counted: Profile, share: float
) -> None:
    """Values that favour some units open these, by the experts that the task weighs."""
    given, experts = task
    bank, before = bank_of(live, experts), opened(live, experts)
    full = counted.predict(open_fractions(bank, before))[0]
    budgets = Budgets.of(f"{(counted.base + share * (full - counted.base)) / 1e6:.12g}MB", counted)
    random = np.random.default_rng(0)
    values = random.random(bank.bank.masks.shape)
    values[:, ::2] = -1.0
    passes = live.n_forwards + live.n_backwards
    after = opened(live, cut_experts(live, given.objective, EVEN, experts, budgets, unit_values=values))
    assert live.n_forwards + live.n_backwards == passes
    assert after.any() and not after[::2].any()
    spent = budgets.spent(open_fractions(bank, after))[0]
    assert spent.predicted <= spent.allowed * (1 + 1e-9)
    worth = np.array(experts.alpha) @ values * before
    ranked = budgets.ranked(bank, before, worth)
    cheaper = [random.permutation(np.flatnonzero(worth > 0))[: (after > 0).sum()] for _ in range(200)]
    costs = [budgets.spent(open_fractions(bank, np.isin(np.arange(len(worth)), own) * before))[0] for own in cheaper]
    kept = [worth[own].sum() for own, cost in zip(cheaper, costs, strict=True) if cost.predicted <= spent.allowed]
    assert ranked.modules and worth[after > 0].sum() >= max(kept, default=0.0) - 1e-2 * worth[worth > 0].sum()


def test_what_is_cut_is_the_same_every_time(live: LiveMixture, task: tuple[Task, ExpertMix], counted: Profile) -> None:
    given, experts = task
    budgets = Budgets.of("1.1x", counted)
    one, other = (opened(live, cut_experts(live, given.objective, EVEN, experts, budgets)) for _ in range(2))
    np.testing.assert_array_equal(one, other)


def test_gains_are_the_slopes_of_the_loss(live: LiveMixture, task: tuple[Task, ExpertMix], counted: Profile) -> None:
    """Against differences of losses, with a unit opened by a hundredth."""
    given, experts = task
    bank, gates = bank_of(live, experts), opened(live, experts)
    loss = SupportLoss(live, given.objective, EVEN, bank, gates)
    some = np.flatnonzero(gates)[::7]
    gains = loss.gains(some)
    base = loss._point(some)
    for unit in np.flatnonzero(gates)[[0, 3, -1]].tolist():
        moved = [base.clone(), base.clone()]
        for sign, point in zip((-1, 1), moved, strict=True):
            point[0, unit] += sign * 0.01 * gates[unit]
        low, high = (float(loss.problem.value(point)[0]) for point in moved)
        assert gains[unit] == pytest.approx((low - high) / 0.02, rel=0.05, abs=2e-3)
    ranked = loss.ranked(Budgets.of("1.05x", counted))
    for name, module in ranked.modules.items():
        assert set(module.units) <= set(unit_slots(bank)[name].tolist())
        assert list(module.values) == sorted(module.values, reverse=True)


@pytest.mark.parametrize("kind", ["groups", "components"])
def test_units_have_the_names_and_the_fractions_that_a_bench_has(live: LiveMixture, kind: UnitKind) -> None:
    library = live.library
    runtime = SharedRuntime(library, {"base": Mixture.of({"s0": 1.0})})
    bank = library.bank(random_bank(runtime, kind).digest)
    rank = 2 if kind == "components" else None
    bench = make_bench(library, DeviceSetting(batch=2, rank=rank))
    slots = unit_slots(bank)
    for name, n_groups in bench.n_groups.items():
        assert len(slots[name]) == n_groups
    assert sorted(np.concatenate(list(slots.values())).tolist()) == list(range(bank.bank.masks.shape[1]))
    mix = ExpertMix(bank.bank.digest, (0.5, 0.5, 0.0))
    fractions = open_fractions(bank, bank.bank.gates(mix))
    if kind == "groups":
        residual = active_fractions(library, library.recipe(Mixture.of({"s0": 1.0}), experts=mix))
        assert {name: fractions[name] for name in residual} == pytest.approx(residual)
    Budgets.of("1.5x", counted_profile(bench)).check_fits(library, bank)
    other = counted_profile(make_bench(library, DeviceSetting(batch=2, rank=None if rank else 2)))
    with pytest.raises(InvalidProfile, match="other units"):
        Budgets.of("1.5x", other).check_fits(library, bank)


def test_single_elements_and_other_networks_are_refused(live: LiveMixture, counted: Profile) -> None:
    runtime = SharedRuntime(live.library, {"base": Mixture.of({"s0": 1.0})})
    bank = live.library.bank(random_bank(runtime, "elements").digest)
    with pytest.raises(InvalidSettings, match="single elements have no price"):
        Budgets.of("2x", counted).check_fits(live.library, bank)
    groups = live.library.bank(random_bank(runtime, "groups").digest)
    at = counted.fingerprint.model_copy(update={"network": "0" * 64})
    with pytest.raises(InvalidProfile, match="another network"):
        Budgets.of("2x", counted.model_copy(update={"fingerprint": at})).check_fits(live.library, groups)


def test_several_budgets_hold_together(live: LiveMixture, task: tuple[Task, ExpertMix], counted: Profile) -> None:
    given, experts = task
    bank = bank_of(live, experts)
    slow = measured(counted, costs={name: tuple(3 * n for n in each) for name, each in counted.costs.items()})
    budgets = Budgets.of(["12ms", "1.4x"], [counted, slow])
    cut = cut_experts(live, given.objective, EVEN, experts, budgets)
    found = budgets.spent(open_fractions(bank, opened(live, cut)))
    assert [str(each.wish) for each in found] == ["1.4x", "12ms", "1.4x"]
    for each in found:
        assert each.promised is not None and each.promised <= each.allowed * (1 + 1e-9)


def test_a_multiple_of_the_base_is_kept_by_what_deltas_add(counted: Profile) -> None:
    """The bound on whole times cannot see a small budget; that on what is added can."""
    profile = measured(counted, kappa=1.3, epsilon=0.5, points=POINTS, delta=0.2)
    assert profile.extra_factor == pytest.approx(1.5)
    with pytest.raises(BudgetInfeasible, match=r"11ms is below the smallest possible one, 13.5ms"):
        _ = Budgets.of("11ms", profile).allowances
    assert Budgets.of("1.3x", profile).allowances == pytest.approx([0.2])
    spent = Budgets.of(["1.3x", "16ms"], profile).spent({})
    assert [each.promised for each in spent] == pytest.approx([10.0, 13.5])
    few = profile.model_copy(update={"points": POINTS[:3]})
    assert not np.isfinite(few.extra_factor)
    with pytest.raises(BudgetInfeasible, match=r"1.3x is below the smallest possible one, 1.35x"):
        _ = Budgets.of("1.3x", few).allowances
    assert Budgets.of("1.35x", few).allowances == pytest.approx([0.0], abs=1e-9)


def test_promises_are_those_of_the_method(counted: Profile) -> None:
    alone = measured(counted, method="micro-benchmarks")
    assert [each.promised for each in Budgets.of(["12ms", "1.5x"], alone).spent({})] == [None, None]
    assert Budgets.of("1.5x", counted).spent({})[0].promised == counted.base
    record = Budgets.of("1.5x", counted).spent({})[0].record
    assert record.unit == "bytes" and record.value == pytest.approx(1.5 * counted.base)
    assert record.profile == counted.digest


def test_the_digest_is_that_of_the_file(counted: Profile, tmp_path: Path) -> None:
    import hashlib

    write_profile(tmp_path / "p.json", counted)
    assert hashlib.sha256((tmp_path / "p.json").read_bytes()).hexdigest() == counted.digest
    assert read_profile(tmp_path / "p.json").digest == counted.digest


@pytest.mark.parametrize(
    ("budget", "change", "message"),
    [
        ((), {}, "a profile alone bounds nothing"),
        ("8ms", {}, "needs a profile in ms, not in bytes"),
        ("90mJ", {}, "needs a profile in mJ"),
        ("1x@p95", {}, "bounds the quantile 0.5, not 0.95"),
        ("0.5x", {}, "below the smallest possible one, 1x"),
        ("1kB", {}, "below the smallest possible one"),
    ],
)
def test_what_cannot_be_kept_is_refused(counted: Profile, budget: str, change: dict, message: str) -> None:
    with pytest.raises((InvalidSettings, InvalidProfile, BudgetInfeasible), match=message) as caught:
        _ = Budgets.of(budget, counted.model_copy(update=change)).allowances
    assert "\n" not in str(caught.value)


def test_budgets_and_profiles_go_together(counted: Profile) -> None:
    with pytest.raises(InvalidSettings, match="needs a profile: give one"):
        Budgets.of("8ms", None)
    with pytest.raises(InvalidSettings, match="no budget is in ms"):
        Budgets.of("4MB", [counted, measured(counted)])


def test_costs_of_zero_are_refused_where_they_were_not_measured(
    live: LiveMixture, task: tuple[Task, ExpertMix], counted: Profile
) -> None:
    """Noise can drown a measured one, which is taken for little; a table that says so is a mistake."""
    _, experts = task
    bank, gates = bank_of(live, experts), opened(live, experts)
    free = counted.model_copy(update={"costs": dict.fromkeys(counted.costs, (0.0,) * 5)})
    with pytest.raises(InvalidProfile, match="costs nothing"):
        Budgets.of("1.1x", free).ranked(bank, gates, np.ones(len(gates)))
    ranked = Budgets.of("1.1x", measured(free)).ranked(bank, gates, np.ones(len(gates)))
    assert all(float(module.on[0]) > 0 for module in ranked.modules.values())
    fewer = {name: each for name, each in counted.costs.items() if name != next(iter(ranked.modules))}
    with pytest.raises(InvalidProfile, match="knows no module"):
        Budgets.of("1.1x", counted.model_copy(update={"costs": fewer})).ranked(bank, gates, np.ones(len(gates)))


def test_products_are_shared_out_over_groups_and_rests(live: LiveMixture) -> None:
    profile = product_profile(live, on=0.0)
    every = dict.fromkeys(profile.costs, 1.0)
    bench = make_bench(live.library, DeviceSetting(batch=1))
    assert profile.costs.keys() >= bench.kinds.keys()
    assert profile.predict(every)[0] == pytest.approx(2 * profile.base)  # a delta of all computes what the base does
    assert product_profile(live).predict(every)[0] > 2 * profile.base


def test_closing_all_leaves_a_recipe_that_adds_nothing(live: LiveMixture, task: tuple[Task, ExpertMix]) -> None:
    _, experts = task
    none = with_open(experts, opened(live, experts), np.zeros(0, np.int64))
    assert none.is_idle and live.library.correction(live.library.recipe(EVEN, experts=none)) is None
    assert replace(none, opened=None) == experts


@pytest.mark.parametrize("points", [(), POINTS])
def test_a_profile_says_what_a_budget_buys(counted: Profile, points: tuple[tuple[float, float], ...]) -> None:
    """Nothing is refused from the smallest budget on, and nothing need be closed from the largest on."""
    profile = measured(counted, kappa=1.1, epsilon=0.2, points=points)
    found = reach(profile)
    assert found.base == 10.0 < found.everything < found.largest and found.smallest == pytest.approx(11.2)
    total = sum(float(cost(np.ones(1))[0]) for cost in profile.model.costs.values())
    for least, most, unit in (
        (found.smallest, found.largest, "ms"),
        (found.smallest_multiple, found.largest_multiple, "x"),
    ):
        assert Budgets.of(f"{least:.12g}{unit}", profile).allowances == pytest.approx([0.0], abs=1e-6)
        assert Budgets.of(f"{most:.12g}{unit}", profile).allowances == pytest.approx([total], rel=1e-6)
        with pytest.raises(BudgetInfeasible):
            _ = Budgets.of(f"{0.999 * least:.12g}{unit}", profile).allowances


def test_what_is_chosen_by_noisy_costs_exceeds_its_prediction_by_more_than_what_is_random(live: LiveMixture) -> None:
    """An allocation looks for what seems cheap, so a bound on random networks does not hold for chosen ones."""
    bench = make_bench(live.library, DeviceSetting(batch=2))
    generator = np.random.default_rng(0)
    true = {name: ModuleCost(0.01, (0.05, 0.05, 0.1, 0.2)) for name in bench.kinds}
    excess: dict[str, list[float]] = {"chosen": [], "random": []}
    for _ in range(150):
        noise = dict(zip(true, generator.lognormal(sigma=0.4, size=len(true)).tolist(), strict=True))
        fitted = {
            name: ModuleCost(cost.on * noise[name], tuple(noise[name] * rise for rise in cost.rises))
            for name, cost in true.items()
        }
        stacks = {
            "chosen": chosen_stack(bench, LatencyModel(fitted), generator),
            "random": bench.random_stack(generator),
        }
        for name, stack in stacks.items():
            model, truth = (LatencyModel(costs).relative(stack)[0] - 1 for costs in (fitted, true))
            assert all(0 < share <= 1 for share in stack.values())
            if model > 0:
                excess[name].append(truth / model)
    assert np.mean(excess["chosen"]) > 1.05 * np.mean(excess["random"])
