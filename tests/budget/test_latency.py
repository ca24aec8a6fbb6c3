"""The latency model: costs that are known are found again, bounds hold, guarantees count."""

import numpy as np
import pytest
import torch

from smatter.budget.latency import KNOTS, LatencyModel, ModuleCost, fit_costs, unbent
from smatter.errors import InvalidProfile

KINDS = {f"{layer}.{kind}": kind for layer in range(4) for kind in ("attention", "mlp")}
COSTS = {
    module: ModuleCost(0.02 if kind == "attention" else 0.01, (0.01, 0.02, 0.03, 0.08))
    if kind == "attention"
    else ModuleCost(0.01, (0.04, 0.03, 0.02, 0.01))
    for module, kind in KINDS.items()
}


def random_stacks(n: int, seed: int) -> list[dict[str, float]]:
    generator = np.random.default_rng(seed)
    return [{module: float(generator.random()) for module in KINDS if generator.random() < 0.6} for _ in range(n)]


def test_costs_are_exact_at_knots_off_and_between() -> None:
    cost = ModuleCost(0.5, (1.0, 2.0, 0.0, 4.0))
    values = cost(np.array([0.0, 1e-9, *KNOTS[1:], 0.75]))
    assert values == pytest.approx([0, 0.5, 1.5, 3.5, 3.5, 7.5, 5.5], abs=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_few_stacks_leave_no_cost_to_chance(seed: int) -> None:
    generator = np.random.default_rng(seed)
    kinds = {f"{layer}.{kind}": kind for layer in range(6) for kind in ("mlp", "norm")}
    truth = LatencyModel(
        {
            module: ModuleCost(0.004, (0.0,) * 4) if kind == "norm" else ModuleCost(0.002, (0.01, 0.01, 0.02, 0.06))
            for module, kind in kinds.items()
        }
    )

    def stacks(n: int, reach: float) -> list[dict[str, float]]:
        return [
            {
                module: 1.0 if kind == "norm" else reach * generator.random()
                for module, kind in kinds.items()
                if generator.random() < 0.5
            }
            for _ in range(n)
        ]

    few, new = stacks(20, 0.52), stacks(100, 1.0)  # hardly any of the few is beyond the last knot but one
    ratios = truth.relative(few) * (1 + 0.02 * generator.standard_normal(20))
    found = fit_costs(few, ratios, kinds, {module for module, kind in kinds.items() if kind == "norm"})
    assert all(found.costs[module].rises == (0.0,) * 4 for module, kind in kinds.items() if kind == "norm")
    assert found.relative(new) == pytest.approx(truth.relative(new), rel=0.15)


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_costs_that_are_known_are_found_again(noise: float) -> None:
    truth = LatencyModel(COSTS)
    stacks, generator = random_stacks(150, 0), np.random.default_rng(1)
    ratios = truth.relative(stacks) * (1 + noise * generator.standard_normal(150))
    found = fit_costs(stacks, ratios, KINDS)
    new = random_stacks(100, 2)
    error = np.abs(found.relative(new) / truth.relative(new) - 1)
    assert float(error.max()) < (1e-3 if not noise else 0.02)


def test_a_module_unlike_its_kind_is_found() -> None:
    truth = LatencyModel({**COSTS, "2.mlp": ModuleCost(0.1, (0.1, 0.1, 0.1, 0.2))})
    stacks = random_stacks(200, 3)
    found = fit_costs(stacks, truth.relative(stacks), KINDS)
    for module in ("1.mlp", "2.mlp"):
        assert found.costs[module](np.ones(1)) == pytest.approx(truth.costs[module](np.ones(1)), rel=0.1)


def test_a_module_cheaper_than_its_kind_is_found() -> None:
    truth = LatencyModel({**COSTS, "2.mlp": ModuleCost(0.0, (0.005, 0.005, 0.005, 0.0))})
    stacks = random_stacks(400, 3)
    found = fit_costs(stacks, truth.relative(stacks), KINDS)
    assert found.costs["2.mlp"](np.ones(1))[0] < 0.4 * found.costs["1.mlp"](np.ones(1))[0]


def test_noise_makes_costs_neither_dearer_nor_cheaper() -> None:
    kinds = {f"{layer}.{kind}": kind for layer in range(12) for kind in ("attention", "mlp")}
    truth = LatencyModel({module: ModuleCost(0.005, (0.002, 0.003, 0.005, 0.01)) for module in kinds})
    off = []
    for seed in range(10):  # fewer stacks than numbers to fit
        generator = np.random.default_rng(seed)
        stacks = [
            {module: float(generator.random()) for module in kinds if generator.random() < 0.5} for _ in range(190)
        ]
        exact = truth.relative(stacks)
        found = fit_costs(stacks[:90], exact[:90] * (1 + 0.03 * generator.standard_normal(90)), kinds)
        off += (found.relative(stacks[90:]) / exact[90:] - 1).tolist()
    assert abs(float(np.mean(off))) < 0.004 and float(np.std(off)) < 0.015


def test_more_always_costs_more_whatever_bends() -> None:
    shares = [dict.fromkeys(KINDS, share) for share in np.linspace(0.01, 1, 50)]
    dear = {module: ModuleCost(1.0, (1.0,) * 4) for module in KINDS}
    for bend in (-1000.0, -0.25, 0.0, 0.5):
        times = LatencyModel(dear, bend).relative(shares)
        assert bool((np.diff(times) >= 0).all()) and float(times[0]) > 1


@pytest.mark.parametrize("bend", [-0.3, 0.0, 0.3])
def test_the_smooth_bound_is_above_close_convex_and_differentiable(bend: float) -> None:
    model = LatencyModel(COSTS, bend)
    generator = torch.Generator().manual_seed(0)
    points = torch.rand(300, len(COSTS), generator=generator, dtype=torch.float64)
    bound = model.smooth_bound(dict(zip(COSTS, points.T, strict=True)))
    exact = torch.from_numpy(model.relative([dict(zip(COSTS, row, strict=True)) for row in points.tolist()]))
    assert bool((bound >= exact - 1e-12).all())
    if bend == 0:
        assert float((bound / exact).max()) < 1.15
    middle = model.smooth_bound(dict(zip(COSTS, ((points[:150] + points[150:]) / 2).T, strict=True)))
    assert bool((middle <= (bound[:150] + bound[150:]) / 2 + 1e-12).all())
    share = torch.full((), 0.5, dtype=torch.float64, requires_grad=True)
    model.smooth_bound({"0.mlp": share}).backward()
    assert share.grad is not None and float(share.grad) > 0


@pytest.mark.parametrize("seed", range(20))
def test_the_majorant_is_convex_above_and_close(seed: int) -> None:
    generator = np.random.default_rng(seed)
    cost = ModuleCost(float(generator.random()), tuple(generator.random(len(KNOTS) - 1).tolist()))
    lines = np.array(cost.majorant)
    points = np.sort(np.concatenate([np.linspace(1e-6, 1, 500), KNOTS[1:]]))
    above = (lines[:, :1] + lines[:, 1:] * points).max(axis=0)
    exact = cost(points)
    assert bool((above >= exact - 1e-9).all())
    assert bool((np.diff(lines[:, 1]) >= -1e-12).all())
    assert float((above - exact).min()) < 1e-6  # it touches


def test_the_majorant_of_a_convex_cost_is_the_cost() -> None:
    cost = ModuleCost(0.2, (0.1, 0.2, 0.5, 2.0))
    lines, points = np.array(cost.majorant), np.linspace(1e-6, 1, 200)
    assert (lines[:, :1] + lines[:, 1:] * points).max(axis=0) == pytest.approx(cost(points))


def test_strange_configurations_are_refused() -> None:
    model = LatencyModel(COSTS)
    with pytest.raises(InvalidProfile, match="knows no module 'x'"):
        model.relative({"x": 0.5})
    with pytest.raises(InvalidProfile, match="not between 0 and 1"):
        model.relative({"0.mlp": 1.5})
    with pytest.raises(InvalidProfile, match="none negative"):
        ModuleCost(-0.1, (0.0,) * 4)


def test_noise_below_the_base_is_no_number_and_no_warning() -> None:
    found = unbent(np.array([0.5, -0.9]), 0.4)
    assert np.isfinite(found[0]) and np.isnan(found[1])
