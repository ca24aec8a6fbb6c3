"""Does evidence find the one good source: the right specialist among sources that are far, in pictures and in texts.

    python benchmarks/specialist_found.py [--stage validation|test] [--tasks N] [--quick]

Tasks are of one domain. Their library holds its specialist, the base and specialists of other domains; a second one
holds random perturbations of the base as well. *Found* is what a method has of the specialist's gain over the plain
average, a ratio of means. The plain average is of weights or of predictions, as the method's is. With
`--stage validation` estimators and temperatures are compared too. Needs `make words sources-words`; two routers, each
without one specialist, are trained first where they are not there (.build/routers).
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path

from common import ROOT, SCRATCH, Rows, machine, show, write_result
from signs_tasks import PACKAGES, Scores, shared_out, train_on_signs
from specialist_found_scores import SPACES, UNSEEN, score
from specialist_found_study import TEMPERATURES, beside_rows, estimator_rows, study
from specialist_found_tasks import GROUNDS, LISTED, VARIANTS, Form, irrelevant_library

from smatter.scores.intervals import Interval, clustered_interval
from smatter.settings.training import MetaSettings

NAME = "specialist_found"
N_STEPS = 200
N_STUDIED = 16
"""Tasks of each form by which estimators are compared."""

CLEARLY = 2.0
"""Standard errors by which a model must be below a source to be called worse."""

DEFAULTS = {"signs": "router weights", "words": "evidence weights"}
"""What `adapt` does: with the router that ships, or without one."""

METHODS = ("evidence", "router", "unseen")
Found = Mapping[tuple[str, Form], Sequence[Scores]]


def ratio(tasks: Sequence[Scores], variant: str, label: str) -> Interval | None:
    """Share of the specialist's gain over the plain average that a model has; none where the specialist gains nothing.

    The interval is that of the mean of (ours - ratio x theirs), over the mean of theirs: linear in small errors.
    """
    peer = f"{variant} uniform {label.split()[-1]}"
    ours = [each[f"{variant} {label}"] - each[peer] for each in tasks]
    theirs = [each[f"{variant} specialist"] - each[peer] for each in tasks]
    whole = sum(theirs) / len(theirs)
    if whole <= 0:
        return None
    share = sum(ours) / sum(theirs)
    rest = [(mine - share * other) / whole for mine, other in zip(ours, theirs, strict=True)]
    around = clustered_interval(rest, [each["domain"] for each in tasks])
    return Interval(share, share + around.low, share + around.high)


def difference(tasks: Sequence[Scores], ours: str, theirs: str) -> Interval:
    """Ours less theirs in points."""
    values = [each[ours] - each[theirs] for each in tasks]
    return clustered_interval(values, [each["domain"] for each in tasks])


def joined(found: Found, ground: str, wanted: Callable[[Form], bool], label: str = "") -> list[Scores]:
    """Tasks of a suite that have a model, of some forms."""
    return [
        each
        for (where, form), tasks in found.items()
        if where == ground and wanted(form)
        for each in tasks
        if not label or f"{VARIANTS[0]} {label}" in each
    ]


SETS: dict[str, Callable[[Form], bool]] = {
    "1 shot": lambda form: form.n_shot == 1 and form.n_way == LISTED,
    "2 shots": lambda form: form.n_shot == 2,
    "5 shots": lambda form: form.n_shot == 5 and form.n_way == LISTED,
    "2 ways, 1 shot": lambda form: form == Form((2, 2), 1),
    "2 ways, 5 shots": lambda form: form == Form((2, 2), 5),
    "2 ways, 10 shots": lambda form: form == Form((2, 2), 10),
    "10 to 20 ways": lambda form: form.n_way == (10, 20),
    "all": bool,
}


def found_rows(found: Found) -> Rows:
    """What each method has of the specialist's gain."""
    rows: Rows = []
    for ground in GROUNDS:
        for variant in VARIANTS:
            for what, wanted in SETS.items():
                for label in (f"{method} {space}" for space in SPACES for method in METHODS):
                    tasks = joined(found, ground, wanted, label)
                    if len(tasks) < 2:
                        continue
                    rows.append({"suite": ground, "library": variant, "tasks_of": what, "model": label})
                    rows[-1] |= row_of(tasks, variant, label)
    return rows


def row_of(tasks: Sequence[Scores], variant: str, label: str) -> dict[str, float]:
    """One model on some tasks: accuracy, what it gains, what it finds, and how often a single source is better."""
    peer = f"uniform {label.split()[-1]}"
    row: dict[str, float] = {"tasks": len(tasks)}
    for short, each in (("accuracy", label), ("uniform", peer), ("specialist", "specialist")):
        row[short] = sum(task[f"{variant} {each}"] for task in tasks) / len(tasks)
    if part := ratio(tasks, variant, label):
        row |= {"found": part.mean, "found_low": part.low, "found_high": part.high}
    for short, other in (("over_uniform", peer), ("over_best_by_support", "best by support")):
        gain = difference(tasks, f"{variant} {label}", f"{variant} {other}")
        row |= {short: gain.mean, f"{short}_low": gain.low, f"{short}_high": gain.high}
    worse = [task[f"{variant} {label} errors below"] > CLEARLY for task in tasks]
    return row | {"worse_than_source": sum(worse) / len(worse)}


