"""Means, intervals and the choice, against scipy and by hand."""

import json
import math

import numpy as np
import pytest
from scipy.stats import t, ttest_1samp

from smatter.evaluate.compare import Comparison, Score, Scored, points
from smatter.scores.intervals import Interval


def task(n_queries: int, name: str = "t", domain: str = "", places: tuple[int, ...] = ()) -> Scored:
    return Scored(name, domain, ("a", "b"), (0,) * n_queries, places)


def score(hits: list[int], **facts: float) -> Score:
    told = {"seconds": 1.0, "forwards": 1, "backwards": 0, "query_passes": 1.0} | facts
    return Score(named=tuple(1 - hit for hit in hits), losses=(0.5,) * len(hits), **told)


def compared(tasks: list[Scored], **methods: list[list[int]]) -> Comparison:
    return Comparison("some", tuple(tasks), {name: [score(each) for each in hits] for name, hits in methods.items()})


def test_a_single_task_has_intervals_over_queries() -> None:
    generator = np.random.default_rng(0)
    base, average = generator.integers(0, 2, (2, 40)).tolist()
    found = compared([task(40)], base=[base], average=[average])
    assert found.unit == "queries"
    difference = np.subtract(average, base)
    wanted = ttest_1samp(difference, 0).confidence_interval()
    lead = found.lead("average", "base")
    assert (lead.low, lead.high) == pytest.approx((wanted.low, wanted.high))


def test_several_tasks_have_intervals_over_tasks_and_count_alike() -> None:
    tasks = [task(4), task(2), task(10)]
    hits = [[1, 1, 1, 0], [0, 0], [1] * 5 + [0] * 5]
    found = compared(tasks, base=hits, average=[[0] * len(each) for each in hits])
    assert found.unit == "tasks"
    wanted = ttest_1samp([0.75, 0.0, 0.5], 0).confidence_interval()
    standing = next(each for each in found.standings if each.name == "base")
    assert standing.accuracy is not None and standing.accuracy == standing.over_average
    assert (standing.accuracy.low, standing.accuracy.high) == pytest.approx((wanted.low, wanted.high))


def test_several_domains_are_what_could_have_been_others() -> None:
    tasks = [task(2, domain=name) for name in "aabb"]
    found = compared(tasks, base=[[1, 1], [1, 1], [0, 0], [0, 0]], average=[[0, 0]] * 4)
    accuracy = found.interval(found.hits("base"))
    assert found.unit == "domains" and accuracy.mean == 0.5
    # Two domains of accuracy 0 and 1: the standard error of their mean is 1 / 2.
    assert accuracy.half == pytest.approx(t.ppf(0.975, 1) * 0.5)


def test_splits_of_the_same_examples_do_not_make_many_of_few() -> None:
    """A hundred splits in which two hard queries are always missed know no more than two splits."""
    places = (0, 1, 2, 3)
    hits = [[1, 1, 0, 0]] * 100
    found = compared([task(4, places=places)] * 100, base=hits, average=[[0] * 4] * 100)
    assert found.unit == "splits and examples"
    wanted = ttest_1samp([1, 1, 0, 0], 0).confidence_interval()
    accuracy = found.interval(found.hits("base"))
    assert (accuracy.low, accuracy.high) == pytest.approx((wanted.low, wanted.high))
    # Examples that are all alike, and splits that are not: then splits are what varies.
    swings = [[1] * 4, [0] * 4] * 5
    found = compared([task(4, places=places)] * 10, base=swings, average=[[0] * 4] * 10)
    assert found.interval(found.hits("base")).half == pytest.approx(
        ttest_1samp([1, 0] * 5, 0).confidence_interval().high - 0.5
    )


def test_the_clear_winner_is_named() -> None:
    generator = np.random.default_rng(1)
    base = generator.integers(0, 2, (30, 10)).tolist()
    best = [[1] * 9 + [0]] * 30
    choice = compared([task(10)] * 30, base=base, average=base, solver=best).choose()
    assert choice is not None and choice.name == "solver" and choice.is_clear and "more than luck" in choice.told


@pytest.mark.parametrize(
    "n_base_alone, n_solver_alone, wanted, is_clear",
    [
        (2, 3, "base", False),  # a point behind, and luck does as much
        (5, 9, "solver", False),  # too far behind, though that may be luck
        (2, 40, "solver", True),
    ],
)
def test_what_is_about_as_good_and_cheaper_is_preferred(
    n_base_alone: int, n_solver_alone: int, wanted: str, is_clear: bool
) -> None:
    """Of 100 queries some are named by the base alone, some by the solver alone, and the others by both."""
    n_both = 100 - n_base_alone - n_solver_alone
    base = [1] * n_base_alone + [0] * n_solver_alone + [1] * n_both
    solver = [0] * n_base_alone + [1] * n_solver_alone + [1] * n_both
    scores = {
        "base": [score(base)],
        "average": [score([0, 1] * 50)],
        "solver": [score(solver, query_passes=6.0)],
    }
    choice = Comparison("some", (task(100),), scores).choose()
    assert choice is not None and (choice.name, choice.is_clear) == (wanted, is_clear)


def test_a_method_that_failed_has_no_place_and_harms_no_other() -> None:
    scores = {"base": [score([1, 0])] * 2, "average": [score([0, 0]), "ran away"], "solver": [score([1, 1])] * 2}
    found = Comparison("some", (task(2),) * 2, scores)
    assert [each.name for each in found.standings] == ["solver", "base", "average"]
    assert found.standings[-1].failure == "failed on 1 of 2 tasks: ran away"
    assert found.standings[0].over_average is None and found.standings[0].over_base is not None
    data = found.to_dict()
    assert data["tasks"][0]["accuracy"] == {"base": 0.5, "solver": 1.0}


def test_the_order_of_methods_does_not_matter() -> None:
    hits = {name: np.random.default_rng(seed).integers(0, 2, (3, 5)).tolist() for seed, name in enumerate("xyz")}
    methods = {"base": hits["x"], "average": hits["x"], **hits}
    one, other = (compared([task(5)] * 3, **dict(items)) for items in (methods.items(), reversed(methods.items())))
    assert one.to_dict()["methods"] == other.to_dict()["methods"] and one.choose() == other.choose()


def test_one_query_tells_nothing_and_is_valid_json() -> None:
    found = compared([task(1)], base=[[1]], average=[[1]])
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["methods"][0]["accuracy"] == {"mean": 1.0, "low": None, "high": None}
    assert points(Interval(0.5, -math.inf, math.inf)) == "50.0 ± unknown" and points(None) == "-"


def test_passes_with_a_gradient_count_as_three() -> None:
    scores = {"base": [score([1], forwards=2, backwards=4, seconds=3.0), score([1], seconds=1.0)]}
    (standing,) = Comparison("some", (task(1),) * 2, scores).standings
    assert standing.example_passes == (14 + 1) / 2 and standing.seconds == 2.0


def test_methods_that_do_the_same_are_told_so() -> None:
    choice = compared([task(4)], base=[[1, 0, 1, 1]], average=[[1, 0, 1, 1]], solver=[[0, 0, 1, 1]]).choose()
    assert choice is not None and choice.name == "average" and "equally accurate" in choice.told
