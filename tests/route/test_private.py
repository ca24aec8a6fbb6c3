"""Private weights: the noise against the definition, the sensitivity against the worst case."""

import math
import random

import pytest
import torch
from scipy.stats import norm

from smatter.errors import InvalidSettings
from smatter.route.private import DIAMETER, noise_scale, release


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 8.0])
@pytest.mark.parametrize("delta", [1e-6, 1e-3])
def test_the_noise_is_the_least_that_keeps_the_promise(epsilon: float, delta: float) -> None:
    """delta(epsilon) of two normals a sensitivity apart: P[loss > eps] under one, less exp(eps) times the other's."""

    def exact(sigma: float) -> float:
        cut = epsilon * sigma**2 / 0.3 + 0.15  # x with log N(x; .3) - log N(x; 0) = epsilon
        return float(norm.sf(cut, 0.3, sigma) - math.exp(epsilon) * norm.sf(cut, 0.0, sigma))

    sigma = noise_scale(0.3, epsilon, delta)
    assert exact(sigma) == pytest.approx(delta, rel=1e-3)
    assert exact(0.99 * sigma) > delta


def test_the_noise_is_less_than_the_textbook_rule_and_falls_with_epsilon() -> None:
    assert noise_scale(1, 0.5, 1e-5) < math.sqrt(2 * math.log(1.25 / 1e-5)) / 0.5
    scales = [noise_scale(1, epsilon, 1e-5) for epsilon in (0.1, 1, 4, 8, 1000)]
    assert scales == sorted(scales, reverse=True) and scales[-1] > 0


def test_replacing_one_example_moves_the_mean_by_at_most_the_sensitivity() -> None:
    generator = torch.Generator().manual_seed(0)
    points = torch.rand(25, 6, generator=generator).softmax(dim=1)
    for corner in torch.eye(6):
        for other in torch.eye(6):
            one, two = points.clone(), points.clone()
            one[3], two[3] = corner, other
            assert float((one.mean(dim=0) - two.mean(dim=0)).norm()) <= DIAMETER / 25 + 1e-7


def test_the_release_is_on_the_simplex_and_has_the_promised_spread() -> None:
    points = torch.full((50, 4), 0.25)
    draw = random.Random(0).gauss
    drawn = torch.stack([release(points, 8.0, 1e-3, draw) for _ in range(2000)])
    torch.testing.assert_close(drawn.sum(dim=1), torch.ones(2000).double())
    sigma = noise_scale(DIAMETER / 50, 8.0, 1e-3)
    # far from the border, projecting only takes away the part of the noise along (1, 1, 1, 1)
    assert float(drawn.std(dim=0).mean()) == pytest.approx(sigma * math.sqrt(3 / 4), rel=0.05)


def test_an_example_that_breaks_the_router_counts_as_equal_weights() -> None:
    points = torch.tensor([[1.0, 0.0], [math.nan, 0.5]])
    assert release(points, 1e6, 1e-3, lambda mean, _: mean).tolist() == [0.75, 0.25]


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 1e-3), (math.nan, 1e-3), (1, 0), (1, 1), (math.inf, 1e-3)])
def test_impossible_promises_are_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(InvalidSettings, match="positive epsilon"):
        noise_scale(1.0, epsilon, delta)
