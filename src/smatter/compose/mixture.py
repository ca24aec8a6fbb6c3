"""Mixture weights: one w for the whole network, or one per module (multi-source paper, sections 3 and 9)."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from smatter.errors import InvalidWeights, UnknownModule

Rule = Literal["simplex", "arithmetic"]

SIMPLEX_TOLERANCE = 1e-6
"""How far from one a sum of weights may be before it counts as a mistake and not as rounding."""

LARGEST = 1e30
"""Coefficients are float32 in the arithmetic; beyond this even task arithmetic is a mistake."""


@dataclass(frozen=True)
class Mixture:
    """Coefficients of the sources, for all modules alike or a row per module.

    Args:
        sources: names of the sources, one per column.
        rows: coefficients, a row per module or a single row; (1 or n_modules, n_sources).
        modules: names of the rows; empty when one row serves all modules.
        rule: `simplex` keeps every row on the probability simplex. `arithmetic` allows any finite
            coefficients: extrapolation, asked for by name.

    >>> Mixture.of({"law": 0.7, "code": 0.3}).coefficient("any.module", "law")
    0.7
    >>> Mixture.of({"law": 0.7, "code": 0.5})
    Traceback (most recent call last):
    smatter.errors.InvalidWeights: weights sum to 1.2, not 1: divide them by their sum, or ask for task arithmetic
    """

    sources: tuple[str, ...]
    rows: tuple[tuple[float, ...], ...]
    modules: tuple[str, ...] = ()
    rule: Rule = "simplex"

    def __post_init__(self) -> None:
        if self.rule not in ("simplex", "arithmetic"):
            raise InvalidWeights(f"unknown rule {self.rule!r}: use 'simplex' or 'arithmetic'")
        if not self.sources:
            raise InvalidWeights("no source has a weight: name at least one")
        for kind, names in (("source", self.sources), ("module", self.modules)):
            if len(set(names)) != len(names):
                raise InvalidWeights(f"a {kind} is named twice in {list(names)}")
        if len(self.rows) != max(1, len(self.modules)):
            raise InvalidWeights(f"{len(self.rows)} rows of weights for {len(self.modules)} modules")
        for index, row in enumerate(self.rows):
            where = f" in module {self.modules[index]!r}" if self.modules else ""
            _check_row(row, len(self.sources), self.rule, where)

    @classmethod
    def of(cls, weights: Mapping[str, float]) -> "Mixture":
        """One weight per source for the whole network; they must lie on the simplex."""
        return cls(tuple(weights), (tuple(map(float, weights.values())),))

    @classmethod
    def per_module(cls, weights: Mapping[str, Mapping[str, float]], rule: Rule = "simplex") -> "Mixture":
        """Weights of each module apart; a source that a module does not name has weight zero there."""
        sources = tuple(dict.fromkeys(source for row in weights.values() for source in row))
        rows = tuple(tuple(float(row.get(source, 0.0)) for source in sources) for row in weights.values())
        return cls(sources, rows, tuple(weights), rule)

    @classmethod
    def arithmetic(cls, coefficients: Mapping[str, float]) -> "Mixture":
        """Any linear combination, on or off the simplex."""
        return cls(tuple(coefficients), (tuple(map(float, coefficients.values())),), rule="arithmetic")

    @classmethod
    def task_arithmetic(cls, base: str, weights: Mapping[str, float], scale: float = 1.0) -> "Mixture":
        """Base plus scaled task vectors: base + scale * sum_r w_r (source_r - base).

        >>> Mixture.task_arithmetic("base", {"law": 0.5, "code": 0.75}).rows
        ((-0.25, 0.5, 0.75),)
        """
        scaled = {name: scale * float(weight) for name, weight in weights.items() if name != base}
        _check_finite(tuple(scaled.values()), "")
        return cls.arithmetic({base: 1.0 - math.fsum(scaled.values())} | scaled)

    def coefficient(self, module: str, source: str) -> float:
        """The coefficient of a source in a module."""
        return self.row(module)[self.sources.index(source)]

    def row(self, module: str) -> tuple[float, ...]:
        """The coefficients of a module, in the order of `sources`."""
        if not self.modules:
            return self.rows[0]
        try:
            return self.rows[self.modules.index(module)]
        except ValueError:
            raise UnknownModule(f"the mixture has no weights for module {module!r}: give every module a row") from None

    @property
    def mean_weights(self) -> dict[str, float]:
        """The coefficient of each source, mean over the rows."""
        columns = zip(*self.rows, strict=True)
        return {name: sum(column) / len(column) for name, column in zip(self.sources, columns, strict=True)}

    def without_idle(self) -> "Mixture":
        """The same without the sources that have no weight anywhere."""
        kept = [number for number, column in enumerate(zip(*self.rows, strict=True)) if any(column)]
        rows = tuple(tuple(row[column] for column in kept) for row in self.rows)
        return Mixture(tuple(self.sources[column] for column in kept), rows, self.modules, self.rule)

    def with_idle(self, names: Iterable[str]) -> "Mixture":
        """The same with these sources named too, without weight where they have none."""
        new = tuple(name for name in dict.fromkeys(names) if name not in self.sources)
        if not new:
            return self
        rows = tuple((*row, *(0.0 for _ in new)) for row in self.rows)
        return Mixture((*self.sources, *new), rows, self.modules, self.rule)

    @property
    def active_sources(self) -> tuple[str, ...]:
        """Sources with a coefficient other than zero somewhere."""
        return tuple(
            name for name, column in zip(self.sources, zip(*self.rows, strict=True), strict=True) if any(column)
        )


def read_weights(text: str) -> dict[str, float]:
    """`a=.7,b=.3` as a mapping.

    >>> read_weights("a=.7,b=.3")
    {'a': 0.7, 'b': 0.3}
    """
    result: dict[str, float] = {}
    for pair in text.split(","):
        name, separator, value = pair.strip().rpartition("=")
        try:
            if not separator or not name or name in result:
                raise ValueError
            result[name] = float(value)
        except ValueError:
            message = f"{pair.strip()[:80]!r} in {text[:80]!r} is not one source=weight; write A=.7,B=.3"
            raise InvalidWeights(message) from None
    return result


def _check_row(row: tuple[float, ...], n_sources: int, rule: Rule, where: str) -> None:
    if len(row) != n_sources:
        raise InvalidWeights(f"{len(row)} weights for {n_sources} sources{where}")
    _check_finite(row, where)
    if rule == "arithmetic":
        return
    if min(row) < 0:
        raise InvalidWeights(f"weight {min(row):g}{where} is negative: use weights >= 0, or ask for task arithmetic")
    total = math.fsum(row)
    if abs(total - 1) > SIMPLEX_TOLERANCE:
        raise InvalidWeights(
            f"weights sum to {total:.9g}{where}, not 1: divide them by their sum, or ask for task arithmetic"
        )


def _check_finite(row: tuple[float, ...], where: str) -> None:
    if not all(abs(weight) < LARGEST for weight in row):  # also rejects NaN
        raise InvalidWeights(f"weights {list(row)}{where} are not all finite numbers below {LARGEST:g}")
