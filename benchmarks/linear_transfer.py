"""Linear models of other domains and a few examples of a new one: Smatter's estimators beside what scikit-learn offers.

Each domain in turn is new; the sources are linear models of the others. See docs/linear-models.md for the protocol.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import SCRATCH, Rows, machine, show, stage, write_result
from linear_transfer_chart import draw
from linear_transfer_data import Domain, diamonds, emoji
from linear_transfer_methods import (
    CLASSIFICATION,
    INVERSE_RIDGES,
    REGRESSION,
    RIDGES,
    SMATTER,
    SMATTER_MIXTURE,
    Array,
    Transfer,
    log_loss,
)  # fmt: skip
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, Ridge, RidgeCV
from sklearn.model_selection import LeaveOneGroupOut

ORACLE = "ridge on all"
MOST_SOURCE_EXAMPLES, MOST_TEST_EXAMPLES, TEST_SHARE = 2000, 1000, 0.4
IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"


@dataclass(frozen=True)
class Study:
    """One data set and how it is scored.

    Args:
        name: starts the names of the figures.
        load: its domains.
        methods: what is compared.
        is_classification: then the score is accuracy, else the root mean squared error.
        n_resamples: of every domain.
    """

    name: str
    load: Callable[[], Mapping[str, Domain]]
    methods: Mapping[str, Callable[[Transfer], Callable[[Array], Array]]]
    is_classification: bool
    n_resamples: int


SIZES = (5, 10, 20, 50, 100, 200)
STUDIES = (
    Study("regression", diamonds, REGRESSION, False, 13),
    Study("classification", emoji, CLASSIFICATION, True, 17),
)


@dataclass(frozen=True)
class Sources:
    """Models of all domains but one, in features standardised by these domains' own statistics."""

    models: Sequence[Any]
    features: Sequence[Array]
    targets: Sequence[Array]
    pooled: Any
    mean: Array
    scale: Array

    def scaled(self, features: Array) -> Array:
        return (features - self.mean) / self.scale


def fit_sources(domains: Mapping[str, Domain], target: str, is_classification: bool) -> Sources:
    """A model of every other domain, its ridge chosen on that domain's data; and the ridge for all of them pooled."""
    generator = np.random.default_rng(0)
    parts = []
    for name, domain in domains.items():
        if name != target:
            index = generator.permutation(np.flatnonzero(domain.for_sources))[:MOST_SOURCE_EXAMPLES]
            parts.append((domain.features[index], domain.targets[index]))
    together = np.concatenate([features for features, _ in parts])
    mean, scale = together.mean(axis=0), together.std(axis=0)
    features, targets = [(part - mean) / scale for part, _ in parts], [part for _, part in parts]
    together, all_targets = np.concatenate(features), np.concatenate(targets)
    if not is_classification:
        models = [RidgeCV(RIDGES).fit(*pair) for pair in zip(features, targets, strict=True)]
        pooled = Ridge(RidgeCV(RIDGES).fit(together, all_targets).alpha_)
    else:
        models = [_logistic(*pair) for pair in zip(features, targets, strict=True)]
        groups = np.repeat(np.arange(len(parts)), [len(part) for part in targets])
        folds = list(LeaveOneGroupOut().split(together, all_targets, groups))
        pooled = LogisticRegression(
            C=float(np.ravel(_logistic(together, all_targets, folds).C_)[0]), max_iter=300, tol=1e-3
        )
    return Sources(models, features, targets, pooled, mean, scale)


def _logistic(features: Array, targets: Array, folds: Any = 5) -> LogisticRegressionCV:
    return LogisticRegressionCV(
        Cs=INVERSE_RIDGES, cv=folds, scoring="neg_log_loss", l1_ratios=(0,), max_iter=300, tol=1e-3,
        use_legacy_attributes=False,
    ).fit(features, targets)  # fmt: skip


@dataclass(frozen=True)
class Resample:
    """Numbers of the examples of a target domain: to learn from by how many, to test on, and all but these."""

    support: Mapping[int, Array]
    test: Array
    train: Array


