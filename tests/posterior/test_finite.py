"""Posteriors over catalogues: exact divergences, unbiased gradients, levels, tempered evidence and the bootstrap."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import distributions

from smatter.errors import InvalidSettings, InvalidSupport
from smatter.posterior.bootstrap import bootstrap_votes, resampled_counts
from smatter.posterior.categorical import Categorical, score_function_loss
from smatter.posterior.tempered import tempered_evidence
from smatter.posterior.two_level import TwoLevel

torch.set_num_threads(1)
POINTS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.8, 0.2]], dtype=torch.float64)


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_categorical_agrees_with_torch() -> None:
    logits, others = numbers(3, 4), numbers(3, 4, seed=1)
    posterior, prior = Categorical(POINTS, logits), Categorical(POINTS, others)
    own, other = distributions.Categorical(logits=logits), distributions.Categorical(logits=others)
    torch.testing.assert_close(posterior.kl(prior), distributions.kl_divergence(own, other))
    torch.testing.assert_close(posterior.entropy(), own.entropy())
    chosen = posterior.choose(30_000, torch.Generator().manual_seed(0))
    shares = torch.nn.functional.one_hot(chosen, 4).double().mean(dim=0)
    torch.testing.assert_close(shares, own.probs, atol=0.012, rtol=0)


def test_what_has_no_probability_breaks_nothing() -> None:
    logits = torch.tensor([0.0, -torch.inf, 1.0, -torch.inf], dtype=torch.float64, requires_grad=True)
    posterior = Categorical(POINTS, logits)
    prior = Categorical(POINTS, torch.zeros(4).double())
    value = posterior.kl(prior) + posterior.entropy()
    assert float(value.detach()) == pytest.approx(float(torch.tensor(4.0).log()))
    assert torch.autograd.grad(posterior.kl(prior), logits)[0].isfinite().all()
    assert prior.kl(posterior).isinf(), "a prior that excludes what the posterior does not"
    assert posterior.log_prob(torch.tensor([0.3, 0.7]).double()) == -torch.inf
    assert posterior.log_prob(POINTS[2]) == posterior.log_probs[2]


def test_routings_that_are_listed_twice_count_together() -> None:
    twice = Categorical(POINTS[[0, 0, 1]], torch.zeros(3).double())
    assert float(twice.log_prob(POINTS[0]).exp()) == pytest.approx(2 / 3)


def test_another_catalogue_gets_the_probability_of_what_is_near() -> None:
    coarse = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    probs = Categorical(POINTS, torch.tensor([0.1, 0.2, 0.3, 0.4]).double().log()).discretised(coarse).probs
    assert probs.tolist() == pytest.approx([0.8, 0.2])


@pytest.mark.parametrize(("n", "baseline"), [(1, None), (1, 0.7), (2, None), (3, None)])
def test_the_score_function_has_no_bias(n: int, baseline: float | None) -> None:
    """Its gradient, averaged over all samples that can be, is that of the expected loss."""
    logits, losses = numbers(3).requires_grad_(), numbers(3, seed=1).exp().requires_grad_()
    total = torch.zeros(())
    for chosen in itertools.product(range(3), repeat=n):
        index = torch.tensor(chosen)
        logs = logits.log_softmax(0)[index]
        constant = None if baseline is None else torch.tensor(baseline)
        total = total + logs.sum().exp().detach() * score_function_loss(logs, losses[index], constant)
    expected = logits.softmax(0) @ losses
    assert float(total.detach()) == pytest.approx(float(expected.detach()))
    for variable in (logits, losses):
        torch.testing.assert_close(
            torch.autograd.grad(total, variable, retain_graph=True)[0],
            torch.autograd.grad(expected, variable, retain_graph=True)[0],
        )


def test_the_baseline_of_the_other_samples_lowers_the_variance() -> None:
    logits, losses = numbers(4).requires_grad_(), 5 + numbers(4, seed=1)

    def gradients(baseline: torch.Tensor | None) -> torch.Tensor:
        found = []
        for seed in range(400):
            index = Categorical(POINTS, logits).choose(4, torch.Generator().manual_seed(seed))
            value = score_function_loss(logits.log_softmax(0)[index], losses[index], baseline)
            found.append(torch.autograd.grad(value, logits)[0])
        return torch.stack(found)

    assert gradients(None).var(dim=0).sum() < 0.2 * gradients(torch.zeros(())).var(dim=0).sum()


def test_two_levels_multiply() -> None:
    families = torch.tensor([0, 1, 1, 0])
    coarse, fine = numbers(5, 2), numbers(5, 4, seed=1)
    posterior = TwoLevel.of(POINTS, families, coarse, fine)
    for routing in range(4):
        siblings = (families == families[routing]).nonzero().flatten().tolist()
        within = fine[:, siblings].softmax(dim=1)[:, siblings.index(routing)]
        torch.testing.assert_close(posterior.probs[:, routing], coarse.softmax(dim=1)[:, families[routing]] * within)
    torch.testing.assert_close(posterior.family_log_probs, coarse.log_softmax(dim=1))


def test_the_divergence_of_two_levels_is_that_of_the_families_and_that_within() -> None:
    families = torch.tensor([0, 1, 1, 0])
    posterior, prior = (TwoLevel.of(POINTS, families, numbers(2, seed=at), numbers(4, seed=at + 1)) for at in (0, 5))
    whole = posterior.kl_by_level(prior)
    within = torch.zeros(()).double()
    for family in range(2):
        rows = families == family
        own, other = (each.logits[rows].log_softmax(0) for each in (posterior, prior))
        within += posterior.family_log_probs[family].exp() * (own.exp() * (own - other)).sum()
    torch.testing.assert_close(whole.within, within)
    torch.testing.assert_close(whole.families + whole.within, posterior.kl(prior))
    with pytest.raises(InvalidSettings, match="family 1"):
        TwoLevel.of(POINTS, torch.tensor([0, 0, 2, 2]), numbers(3), numbers(4))


@given(st.lists(st.floats(0, 5), min_size=4, max_size=4), st.floats(0.1, 3), st.integers(0, 100))
@settings(max_examples=40, deadline=None)
def test_tempered_evidence_has_least_free_energy(losses: list[float], temperature: float, seed: int) -> None:
    values, log_prior = torch.tensor(losses, dtype=torch.float64), numbers(4, seed=seed).log_softmax(0)
    posterior, prior = tempered_evidence(POINTS, values, temperature, log_prior), Categorical(POINTS, log_prior)

    def energy(q: Categorical) -> float:
        return float(q.probs @ values + temperature * q.kl(prior))

    other = Categorical(POINTS, posterior.logits + 0.3 * numbers(4, seed=seed + 1))
    assert energy(posterior) <= energy(other) + 1e-12
    expected = -temperature * float((log_prior - values / temperature).logsumexp(0))
    assert energy(posterior) == pytest.approx(expected, abs=1e-9)


def test_routings_without_a_number_have_no_evidence() -> None:
    found = tempered_evidence(POINTS, torch.tensor([1.0, torch.nan, 1.0, torch.inf]).double(), 0.5)
    assert found.probs.tolist() == pytest.approx([0.5, 0, 0.5, 0])
    with pytest.raises(InvalidSupport, match="finite"):
        tempered_evidence(POINTS, torch.full((2, 4), torch.nan), 1.0)
    with pytest.raises(InvalidSettings, match="temperature"):
        tempered_evidence(POINTS, torch.zeros(4), 0.0)


def test_the_bootstrap_agrees_with_all_resamples_there_are() -> None:
    """Three examples of one class: 27 resamples, each as likely as any other."""
    losses = torch.tensor([[0.1, 0.9, 0.4], [0.5, 0.2, 0.6], [0.3, 0.3, 0.9], [5.0, 5.0, 5.0]]).double()
    best = torch.zeros(4).double()
    for drawn in itertools.product(range(3), repeat=3):
        totals = losses[:, list(drawn)].sum(dim=1)
        winners = (totals < totals.min() + 1e-9).double()
        best += winners / winners.sum() / 27
    counts = resampled_counts(torch.zeros(3, dtype=torch.long), 20_000, torch.Generator().manual_seed(0))
    torch.testing.assert_close(bootstrap_votes(POINTS, losses, counts).probs, best, atol=0.012, rtol=0)


def test_resamples_keep_the_size_of_each_class() -> None:
    classes = torch.tensor([0, 1, 0, 1, 1])
    counts = resampled_counts(classes, 50, torch.Generator().manual_seed(0))
    assert (counts[:, classes == 0].sum(dim=1) == 2).all() and (counts[:, classes == 1].sum(dim=1) == 3).all()
    assert len(counts.unique(dim=0)) > 5
    with pytest.raises(InvalidSupport, match="class 1 has one example"):
        resampled_counts(torch.tensor([0, 0, 1]), 5, torch.Generator())


def test_broken_routings_get_no_votes_and_tasks_do_not_mix() -> None:
    losses = numbers(2, 4, 6).square()
    losses[0, 1, 2] = torch.nan
    counts = resampled_counts(torch.tensor([0, 0, 0, 1, 1, 1]), 40, torch.Generator().manual_seed(1))
    votes = bootstrap_votes(POINTS, losses, counts).probs
    assert float(votes[0, 1]) == 0
    torch.testing.assert_close(votes[1], bootstrap_votes(POINTS, losses[1], counts).probs)
    with pytest.raises(InvalidSupport, match="finite"):
        bootstrap_votes(POINTS, losses * torch.nan, counts)


def test_an_empty_or_ill_fitting_catalogue_is_refused() -> None:
    for points, logits in ((POINTS, torch.zeros(3)), (POINTS[:0], torch.zeros(0))):
        with pytest.raises(InvalidSettings, match="logit of each routing"):
            Categorical(points, logits)
