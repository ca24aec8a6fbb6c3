"""Decision rules: what each takes, against sums by hand; the robust weights against a linear program."""

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from smatter.errors import InvalidSettings
from smatter.posterior.categorical import Categorical
from smatter.posterior.decide import Deployed, decide, robust_weights
from smatter.posterior.dirichlet import Dirichlet
from smatter.settings.decisions import Rule

POINTS = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [0.5, 0.5, 1.0], [0.2, 0.8, 1.0]], dtype=torch.float64)
PROBS = torch.tensor([0.1, 0.4, 0.3, 0.2], dtype=torch.float64)
POSTERIOR = Categorical(POINTS, PROBS.log())
POINT = torch.tensor([0.3, 0.7, 1.0], dtype=torch.float64)


def chosen(text: str, seed: int = 0, point: torch.Tensor = POINT) -> Deployed:
    return decide(Rule.parse(text), POSTERIOR, point, torch.Generator().manual_seed(seed))


def test_one_network_at_the_point_the_mean_or_the_likeliest() -> None:
    assert torch.equal(chosen("point").points, POINT[None])
    torch.testing.assert_close(chosen("mean").points[0], PROBS @ POINTS)
    assert torch.equal(chosen("map").points, POINTS[1:2])
    for name in ("point", "mean", "map"):
        assert chosen(name).weights.tolist() == [1.0]


def test_the_likeliest_are_weighed_by_their_probabilities() -> None:
    found = chosen("top:2")
    assert torch.equal(found.points, POINTS[[1, 2]])
    torch.testing.assert_close(found.weights, torch.tensor([4 / 7, 3 / 7], dtype=torch.float64))


def test_half_of_the_weight_is_the_points() -> None:
    found = chosen("half:2")
    assert torch.equal(found.points, torch.stack([POINT, POINTS[1], POINTS[2]]))
    torch.testing.assert_close(found.weights, torch.tensor([1 / 2, 2 / 7, 3 / 14], dtype=torch.float64))
    own = chosen("half:2", point=POINTS[1])
    assert torch.equal(own.points, POINTS[[1, 2, 3]]) and float(own.weights[0]) == 0.5


def test_draws_that_are_the_same_are_one_network() -> None:
    found = chosen("gibbs:400")
    assert 1 < len(found.points) <= 4 and float(found.weights.sum()) == pytest.approx(1)
    share = {tuple(point.tolist()): float(weight) for point, weight in zip(found.points, found.weights, strict=True)}
    for point, expected in zip(POINTS.tolist(), PROBS.tolist(), strict=True):
        assert share[tuple(point)] == pytest.approx(expected, abs=0.1)
    assert torch.equal(chosen("gibbs:3", 7).points, chosen("gibbs:3", 7).points)


def test_a_continuous_posterior_is_drawn_from_and_has_a_mean() -> None:
    posterior = Dirichlet(torch.tensor([2.0, 3.0, 5.0], dtype=torch.float64))
    generator = torch.Generator().manual_seed(0)
    torch.testing.assert_close(
        decide(Rule.parse("mean"), posterior, POINT, generator).points[0], torch.tensor([0.2, 0.3, 0.5]).double()
    )
    assert len(decide(Rule.parse("gibbs:5"), posterior, POINT, generator).points) == 5
    with pytest.raises(InvalidSettings, match="gibbs:K"):
        decide(Rule.parse("top:2"), posterior, POINT, generator)


@pytest.mark.parametrize("text", ["", "tops:3", "top", "top:0", "half:-1", "gibbs:99999", "mean:2", "map "])
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(InvalidSettings):
        Rule.parse(text)


@pytest.mark.parametrize(("text", "point"), [("top:5", POINT), ("half:4", POINTS[1])])
def test_more_routings_than_there_are_are_refused(text: str, point: torch.Tensor) -> None:
    with pytest.raises(InvalidSettings, match="give fewer"):
        chosen(text, point=point)


@pytest.mark.parametrize("text", ["point", "mean", "map", "gibbs:4", "top:2", "half:3"])
def test_rules_read_as_they_are_written_and_keep_to_their_passes(text: str) -> None:
    assert str(Rule.parse(text)) == text
    assert len(chosen(text).points) <= Rule.parse(text).passes


@pytest.mark.parametrize("radius", [0.0, 0.3, 1.0, 1.7, 2.0])
def test_robust_weights_are_the_worst_of_a_linear_program(radius: float) -> None:
    generator = np.random.default_rng(3)
    for _ in range(20):
        n = 6
        weights, losses = generator.dirichlet(np.ones(n)), generator.normal(size=n)
        found = robust_weights(torch.from_numpy(weights), torch.from_numpy(losses), radius).numpy()
        assert found.min() >= -1e-12 and found.sum() == pytest.approx(1)
        assert np.abs(found - weights).sum() <= radius + 1e-9
        # v = weights + up - down, with up and down not negative and sum(up + down) at most the radius
        program = linprog(
            np.concatenate([-losses, losses]),
            A_ub=np.vstack([np.ones((1, 2 * n)), np.hstack([-np.eye(n), np.eye(n)])]),
            b_ub=np.concatenate([[radius], weights]),
            A_eq=np.concatenate([np.ones(n), -np.ones(n)])[None],
            b_eq=[0.0],
        )
        assert found @ losses == pytest.approx(weights @ losses - program.fun, abs=1e-8)


def test_an_impossible_radius_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="0 to 2"):
        robust_weights(PROBS, PROBS, float("nan"))
