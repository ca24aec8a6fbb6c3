"""Prototype heads: agreement with a loop that follows the definition, and invariances."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from smatter.backbones.heads import class_sums, leave_one_out_losses, prototype_logits
from smatter.errors import InvalidSupport


def by_loop(features: Tensor, labels: list[int], examples: list[int], n_classes: int, scale: float) -> float:
    unit = features / features.norm(dim=1, keepdim=True)
    owners = {label: {e for e, other in zip(examples, labels, strict=True) if other == label} for label in labels}
    losses: dict[int, list[Tensor]] = {}
    for i, label in enumerate(labels):
        logits = []
        for c in range(n_classes):
            if c != label:
                kept = [j for j, other in enumerate(labels) if other == c]
            elif len(owners[label]) == 1:
                kept = [j for j, other in enumerate(labels) if other == c and j != i]
            else:
                kept = [j for j, other in enumerate(labels) if other == c and examples[j] != examples[i]]
            logits.append(scale * cosine_similarity(unit[i], unit[kept].mean(dim=0), dim=0))
        losses.setdefault(examples[i], []).append(-torch.stack(logits).log_softmax(dim=0)[label])
    return float(torch.stack([torch.stack(rows).mean() for rows in losses.values()]).mean())


LABELS = [0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3]
EXAMPLES = [0, 1, 2, 3, 4, 5, 5, 5, 5, 6, 7]
"""Class 2 has one example of four views; class 3 two examples."""


def make(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    features = torch.randn(len(LABELS), 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return features, torch.tensor(LABELS), torch.tensor(EXAMPLES)


def test_the_loss_is_what_a_loop_computes() -> None:
    features, labels, examples = make()
    for scale in (1.0, 10.0):
        expected = by_loop(features, LABELS, EXAMPLES, 4, scale)
        assert float(leave_one_out_losses(features, labels, examples, 4, scale).mean()) == pytest.approx(
            expected, rel=1e-12
        )


def test_views_of_one_example_among_others_are_left_out_together() -> None:
    features, _, _ = make()
    labels, examples = [0, 0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 3, 4]
    rows = features[: len(labels)]
    loss = leave_one_out_losses(rows, torch.tensor(labels), torch.tensor(examples), 2).mean()
    assert float(loss) == pytest.approx(by_loop(rows, labels, examples, 2, 10.0), rel=1e-12)


def test_the_loss_ignores_the_order_of_rows_and_classes_and_the_length_of_features() -> None:
    features, labels, examples = make()
    loss = leave_one_out_losses(features, labels, examples, 4).mean()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(3))
    renamed = torch.tensor([2, 3, 1, 0])[labels]
    torch.testing.assert_close(leave_one_out_losses(features[order], labels[order], examples[order], 4).mean(), loss)
    torch.testing.assert_close(leave_one_out_losses(features, renamed, examples, 4).mean(), loss)
    torch.testing.assert_close(leave_one_out_losses(features, labels, 7 - examples, 4).mean(), loss)
    lengths = torch.linspace(0.1, 5, len(labels), dtype=torch.float64)
    torch.testing.assert_close(leave_one_out_losses(features * lengths[:, None], labels, examples, 4).mean(), loss)


def test_the_loss_is_differentiable() -> None:
    features, labels, examples = make()
    assert torch.autograd.gradcheck(
        lambda rows: leave_one_out_losses(rows, labels, examples, 4).mean(), features.requires_grad_()
    )


def test_a_row_does_not_vouch_for_itself() -> None:
    """Random features must look like chance; a loss with the own row in its prototype would look better."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(5).repeat_interleave(4)
    losses = [
        leave_one_out_losses(torch.randn(20, 64, generator=generator), labels, torch.arange(20), 5).mean()
        for _ in range(20)
    ]
    assert float(torch.stack(losses).mean()) > torch.tensor(5.0).log()


def test_a_class_of_one_row_is_refused() -> None:
    with pytest.raises(InvalidSupport, match="add views"):
        leave_one_out_losses(torch.randn(3, 4), torch.tensor([0, 0, 1]), torch.arange(3), 2).mean()


def test_prototypes_recognise_their_own_rows() -> None:
    features, labels, _ = make()
    logits = prototype_logits(features, class_sums(features, labels, 4))
    assert logits.shape == (11, 4) and float(logits.abs().max()) <= 10 + 1e-9
    clusters = torch.eye(4, 6, dtype=torch.float64)[labels] + 0.1 * features
    assert prototype_logits(clusters, class_sums(clusters, labels, 4)).argmax(dim=1).tolist() == labels.tolist()