def draw_resample(domain: Domain, seed: Sequence[int], sizes: Sequence[int], stratified: bool) -> Resample:
    """Split the target's examples and draw some to learn from.

    Args:
        domain: where all examples serve the sources too, all serve the target: it is a source of other targets only.
        seed: of this resample.
        sizes: how many to learn from; a larger set holds the smaller ones where they are not stratified.
        stratified: as many of each class as its share asks for, but at least two (one where there are not enough).
    """
    generator = np.random.default_rng(seed)
    own = np.flatnonzero(~domain.for_sources) if not domain.for_sources.all() else np.arange(len(domain.targets))
    order = generator.permutation(own)
    n_test = min(int(TEST_SHARE * len(order)), MOST_TEST_EXAMPLES)
    test, train = order[:n_test], order[n_test:]
    if not stratified:
        return Resample({size: train[:size] for size in sizes}, test, train)
    classes = domain.targets[train]
    return Resample({size: train[_stratified(classes, size)] for size in sizes}, test, train)


def _stratified(classes: Array, size: int) -> Array:
    """Positions, in their order: `size` in all, shared among the classes by largest remainder."""
    kinds, counts = np.unique(classes, return_counts=True)
    fewest = min(2, size // len(kinds))
    share = fewest + counts / counts.sum() * (size - fewest * len(kinds))
    wanted = np.floor(share).astype(int)
    wanted[np.argsort(wanted - share, kind="stable")[: size - wanted.sum()]] += 1
    return np.sort(np.concatenate([np.flatnonzero(classes == kind)[:n] for kind, n in zip(kinds, wanted, strict=True)]))


def score(predicted: Array, targets: Array, is_classification: bool) -> dict[str, float]:
    if is_classification:
        return {"score": float(np.mean(predicted.argmax(axis=1) == targets)), "loss": log_loss(predicted, targets)}
    return {"score": float(np.sqrt(np.mean((predicted - targets) ** 2)))}


def run(study: Study, sizes: Sequence[int], n_resamples: int, path: Path) -> Rows:
    """Scores of every method, target, resample and number of examples; kept line by line, so that a run can go on."""
    done = {_key(row): row for row in _stored(path)}
    domains = study.load()
    held = {name: fit_sources(domains, name, study.is_classification) for name in domains}
    path.parent.mkdir(parents=True, exist_ok=True)
    with stage(study.name, n_resamples * len(domains) * len(sizes)) as tick, path.open("a") as file:
        for number in range(n_resamples):
            for position, (name, domain) in enumerate(domains.items()):
                resample = draw_resample(domain, (position, number), SIZES, study.is_classification)
                for size in sizes:
                    for row in _scores(study, domain, held[name], resample, size, done, (name, number)):
                        done[_key(row)] = row
                        file.write(json.dumps(row) + "\n")
                        file.flush()
                    tick()
    return [row for row in done.values() if row["resample"] < n_resamples and row["n"] in sizes]


def _scores(
    study: Study, domain: Domain, sources: Sources, resample: Resample, size: int, done: Mapping[Any, Any],
    label: tuple[str, int],
) -> Iterator[dict[str, Any]]:  # fmt: skip
    support = resample.support[size]
    features = sources.scaled(domain.features)
    data = Transfer(
        features[support], domain.targets[support], sources.models, sources.features, sources.targets, sources.pooled
    )
    whole = Transfer(features[resample.train], domain.targets[resample.train], [], [], [], None)
    cases = {name: (method, data) for name, method in study.methods.items()}
    cases[ORACLE] = study.methods["ridge"], whole
    for name, (method, given) in cases.items():
        row = {"domain": label[0], "resample": label[1], "n": size, "method": name}
        other = next((done[key] for other in SIZES if (key := (*label, other, name)) in done), None)
        if _key(row) in done:
            continue
        if name == ORACLE and other is not None:  # it does not depend on n
            yield other | row
            continue
        start = time.process_time()
        predicted = method(given)(features[resample.test])
        row["seconds"] = time.process_time() - start
        yield row | score(predicted, domain.targets[resample.test], study.is_classification)


def _key(row: Mapping[str, Any]) -> tuple[str, int, int, str]:
    return row["domain"], row["resample"], row["n"], row["method"]


def _stored(path: Path) -> Rows:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


Values = Mapping[tuple[str, int], float]


def clustered_mean(values: Values, seed: int = 0, n_draws: int = 2000) -> dict[str, float]:
    """Mean over domains of the means over resamples, with a 95 % interval that redraws domains, then resamples."""
    names = sorted({domain for domain, _ in values})
    groups = [np.array([value for (domain, _), value in values.items() if domain == name]) for name in names]
    generator = np.random.default_rng(seed)
    draws = [
        np.mean([generator.choice(groups[index], len(groups[index])).mean() for index in chosen])
        for chosen in generator.integers(len(groups), size=(n_draws, len(groups)))
    ]
    low, high = np.quantile(draws, [0.025, 0.975])
    return {"mean": float(np.mean([group.mean() for group in groups])), "low": float(low), "high": float(high)}


def by_method(rows: Rows, size: int, field: str = "score") -> dict[str, dict[tuple[str, int], float]]:
    found: dict[str, dict[tuple[str, int], float]] = {}
    for row in rows:
        if row["n"] == size and field in row:
            found.setdefault(row["method"], {})[row["domain"], row["resample"]] = row[field]
    return found


def score_table(rows: Rows, sizes: Sequence[int], field: str) -> Rows:
    """Mean of every method at every n."""
    return [
        {"n": size, "method": method, "resamples": len(values), **clustered_mean(values)}
        for size in sizes
        for method, values in by_method(rows, size, field).items()
    ]


def differences(rows: Rows, sizes: Sequence[int], is_classification: bool) -> Rows:
    """How much better Smatter is than each other method, on the same resamples; positive is better."""
    sign = 1 if is_classification else -1
    table = []
    for size in sizes:
        found = by_method(rows, size)
        for ours in (SMATTER, SMATTER_MIXTURE):
            for other, theirs in found.items():
                if other == ours:
                    continue
                both = {key: sign * (value - theirs[key]) for key, value in found[ours].items()}
                base = float(np.mean(list(theirs.values())))
                wins = float(np.mean([value > 0 for value in both.values()]))
                table.append(
                    {"n": size, "ours": ours, "other": other, "resamples": len(both), **clustered_mean(both),
                     "relative": float(np.mean(list(both.values()))) / base, "share_better": wins}
                )  # fmt: skip
    return table


def figures_of(name: str, table: Rows) -> dict[str, float]:
    """How much lower Smatter's error, or higher its accuracy, is than ridge's and than the best peer's.

    The best peer is the one with the best score at that n: with hindsight, which a user does not have.
    """
    figures = {}
    for ours, label in ((SMATTER, ""), (SMATTER_MIXTURE, "_mixture_only")):
        for size in (10, 50, 200):
            rows = {row["other"]: row for row in table if row["n"] == size and row["ours"] == ours}
            peers = {other: row for other, row in rows.items() if "smatter" not in other and other != ORACLE}
            if peers:
                best = min(peers.values(), key=lambda row: row["mean"])
                for peer, row in (("ridge", peers["ridge"]), ("best_peer", best)):
                    for key, value in (("", row["mean"]), ("_low", row["low"]), ("_high", row["high"])):
                        figures[f"{name}{label}_gain_over_{peer}_n{size}{key}"] = value
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two resamples and two sizes, in about a minute")
    parser.add_argument("--resume", action="store_true", help="keep the scores of an interrupted run")
    parser.add_argument("--only", choices=[study.name for study in STUDIES], help="one data set; writes no result")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    spent, figures, tables = 0.0, {}, {}
    for study in STUDIES:
        if arguments.only not in (None, study.name):
            continue
        sizes = SIZES[: 2 if arguments.quick else None]
        path = SCRATCH / "linear_transfer" / f"{study.name}{'.quick' if arguments.quick else ''}.jsonl"
        if not arguments.resume:
            path.unlink(missing_ok=True)
        rows = run(study, sizes, 2 if arguments.quick else study.n_resamples, path)
        spent += sum(row["seconds"] for row in rows if row["method"] != ORACLE)  # also before a run was resumed
        table = differences(rows, sizes, study.is_classification)
        scores = score_table(rows, sizes, "score")
        tables |= {
            f"{study.name}_scores": scores,
            f"{study.name}_differences": table,
            f"{study.name}_seconds": seconds(rows),
        }
        if study.is_classification:
            tables[f"{study.name}_log_loss"] = score_table(rows, sizes, "loss")
        figures |= figures_of(study.name, table)
        show(study.name, scores)
        show(f"{study.name}: by how much Smatter is better", table)
        if not arguments.quick:
            IMAGES.mkdir(parents=True, exist_ok=True)
            (IMAGES / f"linear-{study.name}.svg").write_text(draw(scores, study.is_classification))
    if not arguments.only:
        packages = ("smatter", "scikit-learn", "numpy", "torch")
        print(write_result("linear_transfer", figures, tables, machine(packages, 1), spent, arguments.quick))


def seconds(rows: Rows) -> Rows:
    """Median processor time of one fit and its predictions."""
    groups: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        if row["method"] != ORACLE:
            groups.setdefault((row["method"], row["n"]), []).append(row["seconds"])
    return [{"method": method, "n": n, "seconds": float(np.median(group))} for (method, n), group in groups.items()]


if __name__ == "__main__":
    main()
