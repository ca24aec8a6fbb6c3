"""Which units each residual expert begins with: those whose change helps its variant most, each unit for one expert.

The experts share one delta, so what two of them open cannot differ between them. How much a unit u is worth to a
variant is the squared mean gradient of the loss in it. Estimated as the inner product of the mean gradients of two
halves of some tasks, luck does not count: it is as often below zero as above. Units that are to be open for every task
are chosen likewise, by what they are worth to clean tasks.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from smatter.compose.mixture import Mixture
from smatter.live.episodes import episode_queries
from smatter.live.mixture import LiveMixture
from smatter.train.curriculum import Series
from smatter.train.parting import expert_of

N_TASKS = 12
"""Tasks of each half, of each expert."""


def unit_worths(
    live: LiveMixture, series: Sequence[Series], unit_of: Tensor, n_experts: int, n_masks: int | None = None
) -> Tensor:
    """What each unit is worth to each expert's variants at the plain average of the sources, (n_masks, n_units).

    Args:
        live: the network.
        series: kinds of tasks.
        unit_of: the unit of each parameter, (n_parameters,).
        n_experts: how many; see `expert_of`.
        n_masks: one more than these where clean tasks are asked for too, the null expert's; as many by default.
    """
    names = live.library.names
    live.compose(Mixture.of(dict.fromkeys(names, 1 / len(names))))
    worths = torch.zeros(n_experts if n_masks is None else n_masks, int(unit_of.max()) + 1)
    for expert in range(len(worths)):
        kinds = [each.tasks for each in series if expert_of(each.variant, n_experts) == expert]
        if not kinds:
            continue
        halves = torch.zeros(2, len(unit_of))
        for number in range(2 * N_TASKS):
            tasks = kinds[number // 2 % len(kinds)]
            live.backward(episode_queries(live, tasks.episode(len(tasks) - 1 - number)))
            halves[number % 2] += live.gradient_vector() / N_TASKS
            live.forget()
        worths[expert].index_add_(0, unit_of, halves[0] * halves[1])
    return worths


def assign(worths: Tensor, sizes: Tensor, shares: Sequence[float]) -> Tensor:
    """Masks, (n_experts, n_units): in turn each expert takes the free unit that is worth most for its size and fits.

    Args:
        worths: of the units to each expert, (n_experts, n_units).
        sizes: of the units, (n_units,).
        shares: of all sizes that each expert has room for.

    >>> assign(torch.tensor([[9.0, 3.0, 1.0], [8.0, 1.0, 2.0]]), torch.ones(3), [0.7, 0.7]).int()
    tensor([[1, 1, 0],
            [0, 0, 1]], dtype=torch.int32)
    """
    density = worths / sizes
    masks = torch.zeros_like(worths, dtype=torch.bool)
    room = torch.tensor([share * float(sizes.sum()) for share in shares])
    is_free = torch.ones(len(sizes), dtype=torch.bool)
    while True:
        taken = False
        for expert, row in enumerate(density):
            wish = torch.where(is_free & (sizes <= room[expert]), row, -torch.inf)
            best = int(wish.argmax())
            if wish[best] > 0:
                masks[expert, best], is_free[best], taken = True, False, True
                room[expert] -= float(sizes[best])
        if not taken:
            return masks
