"""Experts are kept apart: labels at first, loads in balance, and a first choice that may be closed."""

import pytest
import torch

from smatter.errors import InvalidSettings
from smatter.library.library import Library
from smatter.settings.training import MetaSettings, Parting, RouterSettings
from smatter.tasks.shifts.renderings import Inverted, Outline
from smatter.tasks.suite import Suite
from smatter.train.curriculum import VARIED_SHARE, make_curriculum
from smatter.train.lessons import Lesson
from smatter.train.parting import Keeper, expected_load, expert_names, expert_of, first_choice_closed
from smatter.train.router import train_router


def lesson(variant: int | None) -> Lesson:
    return Lesson(None, (), None, variant=variant)  # type: ignore[arg-type]


def test_variants_are_shared_out_and_clean_tasks_have_the_null_expert(tiny_suite: Suite) -> None:
    series = make_curriculum(tiny_suite, variants=(Inverted(), Outline())).training
    assert {each.variant for each in series} == {None, 0, 1}
    load = expected_load(series, 2)
    assert load.sum().item() == pytest.approx(1)
    assert load[0].item() == pytest.approx(load[1].item())
    assert load[2].item() == pytest.approx(1 - VARIED_SHARE, abs=0.01)
    assert expected_load(series, 4)[3].item() > 0  # an expert without a variant is not shut out
    assert [expert_of(variant, 1) for variant in (0, 1, None)] == [0, 0, 1]
    assert expert_names(["inverted"], 2) == ["inverted", "expert 2"]


def test_the_price_of_labels_fades_and_its_gradient_points_to_the_expert_of_the_variant() -> None:
    scores = torch.zeros(3, requires_grad=True)
    keeper = Keeper(Parting(labels=1.0, labelled=0.5, balance=0.0), torch.full((3,), 1 / 3))
    keeper.price([scores], [lesson(1)], done=0.0).backward()
    assert scores.grad is not None and scores.grad.argmin() == 1
    assert keeper.price([scores], [lesson(1)], 0.25).item() == pytest.approx(torch.tensor(3.0).log().item() / 2)
    assert keeper.price([scores], [lesson(1)], 0.5).item() == 0.0
    assert keeper.price([scores], [lesson(None)], 1.0).item() == pytest.approx(torch.tensor(3.0).log().item())


def test_balance_raises_whom_nobody_chooses() -> None:
    keeper = Keeper(Parting(labels=0.0, balance=0.1), torch.tensor([0.25, 0.25, 0.5]))
    scores = torch.tensor([-8.0, 4.0, 4.0], requires_grad=True)
    prices = []
    for _ in range(40):
        scores.grad = None
        price = keeper.price([scores], [lesson(None)], 0.0)
        price.backward()
        prices.append(price.item())
    assert prices == sorted(prices)  # the longer it lasts the dearer
    assert scores.grad is not None and scores.grad[0] < 0 < scores.grad[1]
    torch.testing.assert_close(keeper.load, scores.detach().softmax(dim=0), atol=0.02, rtol=0)


def test_a_closed_first_choice_leaves_the_null_expert() -> None:
    scores = torch.tensor([3.0, 1.0, 9.0])
    alpha = first_choice_closed(scores).softmax(dim=0)
    assert alpha[0] == 0 and alpha[1] > 0 and alpha[2] > 0.9
    generator = torch.Generator().manual_seed(0)
    often = Keeper(Parting(dropout=0.3), torch.ones(3) / 3).closed(10_000, generator)
    assert sum(often) / 10_000 == pytest.approx(0.3, abs=0.02)


def test_experts_need_variants_and_room(tiny_library: Library, tiny_suite: Suite) -> None:
    some = RouterSettings(width=8, n_experts=2)
    with pytest.raises(InvalidSettings, match="--variant"):
        train_router(tiny_library, tiny_suite, MetaSettings(some, 2, 1))
    with pytest.raises(InvalidSettings, match="no room for any unit"):
        train_router(tiny_library, tiny_suite, MetaSettings(some, 2, 1, expert_share=1e-9), variants=[Inverted()])


def test_a_router_tells_what_its_experts_share(tiny_library: Library, tiny_suite: Suite) -> None:
    settings = MetaSettings(RouterSettings(width=8, n_experts=2), 2, 1, expert_share=0.5)
    trained = train_router(tiny_library, tiny_suite, settings, variants=[Inverted(), Outline()])
    assert trained.expert_names == ("inverted", "outline")
    overlaps, shares = trained.record["expert_overlaps"], trained.record["expert_shares"]
    bank = trained.bank
    assert bank is not None
    first, second = bank.masks
    assert (overlaps[0][1] > 0) == bool((first & second).any())
    assert overlaps[0][0] == pytest.approx(float(shares[0] > 0))
    common = overlaps[0][1] * shares[2]
    assert shares[0] + shares[1] - common == pytest.approx(shares[2])
