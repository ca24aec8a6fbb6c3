"""Tune the specialists of Words by several recipes, to see which mix.

    python tools/words/tunings.py --suite FOLDER --base FOLDER --work DIR [NAMES]

Each recipe has a folder in DIR with a checkpoint for each specialist. A run that was stopped goes on where it was.
"""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path += [str(Path(__file__).parents[1] / "common"), str(Path(__file__).parents[1] / "sources")]

from few import few_texts
from recipes import Recipe, place
from sources import tune
from specialists import SPECIALISTS, TUNING

from smatter.tasks.open import open_suite
from smatter.tasks.suite import Suite
from smatter.train.supervised import TrainingSettings
from smatter.train.ways import Mixed

N_TEXTS = 40
"""Of a class: each is passed through the network once, to begin with the classes' mean features as head."""

N_STEPS = 150
TRUNK = "trunk"
INSIDE = tuple(sorted(domain for own in SPECIALISTS.values() for domain in own))


def _at(rate: float, n_steps: int = N_STEPS) -> TrainingSettings:
    return replace(TUNING, learning_rate=rate, n_steps=n_steps)


def _parted(rate: float) -> Recipe:
    """A third of the steps on all domains, before specialists part."""
    return Recipe(_at(rate, 2 * N_STEPS // 3), trunk=_at(rate, N_STEPS // 3))


RECIPES: dict[str, Recipe] = {
    "rate 3e-5": Recipe(_at(3e-5)),
    "rate 1e-4": Recipe(_at(1e-4)),
    "rate 3e-4": Recipe(_at(3e-4)),
    "rate 1e-3": Recipe(_at(1e-3)),
    "common trunk, rate 3e-4": _parted(3e-4),
    "common trunk, rate 1e-3": _parted(1e-3),
    "mixed with the base, rate 3e-4": Recipe(_at(3e-4), lambda base, siblings: Mixed(0.2)),  # noqa: ARG005
}


def tune_all(base: Path, suite: Suite, work: Path, name: str) -> None:
    """All specialists of a recipe, and their trunk before them; nothing to do for those that are there."""
    recipe, folder = RECIPES[name], place(work, name)
    folder.mkdir(parents=True, exist_ok=True)
    start = base
    if recipe.trunk:
        start = tune(base, suite, INSIDE, recipe.trunk, folder / TRUNK)
    for specialist, domains in SPECIALISTS.items():
        tune(start, suite, domains, recipe.settings, folder / specialist, way=recipe.way({}, ()))


def main() -> None:
    """The recipes named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", type=Path, required=True, help="folder that build.py wrote")
    parser.add_argument("--base", type=Path, required=True, help="folder of the checkpoint to begin with")
    parser.add_argument("--work", type=Path, required=True, help="folder for states and checkpoints")
    parser.add_argument("names", nargs="*", default=list(RECIPES), help="of recipes")
    options = parser.parse_args()
    suite = few_texts(open_suite(options.suite), N_TEXTS)
    for name in options.names:
        begin = time.process_time()
        tune_all(options.base, suite, options.work, name)
        print(f"{name}: {time.process_time() - begin:.0f} s of one core", flush=True)


if __name__ == "__main__":
    main()
