"""How soon `adapt --drift` tells a change, for each corruption of Signs: with the certificate of the router that ships.

    python benchmarks/certificates_delays.py [--quick]

A stream is the 60 validation tasks of a corruption, none of them twice, in an order that is drawn; it is watched with
the 1,000 calibration tasks of the certificate. The clean validation tasks are the control: their classes are not those
of the calibration tasks, which is a change too, if a small one. Nothing is chosen here.
"""

import argparse
import time
from functools import cache

import numpy as np
from certificates_tasks import CORRUPT, ROUTER, trials
from common import Rows, machine, show, write_result
from signs_tasks import LIBRARY, PACKAGES, Scores, live, shared_out, trained

from smatter.live.task import Task
from smatter.methods.router import RoutedSettings, fit_of
from smatter.route.certificates import read_certificates
from smatter.route.opening import route_task
from smatter.route.watch import Watch, begin_watch

NAME = "certificates_delays"
CLEAN = "validation-id-5"
N_TASKS, N_ORDERS = 60, 100


@cache
def fresh(names: tuple[str, ...]) -> Watch:
    """A new file's contents."""
    certificate = next(each for each in read_certificates(ROUTER) if each.rule == "router")
    return begin_watch(certificate, dict.fromkeys(names, 0.0))


def values(name: str, index: int) -> Scores:
    """What is watched of a task."""
    network, router = live(LIBRARY), trained(ROUTER)
    router.check_fits(network)
    task = Task.of(network, trials(name)[index].support)
    routed = route_task(network, task.objective, router)
    return dict(fit_of(network, task, RoutedSettings(router=router), routed).uncertainty)


def alarm_after(watch: Watch, stream: list[Scores]) -> float:
    """Tasks until an alarm; infinite without one."""
    for number, each in enumerate(stream, 1):
        watch = watch.after(each)
        if watch.alarms:
            return number
    return float("inf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two corruptions, and few orders")
    quick = parser.parse_args().quick
    begin = time.perf_counter()
    lists, n_orders = ((CLEAN, *CORRUPT[:2]), 5) if quick else ((CLEAN, *CORRUPT), N_ORDERS)
    found: dict[str, list[Scores]] = {name: [] for name in lists}
    jobs = [(name, index) for name in lists for index in range(10 if quick else N_TASKS)]
    for (name, _), told in shared_out("values", values, jobs, keep=True):
        found[name].append(told)
    watch, generator, rows = fresh(tuple(found[CLEAN][0])), np.random.default_rng(0), list[dict[str, object]]()
    for name, told in found.items():
        orders = (generator.permutation(len(told)).tolist() for _ in range(n_orders))
        after = np.array([alarm_after(watch, [told[place] for place in order]) for order in orders])
        median, ninth = (float(np.quantile(after, share, method="higher")) for share in (0.5, 0.9))
        row: dict[str, object] = {
            "tasks": name,
            "distinct tasks": len(told),
            "alarms": float(np.isfinite(after).mean()),
        }
        for label, delay in (("delay, median", median), ("delay, nine of ten", ninth)):
            row[label] = delay if np.isfinite(delay) else None
        rows.append(row)
    rows.sort(key=lambda row: (-float(str(row["alarms"])), float(str(row["delay, median"] or 1000))))
    told_rows: Rows = rows
    show("delays", told_rows)
    figures = {
        "shifts": len(lists) - 1,
        "shifts_told_within_60": sum(row["delay, median"] is not None and row["tasks"] != CLEAN for row in rows),
        "alarms_without_a_shift": next(float(str(row["alarms"])) for row in rows if row["tasks"] == CLEAN),
    }
    write_result(NAME, figures, {"delays": rows}, machine(PACKAGES, 1), time.perf_counter() - begin, quick)


if __name__ == "__main__":
    main()
