"""What the certificate of the router that ships says, beside what it does on tasks of other classes, and its sets.

It reads what `certificates_tasks.py shipped` has kept of test tasks, and runs no network. Writes
benchmarks/results/certificates_shipped.json.
"""

import argparse
import time

import numpy as np
from certificates_tasks import ASKED, ROUTER, Record, records
from common import ROOT, Rows, machine, show, write_result

from smatter.certify.conformal import least_ambiguous_scores
from smatter.compose.records import ClassSets
from smatter.route.certificates import Certificate, read_certificates
from smatter.scores.intervals import clustered_interval

NAME = "certificates_shipped"


def bound_rows(certificate: Certificate) -> Rows:
    """The bounds of the mean error and of its worst tenth, and the same measured on other classes."""
    mean, tail = certificate.bounds[:2]
    rows: Rows = [
        {
            "tasks": certificate.tasks, "n": certificate.n, "mean error": mean.estimate, "half": None,
            "bound": mean.value, "worst tenth": tail.estimate, "bound of the worst tenth": tail.value,
        }
    ]  # fmt: skip
    for name in ASKED:
        found = records(name)
        errors = np.array([each.error for each in found])
        interval = clustered_interval(errors.tolist(), [each.told["domain"] for each in found])
        worst = np.sort(errors)[::-1][: max(1, round(0.1 * len(errors)))].mean()
        rows.append(
            {
                "tasks": name, "n": len(found), "mean error": interval.mean, "half": interval.half,
                "bound": mean.value, "worst tenth": float(worst), "bound of the worst tenth": tail.value,
            }
        )  # fmt: skip
    return rows


def set_rows(sets: ClassSets) -> Rows:
    """How often sets hold the right class, and how large they are, for each coverage; over all and by known domain."""
    rows: Rows = []
    for name in ASKED:
        found = records(name)
        domains = [each.told["domain"] for each in found]
        for coverage in sets.coverages:
            covered, sizes = zip(*(judged_set(each, sets.limit(coverage)) for each in found), strict=True)
            interval = clustered_interval(covered, domains)
            by_domain = {
                domain: float(
                    np.mean([share for share, other in zip(covered, domains, strict=True) if other == domain])
                )
                for domain in set(domains)
            }
            known = [each for each in found if each.told["domain"] in sets.domains]
            own = [judged_set(each, sets.limit(coverage, each.told["domain"]))[0] for each in known]
            rows.append(
                {
                    "tasks": name, "n": len(found), "wished for": coverage, "covered": interval.mean,
                    "half": interval.half, "classes in a set": float(np.mean(sizes)),
                    "classes of a task": float(np.mean([each.probabilities.shape[1] for each in found])),
                    "worst domain": min(by_domain.values()),
                    "with limits of the domain": float(np.mean(own)) if own else None,
                }
            )  # fmt: skip
    return rows


def judged_set(record: Record, limit: float) -> tuple[float, float]:
    """The share of a task's queries whose set holds their class, and the mean size of the sets."""
    rows = least_ambiguous_scores(record.probabilities)
    sets = (rows <= limit) | (rows == rows.min(axis=1, keepdims=True))
    return float(sets[np.arange(len(rows)), record.truth].mean()), float(sets.sum(axis=1).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="write elsewhere")
    quick = parser.parse_args().quick
    start = time.perf_counter()
    (certificate,) = read_certificates(ROUTER)
    assert certificate.sets is not None
    tables = {
        "bounds": bound_rows(certificate),
        "sets": set_rows(certificate.sets),
    }
    for name, rows in tables.items():
        show(name, rows)
    inside, outside = (next(row for row in tables["bounds"] if row["tasks"] == name) for name in ASKED)
    ninety = [row for row in tables["sets"] if row["wished for"] == 0.9]
    figures = {
        "certified_delta": certificate.delta,
        "calibration_tasks": float(certificate.n),
        "mean_error_bound": inside["bound"],
        "mean_bound_gap": certificate.bounds[0].value - certificate.bounds[0].estimate,
        "mean_error_test_id": inside["mean error"],
        "mean_error_test_ood": outside["mean error"],
        "coverage_test_id": ninety[0]["covered"],
        "coverage_test_ood": ninety[1]["covered"],
        "set_size_test_id": ninety[0]["classes in a set"],
    }
    described = machine(["numpy", "scipy", "torch"], threads=1)
    path = write_result(NAME, figures, tables, described, time.perf_counter() - start, quick)
    print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
