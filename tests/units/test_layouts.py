"""Units of a correction: D is linear in how far each is open, whatever a unit is."""

import pytest
import torch

from smatter.route.experts import Experts
from smatter.units.layouts import Layout, Masked, RankLayout
from smatter.units.numbering import Matrix

LAYOUTS = {
    "groups": Masked(torch.tensor([0, 0, 1, 2, 1, 2, 2, 3, 3, 4] * 3)),
    "elements": Masked(torch.arange(30)),
    "components": RankLayout(40, (Matrix("one", 2, 4, 3), Matrix("other", 15, 3, 5)), 2),
}


def random_values(layout: Layout, seed: int = 0) -> torch.Tensor:
    return torch.randn(len(layout.unit_of), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", LAYOUTS)
def test_d_is_the_sum_of_its_units(name: str) -> None:
    layout = LAYOUTS[name]
    values, n_units = random_values(layout), int(layout.unit_of.max()) + 1
    open_ = torch.rand(n_units, generator=torch.Generator().manual_seed(1))
    alone = torch.stack([layout.expand(values, torch.eye(n_units)[unit]) for unit in range(n_units)])
    torch.testing.assert_close(layout.expand(values, open_), open_ @ alone)
    torch.testing.assert_close(layout.strengths(values), alone.norm(dim=1))
    assert layout.expand(values, open_).shape == (layout.n_parameters,)


def test_components_add_a_product_of_two_matrices_to_each() -> None:
    layout = LAYOUTS["components"]
    values = random_values(layout)
    open_ = torch.tensor([0.5, 2.0, 0.0, 1.0])
    result = layout.expand(values, open_)
    b, a = values[:8].view(2, 4).T, values[8:14].view(2, 3)
    torch.testing.assert_close(result[2:14].view(4, 3), b @ torch.diag(open_[:2]) @ a)
    b, a = values[14:20].view(2, 3).T, values[20:30].view(2, 5)
    torch.testing.assert_close(result[15:30].view(3, 5), b @ torch.diag(open_[2:]) @ a)
    assert not result[:2].any() and not result[14]
    assert torch.linalg.matrix_rank(result[15:30].view(3, 5)) == 1  # one of its two components is closed


@pytest.mark.parametrize("name", LAYOUTS)
def test_nothing_is_changed_at_first_and_everything_can_learn(name: str) -> None:
    layout = LAYOUTS[name]
    generator = torch.Generator().manual_seed(0)
    values = layout.first_values(generator).requires_grad_()
    open_ = torch.ones(int(layout.unit_of.max()) + 1)
    result = layout.expand(values, open_)
    assert not result.any()
    result.backward(torch.randn(layout.n_parameters, generator=generator))
    assert values.grad is not None
    touched = torch.zeros(len(open_)).index_add(0, layout.unit_of, values.grad.abs())
    assert bool((touched > 0).all())


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("share", [0.1, 0.3, 0.7])
def test_experts_of_any_units_keep_their_share_and_what_they_learnt(name: str, share: float) -> None:
    layout = LAYOUTS[name]
    experts = Experts(layout, 3, torch.Generator().manual_seed(0))
    with torch.no_grad():
        experts.values.copy_(random_values(layout, 5))
        experts.logits[0] = -9.0
        experts.logits[0, 0] = 9.0
    values, masks = experts.fixed(share)
    assert not masks[0, 1:].any()  # what has closed stays closed, though there may be room
    sizes = torch.bincount(layout.unit_of).numpy()
    assert bool((masks @ sizes <= (share + 1e-6) * sizes.sum()).all())
    kept = experts.values.detach()[torch.from_numpy(masks.any(axis=0))[layout.unit_of]]
    torch.testing.assert_close(torch.from_numpy(values).float(), kept, rtol=1e-3, atol=1e-6)  # float16 on disk
