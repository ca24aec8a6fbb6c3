"""How to fine-tune checkpoints of texts so that they mix: recipes of training, judged on validation tasks of Words.

    python benchmarks/mixing_words.py [--work DIR] [--tasks N] [--quick] [RECIPES]

As `mixing_study.py` does for pictures. Needs `make words`, a base, and specialists that tools/words/tunings.py trains:

    python tools/words/tunings.py --suite .build/words --base .build/words-sources/base --work .build/mixing-words
"""

import argparse
import os
import shutil
import sys
from functools import cache
from pathlib import Path

from common import PLAIN_PROCESS, ROOT

os.environ |= PLAIN_PROCESS
sys.path.insert(0, str(ROOT / "tools" / "common"))
sys.path.insert(0, str(ROOT / "tools" / "words"))

import torch
from few import few_texts
from libraries import write_library
from mixing_tasks import LISTS, SHOTS, gain_in_episode, run_study, score_episode
from remembering import Remembering
from signs_tasks import Scores
from specialists import SPECIALISTS
from tunings import RECIPES, place

from smatter.library.library import open_library
from smatter.tasks.open import open_suite
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.suite import Suite

NAME = "mixing_words"
SUITE, BASE = ROOT / ".build" / "words", ROOT / ".build" / "words-sources" / "base"
N_TEXTS = 16
"""Of a class; tasks share them, so that a source is passed few texts."""


@cache
def live(folder: Path) -> Remembering:
    """One network of a library for each process."""
    torch.set_num_threads(1)
    return Remembering(open_library(folder))


@cache
def suite() -> Suite:
    """Words, with few texts of each class."""
    return few_texts(open_suite(SUITE), N_TEXTS)


@cache
def sampler(kind: str, shots: int, domain: str) -> Sampler:
    """Validation tasks as the lists of Signs have them, or those of one domain."""
    settings = SamplerSettings(
        role="ood" if kind == "ood" else "id",
        n_way=(5, 10),
        n_shot=(shots, shots),
        n_domains=(2, 3) if kind == "mixed" else (1, 1),
        domains=(domain,) if domain else (),
    )
    return Sampler(suite(), settings, 11)


def judge(library: Path, what: str, domain: str, index: int) -> Scores:
    """A task of a specialist's domain, or of a list where there is no domain."""
    network = live(library)
    if domain:
        episode = sampler("id", SHOTS[index % len(SHOTS)], domain).episode(index)
        return {"gain": gain_in_episode(network, episode, what)}
    _, kind, shots = what.split("-")
    return score_episode(network, sampler(kind, int(shots), "").episode(index))


def library_of(work: Path, recipe: str) -> Path:
    """The library of a recipe's specialists and their base; made where it is not there."""
    folder = place(work, recipe)
    if not (folder / "library").exists():
        if not (folder / "base").exists():
            shutil.copytree(BASE, folder / "base")
        write_library(folder, ["base", *SPECIALISTS], folder / "library")
    return folder / "library"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="*", help="those to judge; all that are there by default")
    parser.add_argument(
        "--work", type=Path, default=ROOT / ".build" / "mixing-words", help="where tunings.py left them"
    )
    parser.add_argument("--tasks", type=int, default=18, help="tasks of each list")
    parser.add_argument("--own", type=int, default=240, help="tasks of each specialist's own domains")
    parser.add_argument("--quick", action="store_true", help="two tasks of each list and of each domain")
    options = parser.parse_args()
    there = [name for name in RECIPES if all((place(options.work, name) / each).exists() for each in SPECIALISTS)]
    own = [
        (specialist, domain, index)
        for specialist, mine in SPECIALISTS.items()
        for domain in mine
        for index in range(2 if options.quick else options.own // len(mine))
    ]
    wanted = [*own, *((name, "", index) for name in LISTS for index in range(2 if options.quick else options.tasks))]
    libraries = ((recipe, library_of(options.work, recipe)) for recipe in options.recipes or there)
    run_study(NAME, libraries, judge, wanted, options.quick)


if __name__ == "__main__":
    main()
