"""Prototypes that queries refine: agreement with loops that follow the definition, invariances, and hard cases."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

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


def by_loops(support: Tensor, queries: Tensor, settings: Transduction) -> tuple[np.ndarray, np.ndarray]:
    """The definition, number by number."""
    rows = [[np.array(x) / math.sqrt(sum(v * v for v in x)) for x in member] for member in support.tolist()]
    asked = [[np.array(x) / math.sqrt(sum(v * v for v in x)) for x in member] for member in queries.tolist()]
    n_queries = len(asked[0])
    shares = [1 / N_CLASSES] * N_CLASSES

    def prototypes(soft: list[list[float]], weight: float) -> list[list[np.ndarray]]:
        found = []
        for member in range(N_MEMBERS):
            found.append([])
            for c in range(N_CLASSES):
                total = sum(row for row, label in zip(rows[member], LABELS.tolist(), strict=True) if label == c)
                for i in range(n_queries):
                    total = total + weight * soft[i][c] * asked[member][i]
                found[-1].append(total)
        return found

    def soft_labels(found: list[list[np.ndarray]]) -> list[list[float]]:
        soft = []
        for i in range(n_queries):
            odds = []
            for c in range(N_CLASSES):
                score = 0.0
                for member, weight in enumerate(WEIGHTS.tolist()):
                    p = found[member][c]
                    score += weight * 10.0 * float(asked[member][i] @ p) / math.sqrt(float(p @ p))
                odds.append(shares[c] * math.exp(score))
            soft.append([each / sum(odds) for each in odds])
        return soft

    current = prototypes([[0.0] * N_CLASSES] * n_queries, 0.0)
    for _ in range(settings.n_steps):
        current = prototypes(soft_labels(current), 1.0)
    soft = soft_labels(current)
    for c in range(N_CLASSES):
        mass = sum(each[c] for each in soft)
        shares[c] = (settings.share_count + mass) / (settings.share_count * N_CLASSES + n_queries)
    for _ in range(settings.n_steps):
        current = prototypes(soft_labels(current), settings.query_weight)
    return np.array(current), np.array(shares)


@pytest.mark.parametrize("settings", [Transduction(), Transduction(n_steps=1, query_weight=0.2, share_count=4.0)])
@pytest.mark.parametrize("n_queries", [1, 15])
def test_prototypes_and_shares_are_what_loops_compute(settings: Transduction, n_queries: int) -> None:
    support, queries = make(n_queries)
    found = refine(support, queries, settings)
    prototypes, shares = by_loops(support, queries, settings)
    np.testing.assert_allclose(found.prototypes.numpy(), prototypes, rtol=1e-10)
    np.testing.assert_allclose(found.shares.numpy(), shares, rtol=1e-10)
    assert float(found.shares.sum()) == pytest.approx(1)


def test_no_queries_and_no_steps_change_no_bit() -> None:
    support, queries = make()
    plain = torch.stack([class_sums(rows, LABELS, N_CLASSES) for rows in support])
    for found in (refine(support, queries[:, :0]), refine(support, queries, Transduction(n_steps=0))):
        assert torch.equal(found.prototypes, plain)
        assert torch.equal(found.shares, torch.full((N_CLASSES,), 1 / N_CLASSES, dtype=torch.float64))


def test_scores_are_the_average_of_those_of_each_network() -> None:
    support, queries = make()
    found = refine(support, queries)
    each = [prototype_logits(rows, prototypes) for rows, prototypes in zip(queries, found.prototypes, strict=True)]
    torch.testing.assert_close(found.logits(queries, WEIGHTS), torch.tensordot(WEIGHTS, torch.stack(each), 1))


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
    "wrong", [{"n_steps": -1}, {"query_weight": 1.5}, {"query_weight": math.nan}, {"share_count": 0.0}]
)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidSettings, match="give steps from zero"):
        Transduction(**wrong)  # type: ignore[arg-type]
