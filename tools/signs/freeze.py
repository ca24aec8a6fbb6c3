"""Freeze the lists of tasks that ship with Signs: python tools/signs/freeze.py.

Validation lists are for every choice, calibration lists for thresholds, temperatures and certificates, test lists for
what the benchmark of a feature reports; lists called final are opened once, by the full comparison.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

sys.path.insert(0, str(Path(__file__).parents[1] / "common"))

from corruptions import CORRUPTIONS, corrupted
from renderings import RENDERINGS, WEAR
from rich.progress import track

from smatter.tasks.lists import TaskList, write_list
from smatter.tasks.open import LISTS, SHIPPED, open_suite
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.shifts.catalogue import Shift
from smatter.tasks.shifts.labels import LabelNoise
from smatter.tasks.splits import Split
from smatter.tasks.suite import Suite

Kind = Literal["id", "ood", "mixed"]

WAYS = (5, 10)
"""With five classes a flag is too easy to tell from others."""

N_CORRUPTED = 60
"""Tasks of each corrupted list: the first of the clean one, of which they are changed versions."""


@dataclass(frozen=True)
class Stage:
    """What a group of lists is for.

    Args:
        name: which the names of its lists begin with.
        split: classes that its tasks are drawn from.
        seed: of its tasks.
        n_tasks: of each list.
    """

    name: str
    split: Split
    seed: int
    n_tasks: int

    def tasks(self, suite: Suite, what: str, kind: Kind, shots: int, *shifts: Shift, n_tasks: int = 0) -> TaskList:
        """A list; those that differ in their shifts alone have the same draws."""
        settings = SamplerSettings(
            split=self.split,
            role="ood" if kind == "ood" else "id",
            n_way=WAYS,
            n_shot=(shots, shots),
            n_domains=(2, 3) if kind == "mixed" else (1, 1),
        )
        return TaskList(f"{self.name}-{what}", Sampler(suite, settings, self.seed), n_tasks or self.n_tasks, shifts)


STAGES = (Stage("validation", "validation", 1, 200), Stage("test", "test", 2, 300), Stage("final", "test", 3, 300))
CALIBRATION = Stage("calibration", "calibration", 4, 1000)
"""Domains that are held out have no classes for calibration."""


def plain(suite: Suite, stage: Stage, *kinds: Kind) -> list[TaskList]:
    """Tasks with 1, 2 and 5 shots, and with wrong labels."""
    found = []
    for kind in kinds:
        found += [stage.tasks(suite, f"{kind}-{shots}", kind, shots, WEAR) for shots in (1, 2, 5)]
        found.append(stage.tasks(suite, f"{kind}-noise", kind, 5, LabelNoise(0.2), WEAR))
    return found


def lists(suite: Suite) -> list[TaskList]:
    """Tasks inside, outside and across domains; rendered anew; and corrupted, inside and outside."""
    roles: tuple[Kind, ...] = ("id", "ood")
    found = plain(suite, CALIBRATION, "id", "mixed")
    for stage in STAGES:
        found += plain(suite, stage, "id", "ood", "mixed")
        for name, rendering in RENDERINGS.items():
            found.append(stage.tasks(suite, f"outside-{name}", "ood", 5, rendering, WEAR))
        for name in CORRUPTIONS:
            for role in roles:
                what = f"corrupt-{name}-{role}"
                found.append(stage.tasks(suite, what, role, 5, *corrupted(name), n_tasks=N_CORRUPTED))
    return found


def main() -> None:
    """Write them all."""
    folder = SHIPPED / "signs" / LISTS
    folder.mkdir(exist_ok=True)
    for each in track(lists(open_suite("signs")), "freeze"):
        write_list(folder / f"{each.name}.json", each)


if __name__ == "__main__":
    main()
