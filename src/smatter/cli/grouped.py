"""Commands that take records of options, so that thirty options are a handful of nouns."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")


def grouped(command: Callable[..., T]) -> Callable[..., T]:
    """A command whose parameters may be frozen records: each field of a record becomes an option of its own.

    Args:
        command: a function for typer; the fields of its records are annotated as typer wants parameters.
    """
    hints = get_type_hints(command, include_extras=True)
    records: dict[str, Any] = {name: kind for name, kind in hints.items() if name != "return" and is_dataclass(kind)}

    @wraps(command)
    def flat(**given: Any) -> T:
        own = {
            name: record(**{each.name: given.pop(each.name) for each in fields(record)})
            for name, record in records.items()
        }
        return command(**given, **own)

    parameters = []
    for name, parameter in inspect.signature(command).parameters.items():
        parameters += _spread(records[name]) if name in records else [parameter.replace(annotation=hints[name])]
    flat.__signature__ = inspect.Signature([_named(each) for each in parameters])  # type: ignore[attr-defined]
    flat.__annotations__ = {each.name: each.annotation for each in parameters}
    return flat


def _spread(record: Any) -> list[inspect.Parameter]:
    """Fields of a record as parameters."""
    kinds = get_type_hints(record, include_extras=True)
    empty = inspect.Parameter.empty
    return [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=empty if each.default is MISSING else each.default,
            annotation=kinds[each.name],
        )
        for each in fields(record)
    ]


def _named(parameter: inspect.Parameter) -> inspect.Parameter:
    """The same parameter, given by name alone: then those with a default may stand before those without."""
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
