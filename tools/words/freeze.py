"""Freeze the lists of tasks of Words beside the built suite: python tools/words/freeze.py SUITE.

As for Signs, validation lists are for every choice, test lists for what the benchmark of a feature reports, and lists
called final are opened once, by the full comparison.
"""

import argparse
from pathlib import Path

from rich.progress import track

from smatter.tasks.lists import TaskList, write_list
from smatter.tasks.open import LISTS, open_suite
from smatter.tasks.sampler import Range, Sampler, SamplerSettings
from smatter.tasks.shifts.catalogue import Shift
from smatter.tasks.shifts.labels import LabelNoise
from smatter.tasks.suite import Suite

STAGES = {"validation": (1, 200), "test": (2, 300), "final": (3, 300)}
"""Seed and length of the lists of each."""

WAYS, TWO = (5, 10), (2, 2)
N_QUERY, N_QUERY_OF_TWO = 10, 20
"""Queries of a class; two classes need more, or a task says little."""


def lists(suite: Suite) -> list[TaskList]:
    """Tasks inside, outside and across domains with 1, 2 and 5 shots; with wrong labels; and with two classes."""
    return [each for stage in STAGES for each in _lists(suite, stage)]


def _lists(suite: Suite, stage: str) -> list[TaskList]:
    seed, n_tasks = STAGES[stage]

    def tasks(kind: str, form: str, shots: int, *shifts: Shift, ways: Range = WAYS, n_query: int = N_QUERY) -> TaskList:
        settings = SamplerSettings(
            split="validation" if stage == "validation" else "test",
            role="ood" if kind == "ood" else "id",
            n_way=ways,
            n_shot=(shots, shots),
            n_query=n_query,
            n_domains=(2, 3) if kind == "mixed" else (1, 1),
        )
        return TaskList(f"{stage}-{kind}-{form}", Sampler(suite, settings, seed), n_tasks, shifts)

    found = []
    for kind in ("id", "ood", "mixed"):
        found += [tasks(kind, str(shots), shots) for shots in (1, 2, 5)]
        found.append(tasks(kind, "noise", 5, LabelNoise(0.2)))
    return found + [tasks(kind, "two", 5, ways=TWO, n_query=N_QUERY_OF_TWO) for kind in ("id", "ood")]


def main() -> None:
    """Write them all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", type=Path, help="folder that build.py wrote")
    folder = parser.parse_args().suite
    (folder / LISTS).mkdir(exist_ok=True)
    for each in track(lists(open_suite(folder)), "freeze"):
        write_list(folder / LISTS / f"{each.name}.json", each)


if __name__ == "__main__":
    main()
