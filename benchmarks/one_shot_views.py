"""Do altered views in prototypes help one-shot tasks? Validation tasks of Signs, one example of each class.

A prototype is the direction of the example's features, or that of the sum over the example and seven altered views of
it (`live.views`). Base, plain average and the mixture by evidence, paired task by task.
"""

import sys
import time
from typing import Any

import torch
from common import machine, write_result
from signs_tasks import tasks

from smatter.backbones.heads import class_sums, prototype_logits
from smatter.compose.mixture import Mixture
from smatter.library.library import open_library
from smatter.live.episodes import episode_queries, prepared_support
from smatter.live.mixture import LiveMixture
from smatter.live.task import leave_one_out
from smatter.route.evidence import gather_evidence
from smatter.scores.intervals import clustered_interval
from smatter.tasks.open import SHIPPED

LISTS = tuple(f"validation-{kind}-1" for kind in ("id", "ood", "mixed"))
N_TASKS = 40


def score(live: LiveMixture, mixture: Mixture, episode: Any) -> dict[str, float]:
    """Accuracy of the queries, in percent, by prototypes of the examples and of their views."""
    support, queries = prepared_support(live, episode), episode_queries(live, episode)
    objective = leave_one_out(live, support)
    live.compose(mixture)
    read = live.read(objective)
    asked = live.read(queries)[queries.n_support :]
    found = {}
    for name, rows, labels in (
        ("plain", read[objective.unchanged], objective.classes),
        ("views", read, objective.labels),
    ):
        logits = prototype_logits(asked, class_sums(rows, labels, queries.n_classes))
        found[name] = 100 * float((logits.argmax(dim=1) == queries.classes).double().mean())
    return found


def main() -> None:
    begin, n_tasks = time.perf_counter(), 8 if "--quick" in sys.argv else N_TASKS
    torch.set_num_threads(1)
    live = LiveMixture(open_library(SHIPPED / "signs-library"))
    names = live.library.names
    gains: dict[str, list[float]] = {"base": [], "average": [], "evidence": []}
    plain: dict[str, list[float]] = {name: [] for name in gains}
    domains = []
    for label in LISTS:
        for number in range(n_tasks):
            episode = tasks(label).episode(number)
            domains.append(int(episode.query.domains.min()))
            evidence = gather_evidence(live, leave_one_out(live, prepared_support(live, episode)))
            mixtures = {
                "base": Mixture.of({live.library.manifest.base: 1.0}),
                "average": Mixture.of(dict.fromkeys(names, 1 / len(names))),
                "evidence": evidence.mixture,
            }
            for name, mixture in mixtures.items():
                found = score(live, mixture, episode)
                plain[name].append(found["plain"])
                gains[name].append(found["views"] - found["plain"])
    figures: dict[str, float] = {"n_tasks": len(domains)}
    for name, values in gains.items():
        interval = clustered_interval(values, domains)
        figures |= {
            f"{name}_plain": sum(plain[name]) / len(plain[name]),
            f"{name}_gain": interval.mean,
            f"{name}_gain_low": interval.low,
            f"{name}_gain_high": interval.high,
        }
        print(f"{name}: {figures[f'{name}_plain']:.1f} %, with views {interval} points more", flush=True)
    seconds = time.perf_counter() - begin
    write_result("one_shot_views", figures, {}, machine(("torch", "transformers"), 1), seconds, n_tasks < N_TASKS)


if __name__ == "__main__":
    main()
