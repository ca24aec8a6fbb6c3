"""The theory lab's helpers: closed forms, bounds that are bounds, charts that can be read back."""

import math
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from smatter.linear.alternate import solve_pair
from smatter.linear.loss import LinearLoss
from smatter.linear.mixing import mixture_problem
from smatter.linear.task import LinearTask
from smatter.solve.frank_wolfe import FrankWolfe
from smatter.solve.pattern import Pattern

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from theory_bounds import (
    best_spike_bayes,
    fano,
    mixture_fano,
    mixture_van_trees,
    sparse_fano,
    spike_bayes,
)
from theory_limits import predicted_weight_error, promise_ratio, trace
from theory_plots import Panel, Series, draw
from theory_tasks import (
    Mean,
    block_residuals,
    draw_examples,
    draw_loss,
    enumerate_pairs,
    estimator_risk,
    excess_risk,
    fit_line,
    population_loss,
    random_sources,
    spanning_sources,
    sparse_residuals,
    threshold,
)

torch.set_num_threads(1)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_the_closed_form_is_the_loss_on_fresh_examples(generator: torch.Generator) -> None:
    theta = torch.randn(1, 5, generator=generator, dtype=torch.float64)
    estimate = theta + 0.3 * torch.randn(1, 5, generator=generator, dtype=torch.float64)
    fresh = draw_examples(theta, 200_000, generator)
    excess = fresh.value(estimate) - fresh.value(theta)
    torch.testing.assert_close(excess, excess_risk(estimate, theta), rtol=0.03, atol=0)


def test_sources_in_their_own_span_keep_their_inner_products() -> None:
    whole = random_sources(3, 50, 2.0, torch.Generator().manual_seed(7))[0]
    short = spanning_sources(3, 50, 2.0, torch.Generator().manual_seed(7))[0]
    torch.testing.assert_close(short @ short.mT, whole @ whole.mT)


def test_residuals_have_the_support_and_size_asked_for(generator: torch.Generator) -> None:
    residuals = sparse_residuals(20, 30, 4, 0.5, generator)
    assert ((residuals != 0).sum(dim=1) == 4).all()
    assert (residuals[residuals != 0].abs() == 0.5).all()
    norms = block_residuals(20, 6, 5, 2, 0.7, generator).unflatten(1, (6, 5)).norm(dim=2)
    assert ((norms > 0).sum(dim=1) == 2).all()
    torch.testing.assert_close(norms[norms > 0], torch.full((40,), 0.7, dtype=torch.float64))


def test_the_least_squares_risk_is_the_known_one(generator: torch.Generator) -> None:
    """With k = d the estimator is least squares, whose risk is d / 2 (n - d - 1)."""
    theta = torch.zeros(400, 3, dtype=torch.float64)
    risk = estimator_risk(theta, 40, torch.zeros(1, 1, 3, dtype=torch.float64), Pattern(3), generator)
    mean = Mean(risk.numpy())
    assert abs(mean.value - 3 / 2 / (40 - 3 - 1)) < 1.5 * mean.half_width


def test_the_population_problem_gives_the_approximation_term(generator: torch.Generator) -> None:
    theta = torch.randn(5, 8, generator=generator, dtype=torch.float64)
    nothing = torch.zeros(1, 1, 8, dtype=torch.float64)
    left = solve_pair(LinearTask(population_loss(theta), nothing, Pattern(3))).value
    expected = 0.5 * theta.square().sort(dim=1).values[:, :5].sum(dim=1)
    torch.testing.assert_close(left, expected)


def test_enumeration_is_never_beaten(generator: torch.Generator) -> None:
    sources = random_sources(2, 8, 2.0, generator)
    theta = sources[0].mean(dim=0) + sparse_residuals(4, 8, 2, threshold(8, 2, 30), generator)
    task = LinearTask(draw_loss(theta, 30, generator), sources, Pattern(2))
    least, best = enumerate_pairs(task, 2)
    torch.testing.assert_close(task.loss.value(best), least)
    assert (solve_pair(task).value >= least - 1e-6).all()


def test_a_line_is_recovered_with_its_interval() -> None:
    generator = np.random.default_rng(0)
    x = [1.0, 2.0, 4.0, 8.0]
    means = [Mean(3 / at * (1 + 0.1 * generator.standard_normal(200))) for at in x]
    line = fit_line(x, means, logarithmic=True, n_resamples=200)
    assert line.slope_low < -1 < line.slope_high
    assert line.r2 > 0.99 and line.r2_low <= line.r2


