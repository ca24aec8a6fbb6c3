"""Tasks of Signs for two benchmarks: what the router that ships does on them, kept in .build/certificates.

`python benchmarks/certificates_tasks.py real|shipped` adds tasks until it is stopped, and goes on where it was. A task
is a line of JSON in the file of its list; a line that was not finished is left out.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from common import ROOT
from signs_tasks import LIBRARY, live, tasks, trained

from smatter.evaluate.trials import Trial, Trials, open_trials
from smatter.live.task import Task
from smatter.methods.router import RoutedSettings, fit_of
from smatter.route.opening import route_task
from smatter.steps.judge import judged_model
from smatter.tasks.open import SHIPPED

FOLDER = ROOT / ".build" / "certificates"
ROUTER = SHIPPED / "signs-router"
FORMS = tuple(f"{kind}-{form}" for form in (5, 1, 2, "noise") for kind in ("id", "mixed"))
CALIBRATION = tuple(f"calibration-{form}" for form in FORMS)
TEST = tuple(f"test-{form}" for form in (*FORMS, *(f"ood-{form}" for form in (5, 1, 2, "noise"))))
CORRUPT = tuple(sorted(path.stem for path in (SHIPPED / "signs" / "lists").glob("validation-corrupt-*-id.json")))
ASKED = ("test-id-5", "test-ood-5")
PLANS = {
    "shipped": ((ASKED, 300),),
    "real": ((CALIBRATION, 100), (("validation-id-5", *CORRUPT), 15), (TEST, 30), (CALIBRATION, 1000)),
}
"""Lists and how many of their tasks, in this order, a task of each list in turn; for which benchmark."""


@cache
def trials(name: str) -> Trials:
    """The tasks of a frozen list."""
    return open_trials("signs", frozen=name)


class Record:
    """What the router did on one task.

    Args:
        told: the line of its list's file.
    """

    def __init__(self, told: dict[str, Any]) -> None:
        self.told = told

    @cached_property
    def probabilities(self) -> np.ndarray:
        """Of the queries, (n_queries, n_classes)."""
        rows = np.array(self.told["probabilities"], np.float64)
        return rows / rows.sum(axis=1, keepdims=True)

    @cached_property
    def truth(self) -> np.ndarray:
        """Class of each query, (n_queries,)."""
        return np.array(self.told["truth"])

    @cached_property
    def error(self) -> float:
        """Share of the queries that are named wrongly."""
        return float((self.probabilities.argmax(axis=1) != self.truth).mean())

    @property
    def brier(self) -> float:
        """Half of the squared distance from the truth, mean over queries; in [0, 1]."""
        truth = np.eye(self.probabilities.shape[1])[self.truth]
        return float(((self.probabilities - truth) ** 2).sum(axis=1).mean() / 2)


@cache
def records(name: str, most: int = 10_000) -> list[Record]:
    """What is kept of a list, in order."""
    path = FOLDER / f"{name}.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [Record(json.loads(line)) for line in lines if line.endswith("}")][:most]


def make(name: str, index: int) -> dict[str, Any]:
    """Route one task and name its queries, as `smatter adapt --router` does."""
    begin, network, router = time.perf_counter(), live(LIBRARY), trained(ROUTER)
    trial: Trial = trials(name)[index]
    task = Task.of(network, trial.support)
    routed = route_task(network, task.objective, router)
    adapted = judged_model(
        network, task, fit_of(network, task, RoutedSettings(router=router), routed),
        class_names=trial.support.class_names,
    )  # fmt: skip
    weights, prior = (each.double().numpy() for each in (routed.routing.weights.mean(dim=0), routed.prior))
    sampler = tasks(name).sampler
    drawn = [f"{sampler.suite.domains[domain].name}:{number}" for domain, number in sampler.draw(index).classes]
    return {
        "index": index,
        "domain": trial.domain,
        "classes": drawn,
        "names": list(trial.support.class_names),
        "truth": list(trial.truth),
        "probabilities": adapted.predict(trial.queries).probabilities.double().numpy().round(5).tolist(),
        "weights": weights.round(6).tolist(),
        "entropy": float(-(weights * np.log(np.maximum(weights, 1e-300))).sum()),
        "divergence": float((weights * np.log(np.maximum(weights, 1e-300) / np.maximum(prior, 1e-12))).sum()),
        "loss": adapted.loss,
        "uncertainty": adapted.uncertainty,
        "seconds": time.perf_counter() - begin,
    }


def jobs(plan: str) -> Iterator[tuple[str, int]]:
    """What is to be done, in the order in which it is done."""
    for lists, count in PLANS[plan]:
        yield from ((name, index) for index in range(count) for name in lists)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan", choices=PLANS, help="the benchmark that reads them")
    plan = parser.parse_args().plan
    FOLDER.mkdir(parents=True, exist_ok=True)
    known: dict[str, set[int]] = {}
    router = trained(ROUTER)
    router.check_fits(live(LIBRARY))
    for name, index in jobs(plan):
        if name not in known:
            mend(FOLDER / f"{name}.jsonl")
            known[name] = {record.told["index"] for record in records(name)}
        if index in known[name]:
            continue
        told = make(name, index)
        assert math.isfinite(told["loss"])
        with (FOLDER / f"{name}.jsonl").open("a") as file:
            file.write(json.dumps(told) + "\n")
        known[name].add(index)


def mend(path: Path) -> None:
    """Take away a last line that was not finished."""
    if path.exists() and (text := path.read_text()) and not text.endswith("\n"):
        path.write_text(text[: text.rfind("\n") + 1])


if __name__ == "__main__":
    main()
