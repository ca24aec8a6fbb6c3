"""Scores of methods on the same tasks: means with intervals, paired differences, and which method to use."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from smatter.compose.records import Number
from smatter.evaluate.contenders import AVERAGE, BASE
from smatter.evaluate.trials import Trial
from smatter.scores.intervals import Interval, clustered_interval

Values = Sequence[np.ndarray[Any, np.dtype[np.float64]]]
"""A number for each query of each task."""


COLUMNS = ("method", "accuracy", "over the base", "over the average", "loss", "seconds", "passes", "per query")

SMALL = 0.01
"""A lead of this share of the queries is not worth more passes, unless it is sure."""


class Score(BaseModel):
    """How a method did on one task.

    Args:
        named: the class that it gave each query, as an index into the task's class names.
        losses: minus the logarithm of the probability that it gave each query's own class.
        seconds: that adapting took, the head included.
        forwards: passes of all examples through a network that adapting took.
        backwards: those with a gradient.
        query_passes: of each query.
        briers: half of the squared distance of the probabilities from each query's own class, in [0, 1].
        uncertainty: of the routing, by the name of the score.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    named: tuple[int, ...]
    losses: tuple[Number, ...]
    seconds: Number
    forwards: int
    backwards: int
    query_passes: Number
    briers: tuple[Number, ...] = ()
    uncertainty: dict[str, Number] = {}


@dataclass(frozen=True)
class Scored:
    """A task without its examples: what scores are read with."""

    name: str
    domain: str
    class_names: tuple[str, ...]
    truth: tuple[int, ...]
    places: tuple[int, ...]

    @classmethod
    def of(cls, trial: Trial) -> Scored:
        """Forget the examples."""
        return cls(trial.name, trial.domain, trial.support.class_names, trial.truth, trial.places)

    def hits(self, score: Score) -> np.ndarray[Any, np.dtype[np.float64]]:
        """1 for each query that is named as it should be, else 0."""
        return np.equal(score.named, self.truth).astype(np.float64)


@dataclass(frozen=True)
class Standing:
    """A method among others.

    Args:
        name: of the method.
        failure: why it has no scores; all else is empty then.
        accuracy: share of a task's queries that it names, mean over tasks.
        loss: mean over tasks of the mean loss of a query.
        over_base: its accuracy minus that of the base, task by task.
        over_average: its accuracy minus that of the plain average of all sources.
        seconds: to adapt to a task, median.
        example_passes: of all examples to adapt to a task, mean; a pass with a gradient counts as three.
        query_passes: of a query, mean.
    """

    name: str
    failure: str = ""
    accuracy: Interval | None = None
    loss: float | None = None
    over_base: Interval | None = None
    over_average: Interval | None = None
    seconds: float | None = None
    example_passes: float | None = None
    query_passes: float | None = None

    @property
    def cost(self) -> tuple[float, float]:
        """What is cheaper is before; queries count first, because there will be more of them."""
        return self.query_passes or 0.0, self.example_passes or 0.0

    @property
    def cells(self) -> list[str]:
        """Its row of a table with the columns `COLUMNS`."""
        paired = [points(each) for each in (self.accuracy, self.over_base, self.over_average)]
        numbers = [f"{self.loss:.3f}", f"{self.seconds:.2f}", f"{self.example_passes:.3g}", f"{self.query_passes:.3g}"]
        return [self.name, *paired, *numbers]

    @property
    def rank(self) -> tuple[float, tuple[float, float], str]:
        """The most accurate is before, the cheaper of equals, and who failed last."""
        return -self.accuracy.mean if self.accuracy else math.inf, self.cost, self.name


@dataclass(frozen=True)
class Recommendation:
    """Which method to use.

    Args:
        name: the method.
        is_clear: whether it is better than every other beyond what luck does.
        told: why, and how sure that is.
    """

    name: str
    is_clear: bool
    told: str


