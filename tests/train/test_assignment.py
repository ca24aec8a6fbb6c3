"""Units are shared out among experts: none twice, none beyond its room, and to whom they are worth most."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from smatter.library.library import Library
from smatter.live.episodes import episode_queries
from smatter.live.mixture import LiveMixture
from smatter.route.probe import draw_probe
from smatter.settings.training import MetaSettings, RouterSettings
from smatter.tasks.shifts.renderings import Inverted, Outline
from smatter.tasks.suite import Suite
from smatter.train import assignment
from smatter.train.assignment import assign, unit_worths
from smatter.train.curriculum import make_curriculum
from smatter.train.trainee import Trainee


@given(st.integers(0, 10_000), st.floats(0.05, 1.0))
def test_units_have_one_expert_and_experts_their_room(seed: int, share: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    worths = torch.randn(3, 12, generator=generator)
    sizes = torch.randint(1, 20, (12,), generator=generator).float()
    masks = assign(worths, sizes, [share] * len(worths))
    assert int(masks.sum(dim=0).max()) <= 1
    room = share * sizes.sum()
    assert bool((masks.float() @ sizes <= room + 1e-4).all())
    assert not masks[worths <= 0].any()
    left = room - masks.float() @ sizes
    is_free = ~masks.any(dim=0)
    for expert in range(3):  # nothing that is free, fits and helps was left
        assert not (is_free & (sizes <= left[expert] - 1e-4) & (worths[expert] > 0)).any()


def test_the_order_of_experts_matters_only_where_they_compete() -> None:
    worths = torch.tensor([[5.0, 0.0, 1.0, 0.0], [0.0, 4.0, 0.0, 2.0]])
    masks = assign(worths, torch.ones(4), [0.5, 0.5])
    assert torch.equal(assign(worths.flip(0), torch.ones(4), [0.5, 0.5]).flip(0), masks)
    assert masks.tolist() == [[True, False, True, False], [False, True, False, True]]


def test_worths_are_inner_products_of_the_halves_mean_gradients(
    tiny_library: Library, tiny_suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assignment, "N_TASKS", 1)
    live = LiveMixture(tiny_library)
    series = make_curriculum(tiny_suite, variants=(Inverted(), Outline())).training
    unit_of = torch.from_numpy(live.numbering.unit_of).long()
    worths = unit_worths(live, series, unit_of, 2)
    kinds = [each.tasks for each in series if each.variant == 1]
    first, second = kinds[0], kinds[0]
    gradients = []
    for number, tasks in enumerate((first, second)):
        queries = episode_queries(live, tasks.episode(len(tasks) - 1 - number))
        live.backward(queries)
        gradients.append(live.gradient_vector().clone())
        live.forget()
    product = gradients[0] * gradients[1]
    for unit in range(worths.shape[1]):
        assert worths[1, unit].item() == pytest.approx(product[unit_of == unit].sum().item(), rel=1e-3, abs=1e-9)


def test_experts_begin_apart(tiny_library: Library, tiny_suite: Suite) -> None:
    series = make_curriculum(tiny_suite, variants=(Inverted(), Outline())).training
    settings = MetaSettings(RouterSettings(width=8, n_experts=2), 4, 1, expert_share=0.3)
    trainee = Trainee(LiveMixture(tiny_library), draw_probe(tiny_suite), settings, series)
    assert trainee.experts is not None
    gates = trainee.experts.gates()
    assert bool((gates > 0).any(dim=1).all()) and not (gates > 0).all(dim=0).any()
