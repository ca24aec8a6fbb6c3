"""All shifts by name, so that a list of tasks can say what is done to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, ClassVar, Protocol

import numpy as np

from smatter.errors import InvalidSuite
from smatter.tasks.episode import Episode
from smatter.tasks.shifts.classes import MissingClasses, SpuriousClasses, StyleMismatch
from smatter.tasks.shifts.colours import ColourJitter, Grayscale
from smatter.tasks.shifts.corruptions import Blur, GaussianNoise, Jpeg, LowContrast, Occlusion
from smatter.tasks.shifts.cue import SpuriousCue
from smatter.tasks.shifts.labels import LabelNoise
from smatter.tasks.shifts.renderings import GrayOnColour, Halftone, Inverted, Outline, TexturedBackground
from smatter.tasks.shifts.safety import ForbiddenClass, ForbiddenDomain
from smatter.tasks.shifts.shapes import Perspective, StrokeThickness, StrongRotation
from smatter.tasks.shifts.shots import Imbalance, NearDuplicates, Outliers
from smatter.tasks.shifts.texts import Casing, Template, Typos
from smatter.tasks.shifts.wear import Worn


class Shift(Protocol):
    """Something that happens to a task between the world and the method; a frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __call__(self, episode: Episode, generator: np.random.Generator) -> Episode:
        """The task afterwards."""
        ...


SHIFTS: dict[str, type[Shift]] = {
    "label-noise": LabelNoise,
    "gaussian-noise": GaussianNoise,
    "blur": Blur,
    "jpeg": Jpeg,
    "occlusion": Occlusion,
    "low-contrast": LowContrast,
    "worn": Worn,
    "grayscale": Grayscale,
    "colour-jitter": ColourJitter,
    "outliers": Outliers,
    "near-duplicates": NearDuplicates,
    "imbalance": Imbalance,
    "missing-classes": MissingClasses,
    "spurious-classes": SpuriousClasses,
    "style-mismatch": StyleMismatch,
    "spurious-cue": SpuriousCue,
    "inverted": Inverted,
    "outline": Outline,
    "textured-background": TexturedBackground,
    "strong-rotation": StrongRotation,
    "gray-on-colour": GrayOnColour,
    "halftone": Halftone,
    "stroke-thickness": StrokeThickness,
    "perspective": Perspective,
    "template": Template,
    "casing": Casing,
    "typos": Typos,
    "forbidden-class": ForbiddenClass,
    "forbidden-domain": ForbiddenDomain,
}


def apply(shifts: Sequence[Shift], episode: Episode, generator: np.random.Generator) -> Episode:
    """One shift after the other."""
    for shift in shifts:
        episode = shift(episode, generator)
    return episode


def table_of(shift: Shift) -> dict[str, str | int | float]:
    """A shift as a list of tasks stores it."""
    names = {kind: name for name, kind in SHIFTS.items()}
    return {"shift": names[type(shift)], **asdict(shift)}


def parse_shifts(tables: Sequence[Mapping[str, str | int | float]]) -> tuple[Shift, ...]:
    """Shifts as they were stored."""
    return tuple(_parse(table) for table in tables)


def _parse(table: Mapping[str, str | int | float]) -> Shift:
    settings = dict(table)
    name = settings.pop("shift", None)
    if name not in SHIFTS:
        raise InvalidSuite(f"unknown shift {str(name)[:80]!r}: use one of {', '.join(SHIFTS)}")
    try:
        return SHIFTS[str(name)](**settings)
    except TypeError:
        known = ", ".join(field.name for field in fields(SHIFTS[str(name)]))
        raise InvalidSuite(f"shift {name!r} does not take {', '.join(settings)[:200]}: it takes {known}") from None
