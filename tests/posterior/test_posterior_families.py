"""What holds for every family: shapes, simplices, moments, divergences and entropies by their definitions."""

from collections.abc import Callable

import pytest
import torch

from smatter.posterior import Posterior
from smatter.posterior.categorical import Categorical
from smatter.posterior.concrete import Concrete
from smatter.posterior.dirichlet import Dirichlet
from smatter.posterior.logistic_normal import LogisticNormal
from smatter.posterior.product import Product
from smatter.posterior.two_level import TwoLevel

torch.set_num_threads(1)
torch.manual_seed(0)
N_SOURCES, N_EXPERTS = 3, 2
CATALOGUE = torch.rand(5, N_SOURCES, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
CATALOGUE = CATALOGUE / CATALOGUE.sum(dim=1, keepdim=True)
Numbers = Callable[..., torch.Tensor]

FAMILIES: dict[str, Callable[[Numbers], Posterior]] = {
    "categorical": lambda make: Categorical(CATALOGUE, make(5)),
    "two-level": lambda make: TwoLevel.of(CATALOGUE, torch.tensor([0, 1, 0, 1, 1]), make(2), make(5)),
    "diagonal": lambda make: LogisticNormal(make(2), make(2).exp()),
    "low-rank": lambda make: LogisticNormal(make(2), make(2).exp(), make(2, 2)),
    "concrete": lambda make: Concrete(make(3), 0.7),
    "dirichlet": lambda make: Dirichlet(make(3).exp() + 0.5),
    "product": lambda make: Product(LogisticNormal(make(2), make(2).exp()), Dirichlet(make(3).exp() + 0.5)),
    "no experts": lambda make: Product(LogisticNormal(make(2), make(2).exp()), Categorical(ONE, 0 * make(1))),
}
ONE = torch.ones(1, 1, dtype=torch.float64)
every_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())
batches = pytest.mark.parametrize("batch", [(), (2,), (2, 3)], ids=str)


def numbers(seed: int, batch: tuple[int, ...] = ()) -> Numbers:
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(*batch, *shape, generator=generator, dtype=torch.float64)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@every_family
@batches
def test_results_keep_the_shape_of_the_tasks(family, batch: tuple[int, ...]) -> None:
    posterior, prior = family(numbers(1, batch)), family(numbers(2, batch))
    samples = posterior.sample(7, generator())
    d = samples.shape[-1]
    assert samples.shape == (7, *batch, d)
    assert posterior.mean().shape == posterior.mode().shape == (*batch, d)
    assert posterior.log_prob(samples).shape == (7, *batch)
    assert posterior.kl(prior).shape == posterior.entropy().shape == batch
    catalogue = posterior.sample(4, generator(1))[(slice(None), *(0 for _ in batch))]
    assert posterior.discretised(catalogue).probs.shape == (*batch, 4)


@every_family
def test_a_batch_is_its_tasks(family) -> None:
    """A posterior of one task that is given twice says the same of both."""
    alone = family(numbers(3))
    values = numbers(3)
    together = family(lambda *shape: values(*shape).expand(2, *shape))
    for name in ("mean", "mode", "entropy"):
        torch.testing.assert_close(
            getattr(together, name)(), getattr(alone, name)().expand_as(getattr(together, name)())
        )
    points = alone.sample(6, generator())
    torch.testing.assert_close(together.log_prob(points[:, None])[:, 1], alone.log_prob(points))


@every_family
def test_samples_lie_on_the_simplex_and_follow_the_generator(family) -> None:
    posterior = family(numbers(4, (2,)))
    for points in (posterior.sample(50, generator()), posterior.mean(), posterior.mode()):
        assert (points >= 0).all()
        blocks = points.split([N_SOURCES, points.shape[-1] - N_SOURCES], dim=-1)
        for block in blocks:
            if block.shape[-1]:
                torch.testing.assert_close(block.sum(dim=-1), torch.ones_like(block[..., 0]))
    assert (posterior.sample(5, generator(3)) == posterior.sample(5, generator(3))).all()
    state = torch.random.get_rng_state()
    posterior.mean(), posterior.entropy(), posterior.sample(3, generator())
    assert (torch.random.get_rng_state() == state).all(), "no family touches the global generator"


@every_family
def test_moments_and_divergences_agree_with_samples(family) -> None:
    n = 40_000
    posterior, prior = family(numbers(5)), family(numbers(6))
    samples = posterior.sample(n, generator())

    def close(found: torch.Tensor, values: torch.Tensor) -> None:
        error = values.std(dim=0) / n**0.5
        assert ((found - values.mean(dim=0)).abs() <= 4.5 * error + 2e-3).all()

    own, other = posterior.log_prob(samples), prior.log_prob(samples)
    close(posterior.mean(), samples)
    close(posterior.entropy(), -own)
    close(posterior.kl(prior), own - other)


@every_family
def test_divergence_is_zero_only_from_itself(family) -> None:
    for seed in range(5):
        posterior, prior = family(numbers(seed)), family(numbers(seed + 50))
        assert float(posterior.kl(family(numbers(seed)))) == pytest.approx(0, abs=1e-9)
        assert float(posterior.kl(prior)) > 1e-3


@every_family
def test_divergence_and_entropy_have_right_gradients(family) -> None:
    flat = torch.randn(12, generator=generator(8), dtype=torch.float64, requires_grad=True)
    prior = family(numbers(9))

    def of(function: Callable[[Posterior], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
        def value(entries: torch.Tensor) -> torch.Tensor:
            at = 0

            def take(*shape: int) -> torch.Tensor:
                nonlocal at
                at += torch.Size(shape).numel()
                return entries[at - torch.Size(shape).numel() : at].reshape(shape)

            return function(family(take))

        return value

    assert torch.autograd.gradcheck(of(lambda posterior: posterior.kl(prior)), flat)
    assert torch.autograd.gradcheck(of(lambda posterior: posterior.entropy()), flat)
    assert torch.autograd.gradcheck(of(lambda posterior: posterior.mean()), flat)


@every_family
def test_the_nearest_of_a_catalogue_gets_the_samples(family) -> None:
    posterior = family(numbers(10))
    catalogue = posterior.sample(3, generator(11))
    samples = posterior.sample(20_000, generator(12))
    nearest = ((samples[:, None] - catalogue) ** 2).sum(dim=-1).argmin(dim=1)
    shares = torch.bincount(nearest, minlength=3) / len(samples)
    torch.testing.assert_close(posterior.discretised(catalogue).probs, shares.double(), atol=0.05, rtol=0)