@dataclass(frozen=True)
class Comparison:
    """Methods on the same tasks.

    Args:
        told: what the tasks are.
        tasks: in order.
        scores: of each method on each task, or why there is none.
    """

    told: str
    tasks: tuple[Scored, ...]
    scores: Mapping[str, Sequence[Score | str]]

    @property
    def unit(self) -> str:
        """What intervals are over: what could have been others."""
        if len({task.domain for task in self.tasks}) > 1:
            return "domains"
        if len(self.tasks) == 1:
            return "queries"
        return "splits and examples" if self.tasks[0].places else "tasks"

    @cached_property
    def complete(self) -> dict[str, list[Score]]:
        """The scores of each method that has one on every task."""
        found = {name: [each for each in scores if isinstance(each, Score)] for name, scores in self.scores.items()}
        return {name: scores for name, scores in found.items() if len(scores) == len(self.tasks)}

    def hits(self, name: str) -> Values:
        """Which queries of each task a method names as it should."""
        return [task.hits(score) for task, score in zip(self.tasks, self.complete[name], strict=True)]

    def interval(self, values: Values) -> Interval:
        """The mean over tasks, and its interval over domains, tasks or, of a single task, queries.

        Splits of the same examples differ less than new examples would: the interval over splits is compared with the
        one over examples, whose values of all splits go together, and the wider one is taken.
        """
        means = [float(each.mean()) for each in values]
        if self.unit == "domains":
            return clustered_interval(means, [task.domain for task in self.tasks])
        if self.unit == "queries":
            return clustered_interval(values[0].tolist(), range(len(values[0])))
        over_tasks = clustered_interval(means, range(len(means)))
        if self.unit == "tasks":
            return over_tasks
        places = [place for task in self.tasks for place in task.places]
        over_examples = clustered_interval(np.concatenate(values).tolist(), places)
        return max(over_tasks, over_examples, key=lambda interval: interval.half)

    def lead(self, first: str, second: str) -> Interval:
        """Accuracy of the first method minus that of the second, query by query."""
        pairs = zip(self.hits(first), self.hits(second), strict=True)
        return self.interval([one - other for one, other in pairs])

    @cached_property
    def standings(self) -> list[Standing]:
        """All methods, the most accurate first, those that failed last."""
        complete = self.complete
        return sorted((self._standing(name, complete) for name in self.scores), key=lambda each: each.rank)

    def _standing(self, name: str, complete: Mapping[str, Sequence[Score]]) -> Standing:
        if name not in complete:
            reasons = [each for each in self.scores[name] if isinstance(each, str)]
            return Standing(name, f"failed on {len(reasons)} of {len(self.tasks)} tasks: {reasons[0]}")
        scores = complete[name]
        return Standing(
            name,
            accuracy=self.interval(self.hits(name)),
            loss=statistics.fmean(statistics.fmean(each.losses) for each in scores),
            over_base=self.lead(name, BASE) if BASE in complete and name != BASE else None,
            over_average=self.lead(name, AVERAGE) if AVERAGE in complete and name != AVERAGE else None,
            seconds=statistics.median(each.seconds for each in scores),
            example_passes=statistics.fmean(each.forwards + 3 * each.backwards for each in scores),
            query_passes=statistics.fmean(each.query_passes for each in scores),
        )

    def choose(self) -> Recommendation | None:
        """The most accurate method if it is clearly so, else the cheapest that is about as good.

        That is at most one point behind, and at most one standard error (Breiman and others, 1984).
        """
        sound = [each for each in self.standings if not each.failure]
        if not sound:
            return None
        best, *others = sound
        if not others:
            return Recommendation(best.name, False, f"{best.name} is the only method that did not fail")
        closest = min((self.lead(best.name, each.name) for each in others), key=lambda lead: lead.low)
        runner_up, lead = others[0].name, self.lead(best.name, others[0].name)
        if lead.mean > 0:
            ahead = f"{best.name} is ahead of {runner_up} by {points(lead)} points"
        else:
            ahead = f"{best.name} and {runner_up} are equally accurate, and the first is no dearer"
        if closest.low > 0:
            return Recommendation(best.name, True, f"{ahead}: more than luck does")
        equals = [each for each in others if _is_as_good(self.lead(best.name, each.name))]
        name = min((best, *equals), key=lambda each: (each.cost, each.rank)).name
        told = f"{ahead}: luck may do that" if lead.mean > 0 else ahead
        if name != best.name:
            told += f"; {name} is the cheapest of those that are about as good"
        return Recommendation(name, False, told)

    def to_dict(self) -> dict[str, Any]:
        """All of it but single queries, for machines."""
        names = {"accuracy", "over_base", "over_average"}
        rows = [
            {key: _plain(value) if key in names else value for key, value in vars(each).items()}
            for each in self.standings
        ]
        tasks = [
            {
                "name": task.name,
                "domain": task.domain,
                "n_queries": len(task.truth),
                "accuracy": {name: float(task.hits(scores[index]).mean()) for name, scores in self.complete.items()},
            }
            for index, task in enumerate(self.tasks)
        ]
        choice = self.choose()
        return {
            "data": self.told,
            "n_tasks": len(self.tasks),
            "n_queries": sum(len(task.truth) for task in self.tasks),
            "intervals_over": self.unit,
            "methods": rows,
            "choice": choice and vars(choice),
            "tasks": tasks,
        }


def points(interval: Interval | None) -> str:
    """A share, or a difference of shares, in percent with half its interval."""
    if interval is None:
        return "-"
    half = f"± {100 * interval.half:.1f}" if math.isfinite(interval.half) else "± unknown"
    return f"{100 * interval.mean:.1f} {half}"


def _is_as_good(lead: Interval) -> bool:
    """Whether a lead is small, and at most about one standard error: half of half a 95 % interval."""
    return lead.mean <= min(SMALL, lead.half / 2)


def _plain(interval: Interval | None) -> dict[str, float | None] | None:
    """An interval for JSON, which has no infinity."""
    if interval is None:
        return None
    return {key: value if math.isfinite(value) else None for key, value in vars(interval).items()}
