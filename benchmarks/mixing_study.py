"""How to fine-tune checkpoints so that they mix: recipes of training, judged on validation tasks of Signs.

    python benchmarks/mixing_study.py [--work DIR] [--tasks N] [--quick] [RECIPES]

The specialists of Signs are made by each recipe (tools/sources/recipes.py; `make mixing-study` trains them). For each:
how far they are from the base, what each gains over it on its own domains, and the mixing loss, which is what an
average of the sources' predictions is above the average of their weights, at the same weights: equal ones, and those
of evidence.
"""

import argparse
import os
import shutil
import sys
from functools import cache
from pathlib import Path

import before
from common import PLAIN_PROCESS, ROOT, Rows

os.environ |= PLAIN_PROCESS
sys.path.insert(0, str(ROOT / "tools" / "common"))
sys.path.insert(0, str(ROOT / "tools" / "sources"))

from libraries import write_library
from mixing_tasks import LISTS, SHOTS, gain_in_episode, run_study, score_episode
from plan import SPECIALISTS
from recipes import RECIPES, place
from safetensors.torch import load_file, save_file
from signs_tasks import Scores, live, shared_out, tasks

from smatter.scores.intervals import mean_interval
from smatter.tasks.lists import TaskList
from smatter.tasks.open import SHIPPED, open_suite
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.shifts.wear import Worn
from smatter.tasks.splits import Split

NAME = "mixing_study"
FORMER, NOW = "rate 12e-3", "common trunk, slow but for emoji"
"""The recipes of the library before, which is in the history, and of the one that ships."""

SHRUNK = {f"{FORMER}, {factor} of the way": factor for factor in (0.8, 0.6, 0.4)}
"""No recipes: nearer sources from the former ones, without training."""


def library_of(work: Path, recipe: str) -> Path:
    """The library of a recipe's specialists and their base; made where it is not there."""
    if recipe in (FORMER, NOW):
        return before.LIBRARY if recipe == FORMER else SHIPPED / "signs-library"
    folder = place(work, recipe)
    if recipe in SHRUNK and not folder.exists():
        write_shrunk(folder, SHRUNK[recipe])
    if not (folder / "library").exists():
        if not (folder / "base").exists():
            shutil.copytree(SHIPPED / "signs-library" / "base", folder / "base")
        write_library(folder, ["base", *SPECIALISTS], folder / "library")
    return folder / "library"


def write_shrunk(folder: Path, factor: float) -> None:
    """The former specialists with this share of their distance to the base."""
    base = load_file(before.LIBRARY / "base" / "model.safetensors")
    for name in SPECIALISTS:
        shutil.copytree(before.LIBRARY / name, folder / name)
        path = folder / name / "model.safetensors"
        tuned = load_file(path)
        near = {key: base[key].float().lerp(tensor.float(), factor).to(tensor) for key, tensor in tuned.items()}
        save_file(near, path, {"format": "pt"})


def judge(library: Path, what: str, domain: str, index: int) -> Scores:
    """A task of a specialist's domain, or of a list where there is no domain."""
    if domain:
        return {"gain": gain(library, "validation", what, domain, index)}
    return score_episode(live(library), tasks(what).episode(index))


@cache
def domain_tasks(split: Split, domain: str, shots: int) -> TaskList:
    """Tasks of one domain."""
    like = SamplerSettings(split=split, role="id", n_way=(5, 10), domains=(domain,), n_shot=(shots, shots))
    return TaskList(domain, Sampler(open_suite("signs"), like, 11), 1000, (Worn("both", 5),))


def gain(library: Path, split: Split, specialist: str, domain: str, index: int) -> float:
    """What a specialist is above the base on one task of its domains, in points."""
    episode = domain_tasks(split, domain, SHOTS[index % len(SHOTS)]).episode(index)
    return gain_in_episode(live(library), episode, specialist)


def gain_rows(library: Path, split: Split, n_tasks: int) -> Rows:
    """What each specialist gains over the base on its own domains."""
    jobs = [
        (library, split, specialist, domain, index)
        for specialist, mine in SPECIALISTS.items()
        for domain in mine
        for index in range(n_tasks)
    ]
    points: dict[str, list[float]] = {}
    for (_, _, specialist, _, _), found in shared_out("specialists", gain, jobs, 8, keep=True):
        points.setdefault(specialist, []).append(found)
    rows: Rows = []
    for specialist, values in points.items():
        interval = mean_interval(values)
        rows.append(
            {"specialist": specialist, "gain": interval.mean, "gain_low": interval.low, "gain_high": interval.high}
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="*", help="those to judge; all that are there by default")
    parser.add_argument("--work", type=Path, default=ROOT / ".build" / "mixing", help="where mixing.py left them")
    parser.add_argument("--tasks", type=int, default=30, help="tasks of each list and of each domain")
    parser.add_argument("--quick", action="store_true", help="two tasks of each, two libraries")
    options = parser.parse_args()
    n_tasks = 2 if options.quick else options.tasks
    there = [name for name in RECIPES if all((place(options.work, name) / each).exists() for each in SPECIALISTS)]
    others = [] if options.quick else [*SHRUNK, *(name for name in there if name not in (FORMER, NOW))]
    recipes = options.recipes or [FORMER, NOW, *others]
    before.restore()
    own = [(specialist, domain) for specialist, mine in SPECIALISTS.items() for domain in mine]
    wanted = [(*what, index) for what in (*own, *((name, "") for name in LISTS)) for index in range(n_tasks)]
    libraries = ((recipe, library_of(options.work, recipe)) for recipe in recipes)
    run_study(NAME, libraries, judge, wanted, options.quick)


if __name__ == "__main__":
    main()
