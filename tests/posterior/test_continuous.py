"""Densities on the simplex against numerical integration and torch's own distributions."""

import pytest
import torch
from scipy.stats import norm
from simplex_integrals import expectation, integrate
from torch import distributions

from smatter.errors import InvalidSettings
from smatter.posterior.concrete import Concrete, annealed_temperature
from smatter.posterior.dirichlet import Dirichlet
from smatter.posterior.logistic_normal import LogisticNormal, logit_gaussian, ungauged_kl

torch.set_num_threads(1)


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make(name: str, d: int, seed: int):
    if name == "diagonal":
        return LogisticNormal(numbers(d - 1, seed=seed), (0.4 * numbers(d - 1, seed=seed + 1)).exp())
    if name == "low-rank":
        return LogisticNormal(
            numbers(d - 1, seed=seed), (0.4 * numbers(d - 1, seed=seed + 1)).exp(), numbers(d - 1, 1, seed=seed + 2)
        )
    if name == "concrete":
        return Concrete(numbers(d, seed=seed), 0.8)
    return Dirichlet(1 + numbers(d, seed=seed).exp())


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("name", ["diagonal", "low-rank", "concrete", "dirichlet"])
def test_everything_agrees_with_numerical_integration(name: str, d: int) -> None:
    posterior, prior = make(name, d, 0), make(name, d, 10)
    one = integrate(d, lambda points: posterior.log_prob(points).exp())
    assert float(one) == pytest.approx(1, abs=1e-9)
    torch.testing.assert_close(posterior.mean(), expectation(posterior, d, lambda points: points), atol=1e-3, rtol=0)
    entropy = expectation(posterior, d, lambda points: -posterior.log_prob(points))
    assert float(posterior.entropy()) == pytest.approx(float(entropy), abs=2e-2)
    kl = expectation(posterior, d, lambda points: posterior.log_prob(points) - prior.log_prob(points))
    assert float(posterior.kl(prior)) == pytest.approx(float(kl), abs=1e-9)


def test_the_gauged_divergence_is_exact_and_the_other_a_bound() -> None:
    for d in (2, 3):
        for seed in range(4):
            gaussians = [
                logit_gaussian(numbers(d, seed=at), (0.4 * numbers(d, seed=at + 1)).exp(), numbers(d, 1, seed=at + 2))
                for at in (seed, seed + 40)
            ]
            posterior, prior = (LogisticNormal.of_logits(gaussian) for gaussian in gaussians)
            exact = expectation(posterior, d, lambda x, q=posterior, p=prior: q.log_prob(x) - p.log_prob(x))
            assert float(posterior.kl(prior)) == pytest.approx(float(exact), abs=1e-9)
            assert float(ungauged_kl(*gaussians)) > float(exact) + 1e-3


def test_a_gaussian_over_all_logits_gives_the_same_points_in_the_gauge() -> None:
    gaussian = logit_gaussian(numbers(4), numbers(4, seed=1).exp(), numbers(4, 2, seed=2))
    gauged = LogisticNormal.of_logits(gaussian).gaussian
    change = torch.cat([torch.eye(3), -torch.ones(3, 1)], dim=1).double()
    torch.testing.assert_close(gauged.loc, change @ gaussian.loc)
    torch.testing.assert_close(gauged.covariance_matrix, change @ gaussian.covariance_matrix @ change.T)


def test_logistic_normal_of_two_weights_is_torchs() -> None:
    """The sigmoid of a Gaussian."""
    posterior = LogisticNormal(*torch.tensor([[0.3], [1.2]], dtype=torch.float64))
    sigmoid = distributions.TransformedDistribution(
        distributions.Normal(torch.tensor(0.3, dtype=torch.float64), 1.2), [distributions.SigmoidTransform()]
    )
    first = torch.linspace(0.05, 0.95, 9, dtype=torch.float64)
    points = torch.stack([first, 1 - first], dim=1)
    torch.testing.assert_close(posterior.log_prob(points), sigmoid.log_prob(first))
    corners = torch.tensor([[0.9, 0.1], [0.1, 0.9]]).double()
    torch.testing.assert_close(
        posterior.discretised(corners).probs[0], torch.tensor(norm.cdf(0.3 / 1.2)), atol=0.04, rtol=0
    )
    many = posterior.sample(20_000, torch.Generator().manual_seed(0))
    assert float((many[:, 0] > 0.5).double().mean()) == pytest.approx(norm.cdf(0.3 / 1.2), abs=0.012)


def test_samples_carry_the_gradient_of_the_location() -> None:
    """d E[x] / d location by samples and by the integrated mean."""
    location = numbers(2).requires_grad_()
    posterior = LogisticNormal(location, numbers(2, seed=1).exp(), numbers(2, 1, seed=2))
    for index in range(3):
        (sampled,) = torch.autograd.grad(
            posterior.sample(20_000, torch.Generator().manual_seed(0)).mean(dim=0)[index], location
        )
        (integrated,) = torch.autograd.grad(posterior.mean()[index], location)
        torch.testing.assert_close(sampled, integrated, atol=4e-3, rtol=0)


@pytest.mark.parametrize("d", [2, 4])
def test_concrete_density_is_torchs(d: int) -> None:
    logits, temperature = numbers(3, d), 0.4
    points = numbers(5, 3, d, seed=1).softmax(dim=-1)
    expected = distributions.RelaxedOneHotCategorical(torch.tensor(temperature).double(), logits=logits)
    torch.testing.assert_close(Concrete(logits, temperature).log_prob(points), expected.log_prob(points))