def test_fano_is_largest_at_the_amplitude_it_chooses() -> None:
    size, distance, spread, n = 5.0, 2.0, 3.0, 50
    at = [s * (1 - (n * s * spread / 2 + math.log(2)) / size) * distance / 8 for s in np.linspace(0, 0.1, 10_001)]
    assert fano(size, distance, spread, n) == pytest.approx(max(at), rel=1e-6)
    assert fano(0.5, distance, spread, n) == 0.0  # fewer than two hypotheses say nothing
    assert fano(size, distance, spread, n, largest=0.01) == pytest.approx(at[1000])  # the packing must fit


def test_lower_bounds_stay_below_what_estimators_reach(generator: torch.Generator) -> None:
    d, k, n = 32, 2, 100
    assert 0 < sparse_fano(d, k, n) < best_spike_bayes(d, k, n, 200, generator) < k * math.log(d / k) / n
    for n_sources in (2, 5, 12):
        least_squares = (n_sources - 1) / (2 * n)
        assert mixture_fano(n_sources, n, 1.0) <= least_squares
        assert 0 < mixture_van_trees(n_sources, n, 1.0) <= least_squares
    assert mixture_van_trees(4, 10**7, 1.0) == pytest.approx(3 / 2 / 10**7, rel=0.01)


def test_a_spike_that_cannot_be_seen_or_missed(generator: torch.Generator) -> None:
    tiny, huge = 1e-4, 5.0
    width = 8
    blind = float(spike_bayes(16, 2, 20, tiny, 50, generator).mean())
    assert blind == pytest.approx(2 * tiny**2 / 2 * (1 - 1 / width), rel=0.01)
    assert float(spike_bayes(16, 2, 20, huge, 50, generator).mean()) < 1e-6


def test_traces_follow_frank_wolfe_from_a_corner(generator: torch.Generator) -> None:
    sources = random_sources(6, 10, 2.0, generator)
    loss = draw_loss(sources[0].mean(dim=0).expand(3, -1), 40, generator)
    problem = mixture_problem(loss, sources, torch.zeros(3, 10, dtype=torch.float64))
    corner = torch.zeros(3, 1, 6, dtype=torch.float64)
    corner[:, :, 0] = 1
    states = trace(FrankWolfe(0.0, "vanilla", "open loop"), problem, corner, 30)
    assert len(states) == 31
    for step, state in enumerate(states):
        assert ((state.point > 0).sum(dim=2) <= step + 1).all()


def test_the_predicted_error_of_weights_is_the_one_that_happens(generator: torch.Generator) -> None:
    sources = random_sources(3, 20, 3.0, generator)
    theta = sources[0].mean(dim=0).expand(400, -1)
    loss: LinearLoss = draw_examples(theta, 100, generator)
    found = solve_pair(LinearTask(loss, sources))
    predicted = float(predicted_weight_error(loss, sources, found.theta).median())
    assert predicted == pytest.approx(float(found.weights[:, 0].std(dim=0).max()), rel=0.2)


def test_unused_coordinates_promise_more_where_the_truth_is_dense(generator: torch.Generator) -> None:
    nothing = torch.zeros(1, 1, 30, dtype=torch.float64)
    ratios = {}
    for kept in (3, 30):
        theta = sparse_residuals(20, 30, kept, kept**-0.5, generator)
        task = LinearTask(draw_loss(theta, 400, generator), nothing, Pattern(3))
        ratios[kept] = float(promise_ratio(task, solve_pair(task), 400, 3).median())
    assert ratios[3] < 1.4 < ratios[30]


@pytest.mark.parametrize("log", [False, True])
def test_charts_are_xml_with_every_point_inside(tmp_path: Path, log: bool) -> None:
    series = [
        Series("a < b", [1, 10, 100], [0.5, 5, 50], [0.4, 4, 40], [0.6, 6, 60]),
        Series("c", [1], [1], mark="points"),
    ]
    path = draw(tmp_path / "chart.svg", [Panel("x & y", "across", "up", series, log, log)] * 3)
    root = ElementTree.fromstring(path.read_text())
    circles = [element for element in root.iter() if element.tag.endswith("circle")]
    assert len(circles) == 3 * (4 + 2)  # points, and keys of the legend
    height = float(root.attrib["viewBox"].split()[3])
    assert all(0 < float(circle.attrib["cy"]) < height for circle in circles)
    assert path.stat().st_size < 60_000
