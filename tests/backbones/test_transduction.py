"""Prototypes that queries refine: agreement with loops that follow the definition, invariances, and hard cases."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from smatter.backbones.heads import class_sums, prototype_logits
from smatter.backbones.transduction import Refined, Transduction, refined_prototypes
from smatter.errors import InvalidSettings

N_MEMBERS, N_CLASSES, N_FEATURES = 3, 4, 6
LABELS = torch.tensor([0, 1, 2, 3, 3, 1])
WEIGHTS = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)


def make(n_queries: int = 15, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Features of examples and of queries, around centres of classes that the networks see differently."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    centres = draw(N_MEMBERS, N_CLASSES, N_FEATURES)
    truth = torch.arange(n_queries) % N_CLASSES
    support = centres[:, LABELS] + 0.7 * draw(N_MEMBERS, len(LABELS), N_FEATURES)
    return support, centres[:, truth] + 0.7 * draw(N_MEMBERS, n_queries, N_FEATURES)


def refine(support: Tensor, queries: Tensor, settings: Transduction | None = None) -> Refined:
    return refined_prototypes(support, LABELS, queries, WEIGHTS, N_CLASSES, settings)


def by_loops(support: Tensor, queries: Tensor, settings: Transduction) -> tuple[np.ndarray, list[float], list[float]]:
    """The definition, number by number: prototypes, biases, shares."""
    rows = [[np.array(x) / math.sqrt(sum(v * v for v in x)) for x in member] for member in support.tolist()]
    asked = [[np.array(x) / math.sqrt(sum(v * v for v in x)) for x in member] for member in queries.tolist()]
    n_queries = len(asked[0])
    found = [
        [sum(row for row, label in zip(rows[r], LABELS.tolist(), strict=True) if label == c) for c in range(N_CLASSES)]
        for r in range(N_MEMBERS)
    ]

    def probabilities(features: list[list[np.ndarray]], place: int, extra: list[float]) -> list[float]:
        odds = []
        for c in range(N_CLASSES):
            score = extra[c]
            for r, weight in enumerate(WEIGHTS.tolist()):
                x, p = features[r][place], found[r][c]
                score += 10.0 * weight * sum(x * p) / math.sqrt(sum(p * p))
            odds.append(math.exp(score))
        return [each / sum(odds) for each in odds]

    def moved(bias: list[float], query_weight: float) -> list[list[np.ndarray]]:
        sums = [[np.zeros(N_FEATURES) for _ in range(N_CLASSES)] for _ in range(N_MEMBERS)]
        for features, count, weight in ((rows, len(LABELS), 1.0), (asked, n_queries, query_weight)):
            for place in range(count):
                extra = bias
                if features is rows:
                    extra = [settings.trust if c == int(LABELS[place]) else 0.0 for c in range(N_CLASSES)]
                soft = probabilities(features, place, extra)
                for r in range(N_MEMBERS):
                    for c in range(N_CLASSES):
                        sums[r][c] = sums[r][c] + weight * soft[c] * features[r][place]
        return sums

    none = [0.0] * N_CLASSES
    for _ in range(settings.n_steps):
        found = moved(none, 1.0)
    soft = [probabilities(asked, place, none) for place in range(n_queries)]
    counts, expected = [sum(each[c] for each in soft) for c in range(N_CLASSES)], n_queries / N_CLASSES
    unevenness = sum((count - expected) ** 2 / expected for count in counts) / (N_CLASSES - 1)
    shares = [(1 + count) / (N_CLASSES + n_queries) for count in counts]
    believed = (unevenness - settings.even) / (unevenness + settings.even)
    bias = [believed * math.log(N_CLASSES * share) for share in shares]
    for _ in range(settings.n_steps):
        found = moved(bias, settings.query_weight)
    return np.array(found), bias, shares


@pytest.mark.parametrize("settings", [Transduction(), Transduction(n_steps=1, query_weight=0.2, even=2.0, trust=1.0)])
@pytest.mark.parametrize("n_queries", [1, 15])
def test_prototypes_and_shares_are_what_loops_compute(settings: Transduction, n_queries: int) -> None:
    support, queries = make(n_queries)
    found = refine(support, queries, settings)
    prototypes, bias, shares = by_loops(support, queries, settings)
    np.testing.assert_allclose(found.prototypes.numpy(), prototypes, rtol=1e-9)
    np.testing.assert_allclose(found.bias.numpy(), bias, rtol=1e-9)
    np.testing.assert_allclose(found.shares.numpy(), shares, rtol=1e-9)
    assert float(found.shares.sum()) == pytest.approx(1)


def test_no_queries_and_no_steps_change_no_bit() -> None:
    support, queries = make()
    plain = torch.stack([class_sums(rows, LABELS, N_CLASSES) for rows in support])
    for found in (refine(support, queries[:, :0]), refine(support, queries, Transduction(n_steps=0))):
        assert torch.equal(found.prototypes, plain) and not found.bias.any()
        assert torch.equal(found.shares, torch.full((N_CLASSES,), 1 / N_CLASSES, dtype=torch.float64))


def test_scores_are_the_average_of_those_of_each_network() -> None:
    support, queries = make()
    found = refine(support, queries)
    each = [prototype_logits(rows, prototypes) for rows, prototypes in zip(queries, found.prototypes, strict=True)]
    expected = torch.tensordot(WEIGHTS, torch.stack(each), 1) + found.bias
    torch.testing.assert_close(found.logits(queries, WEIGHTS), expected)


def test_order_of_queries_examples_classes_and_networks_does_not_matter() -> None:
    support, queries = make()
    found = refine(support, queries)
    generator = torch.Generator().manual_seed(1)
    turned = refine(support, queries[:, torch.randperm(queries.shape[1], generator=generator)])
    torch.testing.assert_close(turned.prototypes, found.prototypes)
    order = torch.randperm(len(LABELS), generator=generator)
    turned = refined_prototypes(support[:, order], LABELS[order], queries, WEIGHTS, N_CLASSES)
    torch.testing.assert_close(turned.prototypes, found.prototypes)
    names = torch.tensor([2, 0, 3, 1])
    turned = refined_prototypes(support, names[LABELS], queries, WEIGHTS, N_CLASSES)
    torch.testing.assert_close(turned.prototypes[:, names], found.prototypes)
    torch.testing.assert_close(turned.shares[names], found.shares)
    torch.testing.assert_close(turned.bias[names], found.bias)
    members = torch.tensor([1, 2, 0])
    turned = refined_prototypes(support[members], LABELS, queries[members], WEIGHTS[members], N_CLASSES)
    torch.testing.assert_close(turned.prototypes, found.prototypes[members])


def test_length_of_features_does_not_matter() -> None:
    support, queries = make()
    found = refine(support, queries)
    scaled = refine(support * torch.linspace(0.1, 9, len(LABELS))[:, None].double(), queries * 1e3)
    torch.testing.assert_close(scaled.prototypes, found.prototypes)


def test_the_same_network_several_times_is_one_network() -> None:
    support, queries = make()
    alone = refined_prototypes(support[:1], LABELS, queries[:1], WEIGHTS.new_ones(1), N_CLASSES)
    copies = refine(support[:1].expand(3, -1, -1), queries[:1].expand(3, -1, -1))
    torch.testing.assert_close(copies.prototypes, alone.prototypes.expand(3, -1, -1))
    torch.testing.assert_close(copies.shares, alone.shares)


def test_a_network_without_weight_follows_and_does_not_lead() -> None:
    support, queries = make()
    weights = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    found = refined_prototypes(support, LABELS, queries, weights, N_CLASSES)
    alone = refined_prototypes(support[:1], LABELS, queries[:1], weights[:1], N_CLASSES)
    torch.testing.assert_close(found.prototypes[:1], alone.prototypes)
    torch.testing.assert_close(found.shares, alone.shares)


def test_a_class_without_queries_keeps_its_place_and_has_the_least_share() -> None:
    generator = torch.Generator().manual_seed(0)
    centres = torch.eye(N_CLASSES, N_FEATURES)
    truth = torch.tensor([0, 1, 2]).repeat(20)
    queries = centres[truth] + 0.1 * torch.randn(len(truth), N_FEATURES, generator=generator)
    found = refined_prototypes(centres[None], torch.arange(N_CLASSES), queries[None], torch.ones(1), N_CLASSES)
    assert int(found.shares.argmin()) == 3 and float(found.shares[3]) < 0.05
    assert int(prototype_logits(centres[3:], found.prototypes[0]).argmax()) == 3


def test_counts_are_evened_out_where_they_are_nearly_even_and_believed_elsewhere() -> None:
    centres, one = torch.eye(N_CLASSES, N_FEATURES)[None], torch.ones(1)

    def asked(counts: list[int]) -> Refined:
        queries = centres[:, torch.arange(N_CLASSES).repeat_interleave(torch.tensor(counts))]
        return refined_prototypes(centres, torch.arange(N_CLASSES), queries, one, N_CLASSES)

    nearly, clearly = asked([11, 10, 10, 9]), asked([20, 10, 5, 2])
    assert nearly.bias[0] < 0 < nearly.bias[3]
    assert clearly.bias[0] > 0 > clearly.bias[3]
    assert all(found.shares[0] > found.shares[1] > found.shares[3] for found in (nearly, clearly))


def test_an_example_with_the_label_of_another_class_hardly_counts_for_it() -> None:
    generator = torch.Generator().manual_seed(0)
    centres = torch.eye(3, N_FEATURES)
    truth, labels = torch.arange(3).repeat_interleave(5), torch.arange(3).repeat_interleave(5)
    labels[0] = 1
    support = (centres[truth] + 0.1 * torch.randn(15, N_FEATURES, generator=generator))[None]
    queries = (centres[truth] + 0.1 * torch.randn(15, N_FEATURES, generator=generator))[None]
    found = refined_prototypes(support, labels, queries, torch.ones(1), 3)
    trusting = refined_prototypes(support, labels, queries, torch.ones(1), 3, Transduction(trust=100.0))
    strays = [float(normalize(each.prototypes[0, 1], dim=0)[0]) for each in (found, trusting)]
    assert strays[0] < strays[1] / 2


def test_queries_correct_an_example_that_is_no_good_one() -> None:
    """The only example of a class stands apart from its queries; the other classes' queries do not follow them."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.eye(3, N_FEATURES)
    truth = torch.arange(3).repeat(12)
    queries = (centres[truth] + 0.25 * torch.randn(len(truth), N_FEATURES, generator=generator))[None]
    support = (centres + 0.8 * torch.tensor([0, 1, 0, 0, 1.0, 1.0]) * torch.tensor([[1.0], [0], [0]]))[None]
    one = torch.ones(1)
    before = refined_prototypes(support, torch.arange(3), queries, one, 3, Transduction(n_steps=0))
    after = refined_prototypes(support, torch.arange(3), queries, one, 3)
    right = [float((found.logits(queries, one).argmax(dim=1) == truth).double().mean()) for found in (before, after)]
    assert right[1] > right[0]
    assert right[1] == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_that_are_all_alike_or_nought_give_numbers(dtype: torch.dtype) -> None:
    rows = torch.ones(N_MEMBERS, len(LABELS), N_FEATURES, dtype=dtype)
    for queries in (rows, 0 * rows, -rows, torch.cat([rows, 0 * rows, -rows], dim=1)):
        for support in (rows, 0 * rows):
            found = refined_prototypes(support, LABELS, queries, WEIGHTS.to(dtype), N_CLASSES)
            assert found.prototypes.isfinite().all() and found.shares.isfinite().all()
            assert found.prototypes.dtype == found.shares.dtype == dtype


@pytest.mark.parametrize(
    "wrong", [{"n_steps": -1}, {"query_weight": -0.5}, {"query_weight": math.nan}, {"even": 0.0}, {"trust": math.inf}]
)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidSettings, match="give finite numbers"):
        Transduction(**wrong)  # type: ignore[arg-type]
