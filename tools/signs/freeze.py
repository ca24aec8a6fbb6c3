"""Freeze the lists of tasks that ship with Signs: python tools/signs/freeze.py.

Validation lists are for every choice, test lists for what the benchmark of a feature reports; lists called final are
opened once, by the full comparison.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "common"))

from renderings import RENDERINGS, WEAR
from rich.progress import track

from smatter.tasks.lists import TaskList, write_list
from smatter.tasks.open import LISTS, SHIPPED, open_suite
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.shifts.catalogue import Shift
from smatter.tasks.shifts.labels import LabelNoise
from smatter.tasks.suite import Suite

STAGES = {"validation": (1, 200), "test": (2, 300), "final": (3, 300)}
"""Seed and length of the lists of each."""

WAYS = (5, 10)
"""With five classes a flag is too easy to tell from others."""


def lists(suite: Suite) -> list[TaskList]:
    """Tasks inside, outside and across domains with 1, 2 and 5 shots; with wrong labels; and rendered anew."""
    found = []
    for stage, (seed, n_tasks) in STAGES.items():

        def add(name: str, kind: str, shots: int, *shifts: Shift, seed: int = seed, n_tasks: int = n_tasks) -> None:
            settings = SamplerSettings(
                split="validation" if name.startswith("validation") else "test",
                role="ood" if kind == "ood" else "id",
                n_way=WAYS,
                n_shot=(shots, shots),
                n_domains=(2, 3) if kind == "mixed" else (1, 1),
            )
            found.append(TaskList(name, Sampler(suite, settings, seed), n_tasks, (*shifts, WEAR)))

        for kind in ("id", "ood", "mixed"):
            for shots in (1, 2, 5):
                add(f"{stage}-{kind}-{shots}", kind, shots)
            add(f"{stage}-{kind}-noise", kind, 5, LabelNoise(0.2))
        for name, rendering in RENDERINGS.items():
            add(f"{stage}-outside-{name}", "ood", 5, rendering)
    return found


def main() -> None:
    """Write them all."""
    folder = SHIPPED / "signs" / LISTS
    folder.mkdir(exist_ok=True)
    for each in track(lists(open_suite("signs")), "freeze"):
        write_list(folder / f"{each.name}.json", each)


if __name__ == "__main__":
    main()
