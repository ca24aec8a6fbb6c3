"""The plain averages of the first library, on the tasks of two earlier tables, which lacked them.

    python benchmarks/first_averages.py [--quick]

Designs of routers (`router_choices.json`) and sources that come and go (`router_sources.json`) were measured with the
library that shipped first (benchmarks/before.py). Averages need no router, so they can stand beside those figures: of
weights in one pass, of predictions at a pass for each source.
"""

import argparse
import time

import before
import torch
from beyond_scores import Look
from common import ROOT, Rows, machine, show, write_result
from router_choices import AVERAGES, FORMS
from router_sources import add_irrelevant
from signs_tasks import KINDS, PACKAGES, Scores, by_draw, live, shared_out, tasks

from smatter.compose.mixture import Mixture
from smatter.scores.intervals import mean_interval

NAME = "first_averages"
N_TASKS = 40
IRRELEVANT = ROOT / ".build" / "first-irrelevant"


def averaged(name: str, index: int) -> Scores:
    """Accuracy of both averages, and of predictions without each source and with irrelevant ones beside them."""
    look = Look(live(before.LIBRARY), tasks(name).episode(index))
    everyone = look.network.library.names
    alike = dict.fromkeys(everyone, 1 / len(everyone))
    of_weights = look.voices(look.network.library.recipe(Mixture.of(alike)))
    found = {
        label: look.right(each.logits) for label, each in zip(AVERAGES, (of_weights, look.plain(alike)), strict=True)
    }
    if name.startswith("test"):
        for source in everyone:
            kept = [each for each in everyone if each != source]
            found[f"without {source}"] = look.right(look.plain(dict.fromkeys(kept, 1 / len(kept))).logits)
        crowd = Look(live(IRRELEVANT), tasks(name).episode(index))
        names = crowd.network.library.names
        found["irrelevant"] = crowd.right(crowd.plain(dict.fromkeys(names, 1 / len(names))).logits)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one task of each list")
    options = parser.parse_args()
    n_tasks, begin = 1 if options.quick else N_TASKS, time.perf_counter()
    torch.set_num_threads(1)
    before.restore()
    add_irrelevant(IRRELEVANT, before.LIBRARY)
    lists = [f"validation-{kind}-{form}" for kind in KINDS for form in FORMS]
    lists += [f"test-{kind}-{shots}" for shots in (2, 5) for kind in KINDS]
    jobs = [(name, index) for name in lists for index in range(n_tasks)]
    found: dict[str, list[Scores]] = {}
    for (name, _), scores in shared_out("tasks", averaged, jobs, keep=True):
        found.setdefault(name, []).append(scores)
    chosen = {name.removeprefix("validation-"): each for name, each in found.items() if name.startswith("validation")}
    rows: Rows = []
    for label in AVERAGES:
        row: dict[str, object] = {"tasks": "designs of routers", "average": label}
        for kind in (*KINDS, "noise"):
            row[kind] = mean_interval(by_draw(chosen, [each for each in chosen if kind in each], label)).mean
        rows.append(row | {"all": mean_interval(by_draw(chosen, list(chosen), label)).mean})
    for shots in (2, 5):
        some = [scores for kind in KINDS for scores in found[f"test-{kind}-{shots}"]]
        for label in some[0]:
            all_of = mean_interval([each[label] for each in some])
            rows.append({"tasks": f"sources, {shots} shots", "average": label, "all": all_of.mean, "half": all_of.half})
    show("averages", rows)
    write_result(NAME, {"tasks": len(jobs)}, {"averages": rows}, machine(PACKAGES, 1), time.perf_counter() - begin,
                 options.quick)  # fmt: skip


if __name__ == "__main__":
    main()
