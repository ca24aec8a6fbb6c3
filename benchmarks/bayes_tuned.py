"""Networks that are tuned on a task's examples by gradient steps, for `bayes.py`: what one would do without a router.

The loss is that of prototypes, each example left out in turn. Steps and rates were chosen on validation tasks
(`python benchmarks/bayes_tuned.py` prints them).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from bayes_tables import task_list
from beyond_scores import Look, Voices
from common import show
from peft import LoraConfig, get_peft_model
from signs_tasks import LIBRARY, Scores, live
from torch import nn

from smatter.compose.mixture import Mixture
from smatter.live.mixture import LiveMixture

LINEAR = r".*pwconv[12]"
"""The linear operators of a ConvNext."""


@dataclass(frozen=True)
class Tuning:
    """How a network is tuned.

    Args:
        start: a source's name, or `average` of all.
        rank: of low-rank adapters (LoRA, by PEFT); 0 to tune all parameters.
        rate: of Adam.
        n_steps: each with all examples.
    """

    start: str
    rank: int
    rate: float
    n_steps: int = 10


TUNED = {
    "base, LoRA": Tuning("base", 4, 3e-3),
    "base, tuned": Tuning("base", 0, 1e-4),
    "plain average of weights, tuned": Tuning("average", 0, 1e-4),
}


def tuned(look: Look, how: Tuning) -> Voices:
    """The tuned network's reading of a task."""
    network, objective = look.network, look.task.objective
    names = network.library.names if how.start == "average" else (how.start,)
    network.compose(Mixture.of(dict.fromkeys(names, 1 / len(names))))
    with _learning(network, how.rank) as parameters:
        optimizer = torch.optim.Adam(parameters, lr=how.rate)
        for _ in range(how.n_steps):
            optimizer.zero_grad()
            objective.losses(objective.read(network.network, objective.inputs)).mean().backward()
            optimizer.step()
        features = network.features(look.inputs)[None]
    n_examples = len(look.classes)
    return Voices(torch.ones(1), features[:, :n_examples], features[:, n_examples:], look.classes)


def tuned_scores(name: str, index: int) -> Scores:
    """Error and loss of every tuned network on a task."""
    look, found = Look(live(LIBRARY), task_list(name).episode(index)), Scores()
    for label, how in TUNED.items():
        told = look.figures_of(label, tuned(look, how))
        found |= {f"{label} error": 100 - told[label], f"{label} loss": told[f"nll {label}"]}
    return found


@contextmanager
def _learning(network: LiveMixture, rank: int) -> Iterator[list[nn.Parameter]]:
    """The parameters that learn; the network is as it was afterwards, but for its values, which composing sets."""
    own = list(network.parameters.values())
    if not rank:
        yield own
    else:
        torch.manual_seed(0)  # PEFT draws from the global generator
        adapted = get_peft_model(network.network.model, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=LINEAR))
        yield [each for each in adapted.parameters() if each.requires_grad]
        adapted.unload()
    for each in own:
        each.grad = None
        each.requires_grad_()


def main() -> None:
    """Rates, on some validation tasks."""
    lists = ("id-1", "id-5", "mixed-noise", "ood-2", "outside-textured", "corrupt-blur-5-id")
    rows = []
    episodes = [task_list(f"validation-{name}").episode(index) for name in lists for index in range(4)]
    looks = [Look(live(LIBRARY), episode) for episode in episodes]
    for start in ("base", "average"):
        for rank, rates in ((4, (1e-3, 3e-3, 1e-2)), (0, (1e-4, 3e-4, 1e-3))):
            for rate in rates if start == "base" or not rank else ():
                for n_steps in (10, 20):
                    how = Tuning(start, rank, rate, n_steps)
                    right = [look.right(tuned(look, how).logits) for look in looks]
                    rows.append({**vars(how), "right": sum(right) / len(right)})
    show("tuned on the examples", rows)


if __name__ == "__main__":
    main()