def test_concrete_divergence_depends_on_no_temperature_and_exceeds_that_of_the_choices() -> None:
    """What is left of a relaxed sample is its largest weight, and forgetting can only bring distributions closer."""
    logits, others = numbers(5), numbers(5, seed=1)
    values = [Concrete(logits, t).kl(Concrete(others, t)) for t in (0.1, 2.0)]
    torch.testing.assert_close(values[0], values[1])
    choices = distributions.kl_divergence(
        distributions.Categorical(logits=logits), distributions.Categorical(logits=others)
    )
    assert float(values[0]) > float(choices)
    integral = [
        expectation(q, 2, lambda x, q=q, p=p: q.log_prob(x) - p.log_prob(x))
        for q, p in ((Concrete(logits[:2], t), Concrete(others[:2], t)) for t in (0.7, 1.5))
    ]
    torch.testing.assert_close(integral[0], integral[1], atol=1e-9, rtol=0)
    with pytest.raises(InvalidSettings, match="posterior's temperature"):
        Concrete(logits, 0.5).kl(Concrete(others, 1.0))


def test_far_apart_logits_keep_the_concrete_divergence_finite() -> None:
    """sum_i (pi_i - pi'_i) + d (E log sum_i c_i e_i - digamma(d)), with one c_i above all others."""
    gap, d = 25.0, 3
    posterior = Concrete(torch.tensor([0.0, 0.0, 0.0]).double(), 0.5)
    prior = Concrete(torch.tensor([gap, 0.0, 0.0]).double(), 0.5)
    expected = -gap + d * (gap + float(torch.digamma(torch.tensor(1.0)) - torch.digamma(torch.tensor(3.0))))
    assert float(posterior.kl(prior)) == pytest.approx(expected, abs=1e-4)


def test_cold_concrete_samples_are_choices() -> None:
    logits = numbers(4)
    posterior = Concrete(logits, 0.01)
    samples = posterior.sample(20_000, torch.Generator().manual_seed(0))
    assert float((samples.amax(dim=-1) > 0.99).double().mean()) > 0.95
    torch.testing.assert_close(posterior.discretised(torch.eye(4).double()).probs, logits.softmax(0), atol=0.05, rtol=0)
    torch.testing.assert_close(samples.mean(dim=0), logits.softmax(0), atol=0.015, rtol=0)


def test_hard_samples_are_vertices_with_the_gradient_of_soft_ones() -> None:
    logits = numbers(4).requires_grad_()
    posterior = Concrete(logits, 0.6)
    hard = posterior.hard_sample(30, torch.Generator().manual_seed(1))
    soft = posterior.sample(30, torch.Generator().manual_seed(1))
    assert set(hard.detach().unique().tolist()) == {0.0, 1.0}
    assert (hard.argmax(-1) == soft.argmax(-1)).all()
    values = numbers(30, 4, seed=2)
    slopes = [torch.autograd.grad((each * values).sum(), logits, retain_graph=True)[0] for each in (hard, soft)]
    torch.testing.assert_close(*slopes)


def test_annealing_goes_from_first_to_last() -> None:
    path = [annealed_temperature(done, 2.0, 0.1) for done in (-1, 0, 0.3, 0.6, 1, 2)]
    assert path[0] == path[1] == 2.0 and path[-1] == path[-2] == pytest.approx(0.1)
    assert path == sorted(path, reverse=True)


def test_dirichlet_samples_have_torchs_moments() -> None:
    posterior = Dirichlet(torch.tensor([0.3, 1.0, 4.0]).double())
    samples = posterior.sample(60_000, torch.Generator().manual_seed(0))
    torch.testing.assert_close(samples.mean(dim=0), posterior.density.mean, atol=4e-3, rtol=0)
    torch.testing.assert_close(samples.var(dim=0), posterior.density.variance, atol=2e-3, rtol=0)


def test_dirichlet_samples_carry_the_gradient_of_the_concentration() -> None:
    concentration = torch.tensor([0.7, 1.5, 3.0], dtype=torch.float64, requires_grad=True)
    posterior = Dirichlet(concentration)
    for index in range(3):
        (sampled,) = torch.autograd.grad(
            posterior.sample(60_000, torch.Generator().manual_seed(0)).mean(dim=0)[index], concentration
        )
        (exact,) = torch.autograd.grad((concentration / concentration.sum())[index], concentration)
        torch.testing.assert_close(sampled, exact, atol=6e-3, rtol=0)


def test_dirichlets_of_almost_no_concentration_are_vertices_in_single_precision() -> None:
    samples = Dirichlet(torch.full((3,), 1e-3)).sample(3000, torch.Generator().manual_seed(0))
    assert samples.isfinite().all()
    assert float((samples.amax(dim=-1) > 0.999).float().mean()) > 0.95
    torch.testing.assert_close(samples.mean(dim=0), torch.full((3,), 1 / 3), atol=0.04, rtol=0)


def test_the_mode_of_a_dirichlet_is_its_densest_point() -> None:
    assert Dirichlet(torch.tensor([3.0, 2.0, 1.0])).mode().tolist() == pytest.approx([2 / 3, 1 / 3, 0])
    assert Dirichlet(torch.tensor([0.2, 0.5, 0.1])).mode().tolist() == [0, 1, 0]
    assert Dirichlet(torch.ones(1)).mode().tolist() == [1]


def test_single_precision_is_kept() -> None:
    posterior, prior = (LogisticNormal(torch.zeros(3) + at, torch.ones(3)) for at in (0.0, 0.5))
    assert posterior.sample(4, torch.Generator()).dtype == posterior.mean().dtype == torch.float32
    concrete, other = Concrete(torch.zeros(3), 0.5), Concrete(torch.tensor([1.0, 0.0, 0.0]), 0.5)
    for value in (posterior.kl(prior), posterior.entropy(), concrete.kl(other), concrete.entropy()):
        assert value.dtype == torch.float32 and value.isfinite()
