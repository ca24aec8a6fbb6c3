"""Tail risks against sorting, linear programs and their own variational forms."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize_scalar

from smatter.algebra.tail import (
    TailWindow,
    hinge_risk,
    mean_and_variance,
    soft_tail_risk,
    soft_tail_weights,
    stopped_risk,
    tail_risk,
    tail_weights,
    worst_group_weights,
)
from smatter.errors import InvalidSettings

torch.set_num_threads(1)
shares = st.floats(0.02, 1.0)
losses_and_weights = st.lists(
    st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]) | st.floats(-3, 3), st.floats(0.01, 1)), min_size=1, max_size=9
)


def make(pairs: list[tuple[float, float]]) -> tuple[torch.Tensor, torch.Tensor]:
    losses, weights = torch.tensor(pairs, dtype=torch.float64).T
    return losses, weights


def brute_tail_risk(losses: torch.Tensor, rho: float, weights: torch.Tensor) -> float:
    """Fill the share rho from the worst loss down."""
    masses = (weights / weights.sum()).tolist()
    left, total = rho, 0.0
    for loss, mass in sorted(zip(losses.tolist(), masses, strict=True), reverse=True):
        taken = min(left, mass)
        left, total = left - taken, total + taken * loss
    return total / rho


@given(losses_and_weights, shares)
def test_tail_risk_agrees_with_filling_the_share_from_above(pairs: list[tuple[float, float]], rho: float) -> None:
    losses, weights = make(pairs)
    assert float(tail_risk(losses, rho, weights)) == pytest.approx(brute_tail_risk(losses, rho, weights), abs=1e-9)
    equal = torch.ones_like(losses)
    assert float(tail_risk(losses, rho)) == pytest.approx(brute_tail_risk(losses, rho, equal), abs=1e-9)


@given(losses_and_weights, shares)
@settings(deadline=None, max_examples=50)
def test_tail_weights_solve_the_dual_linear_program(pairs: list[tuple[float, float]], rho: float) -> None:
    losses, weights = make(pairs)
    ceiling = (weights / weights.sum() / rho).numpy()
    answer = linprog(
        -losses.numpy(), A_eq=np.ones((1, len(losses))), b_eq=[1.0], bounds=[(0, each + 1e-12) for each in ceiling]
    )
    found = tail_weights(losses, rho, weights)
    assert float(found.sum()) == pytest.approx(1, abs=1e-9)
    assert (found.numpy() >= 0).all() and (found.numpy() <= ceiling + 1e-9).all()
    assert float(found @ losses) == pytest.approx(-answer.fun, abs=1e-7)


@given(losses_and_weights, shares)
def test_tied_losses_count_in_proportion_to_their_weights(pairs: list[tuple[float, float]], rho: float) -> None:
    losses, weights = make(pairs)
    twice = tail_weights(torch.cat([losses, losses]), rho, torch.cat([weights, 2 * weights]))
    torch.testing.assert_close(2 * twice[: len(losses)], twice[len(losses) :])
    torch.testing.assert_close(twice.reshape(2, -1).sum(dim=0), tail_weights(losses, rho, weights))


def test_batches_are_weighted_row_by_row() -> None:
    rows = torch.rand(3, 4, 7, generator=torch.Generator().manual_seed(0))
    assert (tail_weights(rows, 0.3)[1, 2] == tail_weights(rows[1, 2], 0.3)).all()
    torch.testing.assert_close(soft_tail_risk(rows, 0.3, 0.1)[2, 0], soft_tail_risk(rows[2, 0], 0.3, 0.1))


def test_the_whole_is_the_mean() -> None:
    losses = torch.randn(9, generator=torch.Generator().manual_seed(1))
    for risk in (tail_risk(losses, 1.0), soft_tail_risk(losses, 1.0, 0.1), stopped_risk(losses, 1.0)):
        torch.testing.assert_close(risk, losses.mean())


def test_gradients_are_the_weights() -> None:
    losses = torch.randn(6, generator=torch.Generator().manual_seed(2), dtype=torch.float64, requires_grad=True)
    for rho in (0.1, 0.4, 1.0):
        (slope,) = torch.autograd.grad(tail_risk(losses, rho), losses)
        torch.testing.assert_close(slope, tail_weights(losses, rho))
        (slope,) = torch.autograd.grad(soft_tail_risk(losses, rho, 0.2), losses)
        torch.testing.assert_close(slope, soft_tail_weights(losses, rho, 0.2), atol=1e-9, rtol=1e-9)
        assert torch.autograd.gradcheck(lambda x, rho=rho: tail_risk(x, rho), losses)
        assert torch.autograd.gradcheck(lambda x, rho=rho: soft_tail_risk(x, rho, 0.2), losses)
    assert torch.autograd.gradcheck(lambda x: mean_and_variance(x, 0.7), losses)
    threshold = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, t: hinge_risk(x, t, 0.3), (losses, threshold))


@given(losses_and_weights, shares)
@settings(deadline=None)
def test_the_best_threshold_gives_the_tail_risk(pairs: list[tuple[float, float]], rho: float) -> None:
    losses, _ = make(pairs)
    # The objective is piecewise linear in t with corners at the losses, so one of them is a minimum.
    values = torch.stack([hinge_risk(losses, corner, rho) for corner in losses])
    assert float(values.min()) == pytest.approx(float(tail_risk(losses, rho)), abs=1e-9)


def test_a_learnt_threshold_finds_risk_and_quantile_of_batches_that_are_too_small() -> None:
    """Uniform losses, 4 a step at rho = 0.1: the quantile is 0.9 and the risk 0.95."""
    generator = torch.Generator().manual_seed(3)
    threshold = torch.tensor(0.5, requires_grad=True)
    path, values = [], []
    for step in range(6000):
        value = hinge_risk(torch.rand(4, generator=generator), threshold, 0.1)
        (slope,) = torch.autograd.grad(value, threshold)
        with torch.no_grad():
            threshold -= 0.3 / (step + 100) ** 0.75 * slope
        path.append(float(threshold.detach()))
        values.append(float(value.detach()))
    assert np.mean(path[2000:]) == pytest.approx(0.9, abs=0.01)
    assert np.mean(values[2000:]) == pytest.approx(0.95, abs=0.03)


def test_a_small_batch_understates_the_tail() -> None:
    """The largest of 4 uniform losses is 0.80 on average, and CVaR_0.1 of the uniform distribution is 0.95."""
    batches = torch.rand(40_000, 4, generator=torch.Generator().manual_seed(4))
    assert float(tail_risk(batches, 0.1).mean()) == pytest.approx(0.80, abs=0.005)
    assert float(tail_risk(batches.flatten(), 0.1)) == pytest.approx(0.95, abs=0.005)


def test_a_window_mends_the_small_batch() -> None:
    generator = torch.Generator().manual_seed(5)
    window = TailWindow(0.1, 200)
    values, sums = [], []
    for _ in range(3000):
        losses = torch.rand(4, generator=generator).requires_grad_()
        window = window.seen(losses)
        value = window.risk(losses)
        (slope,) = torch.autograd.grad(value, losses)
        values.append(float(value.detach()))
        sums.append(float(slope.sum()))
    assert len(window.losses) == 200 and not window.losses.requires_grad
    assert np.mean(values[100:]) == pytest.approx(0.95, abs=0.02)
    assert np.mean(sums[100:]) == pytest.approx(1.0, abs=0.1)
    assert sums[0] == pytest.approx(1.0) and values[0] < 1, "until the window is ready, the batch counts alone"


def test_a_window_forgets_what_is_older() -> None:
    window = TailWindow(0.5, 3).seen(torch.tensor([9.0, 1.0])).seen(torch.tensor([2.0, 3.0]))
    assert window.losses.tolist() == [1.0, 2.0, 3.0]
    assert float(window.threshold) == 2.0


@given(losses_and_weights, shares)
def test_a_stopped_threshold_keeps_the_value_and_loses_gradient(pairs: list[tuple[float, float]], rho: float) -> None:
    losses = make(pairs)[0].requires_grad_()
    if rho * len(losses) <= 1:
        with pytest.raises(InvalidSettings, match=f"batch of {len(losses)} tasks"):
            stopped_risk(losses, rho)
        return
    risk = stopped_risk(losses, rho)
    assert float(risk.detach()) == pytest.approx(float(tail_risk(losses, rho).detach()), abs=1e-9)
    (slope,) = torch.autograd.grad(risk, losses)
    assert float(slope.sum()) <= 1 + 1e-9


def test_four_tasks_at_a_tenth_say_how_many_would_do() -> None:
    with pytest.raises(InvalidSettings, match=r"batch of 4 tasks .* take 11 tasks or more, a window"):
        stopped_risk(torch.rand(4), 0.1)
    stopped_risk(torch.rand(11), 0.1)


@given(losses_and_weights, st.floats(0.05, 0.95), st.floats(0.05, 2))
@settings(deadline=None, max_examples=50)
def test_the_smooth_risk_is_the_minimum_over_thresholds(
    pairs: list[tuple[float, float]], rho: float, temperature: float
) -> None:
    losses, weights = make(pairs)
    p = (weights / weights.sum()).numpy()

    def smooth(t: float) -> float:
        above = np.logaddexp(0, (losses.numpy() - t) / temperature)
        return t + temperature / rho * float(p @ above)

    best = minimize_scalar(smooth, bounds=(-20, 20), method="bounded", options={"xatol": 1e-9}).fun
    found = float(soft_tail_risk(losses, rho, temperature, weights))
    assert found == pytest.approx(best, abs=1e-6)
    exact = float(tail_risk(losses, rho, weights))
    assert exact - 1e-7 <= found <= exact + temperature * math.log(2) / rho + 1e-7
    assert float(soft_tail_weights(losses, rho, temperature, weights).sum()) == pytest.approx(1)


def test_the_smooth_weights_go_from_the_tail_to_the_mean() -> None:
    losses = torch.randn(8, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    torch.testing.assert_close(soft_tail_weights(losses, 0.25, 1e-4), tail_weights(losses, 0.25), atol=1e-6, rtol=0)
    torch.testing.assert_close(soft_tail_weights(losses, 0.25, 1e5), torch.full_like(losses, 1 / 8), atol=1e-4, rtol=0)


def test_variance_is_that_of_the_weighted_tasks() -> None:
    losses, weights = torch.tensor([1.0, 4.0, 2.0]), torch.tensor([1.0, 2.0, 1.0])
    repeated = torch.tensor([1.0, 4.0, 4.0, 2.0])
    expected = repeated.mean() + 0.3 * repeated.var(correction=0)
    torch.testing.assert_close(mean_and_variance(losses, 0.3, weights), expected)


@given(st.lists(st.tuples(st.floats(-3, 3), st.integers(0, 4)), min_size=1, max_size=9))
def test_the_worst_group_is_the_one_of_largest_mean(pairs: list[tuple[float, int]]) -> None:
    losses = torch.tensor([loss for loss, _ in pairs], dtype=torch.float64)
    groups = torch.tensor([group for _, group in pairs])
    means = [float(losses[groups == group].mean()) for group in groups.unique()]
    weights = worst_group_weights(losses, groups)
    assert float(weights @ losses) == pytest.approx(max(means), abs=1e-12)
    assert len(groups[weights > 0].unique()) == 1


@pytest.mark.parametrize("rho", [0.0, 1.5, -0.1, math.nan])
def test_what_is_no_share_is_refused(rho: float) -> None:
    for risk in (tail_risk, stopped_risk):
        with pytest.raises(InvalidSettings, match="rho"):
            risk(torch.rand(20), rho)
    with pytest.raises(InvalidSettings, match="rho"):
        TailWindow(rho, 100)


def test_what_has_no_risk_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="task 1 is not finite"):
        tail_risk(torch.tensor([[0.0, 1.0], [1.0, math.nan]]), 0.5)
    with pytest.raises(InvalidSettings, match="zero or more"):
        tail_weights(torch.rand(2), 0.5, torch.tensor([1.0, -1.0]))
    with pytest.raises(InvalidSettings, match="keep 11 losses or more"):
        TailWindow(0.1, 10)
