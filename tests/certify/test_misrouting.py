"""Misrouting: simulated and exact errors lie between the bounds; identities of the posterior."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smatter.certify.misrouting import (
    equidistant_families,
    gibbs_disagreement,
    misrouting_floor,
    misrouting_lower_fano,
    misrouting_lower_le_cam,
    misrouting_upper,
    missed_mass_upper,
    separation_of,
    simulate_routing,
)
from smatter.errors import InvalidCertificate


def exact_error(families: np.ndarray, n: int) -> float:
    """Of the best router with equal priors, summed over all n-tuples of symbols."""
    joint = np.array(
        [[np.prod(row[list(symbols)]) for symbols in product(range(families.shape[1]), repeat=n)] for row in families]
    )
    return 1 - float(joint.max(axis=0).sum()) / len(families)


@given(st.integers(0, 10_000), st.integers(2, 4), st.integers(1, 4))
def test_exact_errors_lie_between_the_bounds(seed: int, n_routings: int, n: int) -> None:
    families = np.random.default_rng(seed).dirichlet(np.full(3, 0.7), n_routings)
    apart, error = separation_of(families), exact_error(families, n)
    assert error <= misrouting_upper(n_routings, n, apart.total_variation) + 1e-12
    assert error >= misrouting_lower_le_cam(apart.affinities, n) - 1e-12
    assert error >= misrouting_lower_fano(n_routings, n, apart.divergence) - 1e-12
    if n_routings == 2:
        assert error >= misrouting_floor(n, apart.total_variation) - 1e-12


def test_the_simulation_is_the_exact_error_and_the_posterior_knows_it() -> None:
    families = np.array([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.3, 0.2, 0.5]])
    found = simulate_routing(families, 4, 40_000, np.random.default_rng(0))
    assert found.misrouting == pytest.approx(exact_error(families, 4), abs=0.01)
    assert found.uncertainty == pytest.approx(found.misrouting, abs=0.01)
    assert found.misrouting < found.gibbs_error <= 2 * found.misrouting


@pytest.mark.parametrize("separation", [0.1, 0.3, 0.6])
@pytest.mark.parametrize("n", [1, 10, 50])
def test_simulated_errors_lie_between_the_bounds(separation: float, n: int) -> None:
    families = equidistant_families(5, separation)
    apart = separation_of(families)
    assert apart.total_variation == pytest.approx(separation)
    found = simulate_routing(families, n, 20_000, np.random.default_rng(0))
    lower = max(misrouting_lower_le_cam(apart.affinities, n), misrouting_lower_fano(5, n, apart.divergence))
    assert lower - 0.01 <= found.misrouting <= misrouting_upper(5, n, separation) + 0.01
    assert lower - 0.01 <= found.gibbs_error <= missed_mass_upper(5, n, separation) + 0.01


def test_fano_says_something_for_many_routings() -> None:
    apart = separation_of(equidistant_families(40, 0.1))
    assert misrouting_lower_fano(40, 1, apart.divergence) > 0.5
    assert misrouting_lower_fano(2, 1, 0.0) == misrouting_lower_fano(5, 1, np.inf) == 0.0


def test_a_drawn_routing_differs_from_the_most_probable_with_probability_u() -> None:
    posterior = np.random.default_rng(0).dirichlet(np.ones(4))
    drawn = np.random.default_rng(1).choice(4, 40_000, p=posterior)
    assert (drawn != posterior.argmax()).mean() == pytest.approx(float(gibbs_disagreement(posterior)), abs=0.01)


def test_what_a_routing_forbids_is_never_routed_there() -> None:
    found = simulate_routing([[1.0, 0.0], [0.0, 1.0]], 1, 100, np.random.default_rng(0))
    assert found.misrouting == found.gibbs_error == found.uncertainty == 0
    with pytest.raises(InvalidCertificate, match="two or more"):
        separation_of([[0.5, 0.5]])
    with pytest.raises(InvalidCertificate):
        simulate_routing([[0.5, 0.6], [0.5, 0.5]], 1, 10, np.random.default_rng(0))
