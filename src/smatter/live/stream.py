"""Predictions of inputs one chunk after another; one that cannot be read does not cost the others theirs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from smatter.errors import InvalidSupport, NotFound
from smatter.live.model import TaskModel
from smatter.live.predictions import Prediction
from smatter.tasks.inputs import Input, one_line


@dataclass(frozen=True)
class Answer:
    """What came of one input.

    Args:
        name: of the input.
        prediction: its class; None where there is none.
        error: why there is none, in one line.
    """

    name: str
    prediction: Prediction | None
    error: str = ""

    @classmethod
    def of(cls, name: str, prediction: Prediction | None, error: str = "") -> Answer:
        """The answer for an input; a prediction that is no number is none."""
        if prediction is not None and not bool(prediction.probabilities.isfinite().all()):
            return cls(name, None, "the network's scores for it are not numbers; adapt again, with other weights")
        return cls(name, prediction, error)


def predict_stream(model: TaskModel, inputs: Iterable[Input]) -> Iterator[tuple[Answer, ...]]:
    """Predict a chunk of inputs at a time, in their order; no input is asked for before its chunk.

    Where all can be read, predictions have the bits that `model.predict` gives for a list of the inputs.
    """
    waiting = iter(inputs)
    while chunk := tuple(islice(waiting, model.n_at_once)):
        yield _answers(model, chunk)


def _answers(model: TaskModel, chunk: Sequence[Input]) -> tuple[Answer, ...]:
    read = [read_input(model, each) for each in chunk]
    found = iter(model.predict([value for value, error in read if not error]))
    return tuple(
        Answer.of(each.name, None if error else next(found), error)
        for each, (_, error) in zip(chunk, read, strict=True)
    )


def read_input(model: TaskModel, given: Input) -> tuple[Any, str]:
    """What the model takes of an input, or why it cannot be read; only decoding shows that a picture is damaged."""
    if given.error or not isinstance(given.value, Path):
        return given.value, given.error
    try:
        return model.pixels(given.value), ""
    except (InvalidSupport, NotFound) as error:
        return None, one_line(error)
