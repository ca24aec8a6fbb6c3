"""How specialists of Signs can be fine-tuned: recipes that a study compares."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from plan import TRUNK

from smatter.train.supervised import TrainingSettings
from smatter.train.ways import Averaged, Factored, Flat, Mixed, Plain, Pulled, Weights

Make = Callable[[Weights, Sequence[Weights]], Plain]
"""A way, from the base's weights and those of the siblings."""


@dataclass(frozen=True)
class Recipe:
    """One way to make all specialists.

    Args:
        settings: how long and how fast.
        way: what is learnt and where.
        frozen: how names of parameters begin that stay the base's.
        start: the recipe whose specialists these go on from, and whose others are their siblings; the base without.
        others: settings of specialists that need their own.
        trunk: what all specialists have in common before they part, on all domains.
    """

    settings: TrainingSettings
    way: Make = lambda base, siblings: Plain()  # noqa: ARG005
    frozen: tuple[str, ...] = ()
    start: str | None = None
    trunk: TrainingSettings | None = None
    others: Mapping[str, TrainingSettings] = field(default_factory=dict)


def place(work: Path, recipe: str) -> Path:
    """Where the specialists of a recipe are."""
    return work / recipe.replace(" ", "-")


def _at(rate: float, n_steps: int = 900, **others: float) -> TrainingSettings:
    return replace(TRUNK, learning_rate=rate, n_steps=n_steps, **others)


SHORT = 300
"""Steps of recipes that are compared with each other alone: a third of what the shipped specialists had."""

EARLY = ("embeddings", "encoder.stages.0", "encoder.stages.1")

RECIPES: dict[str, Recipe] = {
    "rate 12e-3": Recipe(_at(12e-3)),
    "rate 6e-3": Recipe(_at(6e-3)),
    "mixed with the base": Recipe(_at(12e-3, 600), lambda base, siblings: Mixed(0.2, base=base)),  # noqa: ARG005
    "mixed with siblings": Recipe(
        _at(6e-3, 300), lambda base, siblings: Mixed(0.2, siblings=siblings, base=base), start="mixed with the base"
    ),
    "siblings after all": Recipe(
        _at(6e-3, 450), lambda base, siblings: Mixed(0.3, 0.5, siblings, base), start="rate 12e-3"
    ),
    "siblings often": Recipe(
        _at(6e-3, 450), lambda base, siblings: Mixed(0.2, 0.2, siblings, base), start="rate 12e-3"
    ),
    "only the last stage": Recipe(_at(12e-3), frozen=EARLY),
    "pulled to the base": Recipe(_at(12e-3, weight_decay=0.0), lambda base, siblings: Pulled(0.5)),  # noqa: ARG005
    "rate 3e-3": Recipe(_at(3e-3)),
    "averaged": Recipe(_at(12e-3), lambda base, siblings: Averaged(0.5)),  # noqa: ARG005
    "common trunk": Recipe(_at(12e-3, 600), trunk=_at(12e-3, 300)),
    "common trunk, half the rate": Recipe(_at(6e-3, 600), trunk=_at(12e-3, 300)),
    "common trunk, longer apart": Recipe(_at(8e-3, 750), trunk=_at(12e-3, 300)),
    "common trunk, slow": Recipe(_at(6e-3, 900), trunk=_at(12e-3, 300)),
    "common trunk, slow but for emoji": Recipe(
        _at(6e-3, 900), trunk=_at(12e-3, 300), others={"emoji": _at(12e-3, 600)}
    ),
    "common trunk, slow and long": Recipe(_at(6e-3, 1200), trunk=_at(12e-3, 300)),
    "long common trunk": Recipe(_at(6e-3, 450), trunk=_at(12e-3, 600)),
    "low rank": Recipe(_at(6e-3), lambda base, siblings: Factored(8)),  # noqa: ARG005
    "flat": Recipe(_at(12e-3, 450), lambda base, siblings: Flat(0.1)),  # noqa: ARG005
    "half the steps": Recipe(_at(12e-3, 450)),
    "short": Recipe(_at(12e-3, SHORT)),
    "short, slow": Recipe(_at(6e-3, SHORT)),
    "short, pulled to the base": Recipe(_at(12e-3, SHORT, weight_decay=0.0), lambda base, siblings: Pulled(0.5)),  # noqa: ARG005
    "short, averaged": Recipe(_at(12e-3, SHORT), lambda base, siblings: Averaged(0.5)),  # noqa: ARG005
    "short, low rank": Recipe(_at(12e-3, SHORT), lambda base, siblings: Factored(8)),  # noqa: ARG005
    "short, flat": Recipe(_at(12e-3, SHORT), lambda base, siblings: Flat(0.1)),  # noqa: ARG005
    "short, only the last stage": Recipe(_at(12e-3, SHORT), frozen=EARLY),
}