def rule_rows(found: Found) -> Rows:
    """What taking the best single source instead is worth, by how clearly it must be better; in standard errors."""
    rows: Rows = []
    for ground, variant in product(GROUNDS, VARIANTS):
        for label in ("evidence weights", "router weights"):
            tasks = joined(found, ground, bool, label)
            for limit in (0.0, 0.5, 1.0, 2.0, 3.0):
                some = [each for each in tasks if each[f"{variant} {label} above"] > limit]
                if len(some) > 1:
                    gain = difference(some, f"{variant} best by support", f"{variant} {label} as found")
                    row = {"suite": ground, "library": variant, "model": label, "above": limit, "tasks": len(tasks)}
                    row |= {"single": len(some), "gain": gain.mean, "gain_low": gain.low, "gain_high": gain.high}
                    rows.append(row)
    return rows


def figures_of(found: Found) -> dict[str, float]:
    """The figures that are asked for: of libraries with sources that are far, and (irrelevant) with noise as well."""
    figures: dict[str, float] = {}
    shots = {"specialist_found_1": ("signs", "1 shot"), "specialist_found_5": ("signs", "5 shots")}
    shots["specialist_found_words"] = ("words", "2 ways, 5 shots")
    for variant in VARIANTS:
        end = "" if variant == VARIANTS[0] else f"_{variant}"
        for name, (ground, what) in shots.items():
            for label in (f"{method} {space}" for space in SPACES for method in METHODS):
                tasks = joined(found, ground, SETS[what], label)
                if len(tasks) < 2:
                    continue
                told = [label.replace(" ", "_")] + [""] * (label == DEFAULTS[ground])
                gain = difference(tasks, f"{variant} specialist", f"{variant} uniform {label.split()[-1]}")
                for key in (f"_{each}" if each else "" for each in told):
                    put(figures, f"gain_of_{name}{key}{end}", gain)
                    if part := ratio(tasks, variant, label):
                        put(figures, f"{name}{key}{end}", part)
        for ground, default in DEFAULTS.items():
            tasks = joined(found, ground, lambda form: form.n_shot == 1)
            peers = {"best_by_support": "best by support", "uniform": "uniform weights"}
            for short, peer in peers.items():
                gain = difference(tasks, f"{variant} {default}", f"{variant} {peer}")
                put(figures, f"one_shot_vs_{short}_{ground}{end}", gain)
        everything = [(ground, each) for (ground, _), tasks in found.items() for each in tasks]
        worse = [each[f"{variant} {DEFAULTS[ground]} errors below"] > CLEARLY for ground, each in everything]
        figures[f"mixture_worse_than_source{end}"] = sum(worse) / len(worse)
        figures["tasks"] = len(everything)
    return figures


def put(figures: dict[str, float], name: str, interval: Interval) -> None:
    """A figure with its interval."""
    figures |= {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}


def train_apart(routers: Path, n_steps: int) -> None:
    """Routers without experts, each of which never saw one specialist."""
    for specialist in UNSEEN:
        settings = MetaSettings(n_steps=n_steps, validate_every=min(100, n_steps))
        train_on_signs(settings, routers / f"without-{specialist}", specialist)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stage", choices=("validation", "test"), default="test")
    parser.add_argument("--tasks", type=int, default=30, help="tasks of each form")
    parser.add_argument("--quick", action="store_true", help="one task of each form")
    options = parser.parse_args()
    begin = time.perf_counter()
    routers, n_steps = (SCRATCH / "routers", 2) if options.quick else (ROOT / ".build" / "routers", N_STEPS)
    routers.mkdir(parents=True, exist_ok=True)
    train_apart(routers, n_steps)
    n_tasks = 1 if options.quick else options.tasks
    jobs = []
    for ground, told in GROUNDS.items():
        irrelevant_library(ground)
        jobs += [(ground, options.stage, form, index) for form in told.forms for index in range(n_tasks)]
    found: dict[tuple[str, Form], list[Scores]] = {}
    for (ground, _, form, _), scores in shared_out("tasks", partial(score, routers), jobs, keep=True):
        found.setdefault((ground, form), []).append(scores)
    tables = {"found": found_rows(found)}
    if options.stage == "validation":
        studied: dict[str, list[Scores]] = {}
        work = partial(study, routers, tuple(TEMPERATURES))
        some = [job for job in jobs if job[-1] < N_STUDIED]
        for (ground, *_), scores in shared_out("estimators", work, some, keep=True):
            studied.setdefault(ground, []).append(scores)
        tables |= {"estimators": estimator_rows(studied), "beside": beside_rows(studied["signs"])}
        tables["single_source_instead"] = rule_rows(found)
    for title, rows in tables.items():
        show(title, rows)
    name = NAME if options.stage == "test" else f"{NAME}_validation"
    seconds = time.perf_counter() - begin
    write_result(name, figures_of(found), tables, machine(PACKAGES, 1), seconds, options.quick)


if __name__ == "__main__":
    main()
