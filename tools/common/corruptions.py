"""What goes wrong in the corrupted lists of Signs, by the names that lists have.

A number at the end is a severity, or a rate in tenths. Pictures go wrong in the support alone.
"""

from renderings import WEAR

from smatter.tasks.shifts.catalogue import SHIFTS, Shift
from smatter.tasks.shifts.classes import MissingClasses, StyleMismatch
from smatter.tasks.shifts.colours import ColourJitter, Grayscale
from smatter.tasks.shifts.cue import SpuriousCue
from smatter.tasks.shifts.labels import LabelNoise
from smatter.tasks.shifts.renderings import Inverted, Outline
from smatter.tasks.shifts.shots import Imbalance, NearDuplicates, Outliers

CORRUPTIONS: dict[str, Shift] = {
    "label-noise-1": LabelNoise(0.1), "label-noise-4": LabelNoise(0.4),
    "label-pairs-1": LabelNoise(0.1, "pairs"), "label-pairs-4": LabelNoise(0.4, "pairs"),
    **{f"{name}-{severity}": SHIFTS[name](target="support", severity=severity)
       for name in ("gaussian-noise", "blur", "jpeg", "occlusion", "low-contrast") for severity in (3, 5)},
    "inverted": Inverted("support"), "outline": Outline("support"),
    "grayscale": Grayscale("support"), "colour-jitter-5": ColourJitter("support", 5),
    "imbalance-2": Imbalance(ratio=0.2), "imbalance-total-2": Imbalance(ratio=0.2, keep_total=True),
    "outliers-2": Outliers(rate=0.2), "outliers-4": Outliers(rate=0.4), "near-duplicates": NearDuplicates(),
    "style-mismatch": StyleMismatch(), "missing-classes": MissingClasses(), "spurious-cue": SpuriousCue(),
}  # fmt: skip


def corrupted(name: str) -> tuple[Shift, ...]:
    """The shifts of a list: what goes wrong happens to pictures that are worn already.

    So wear takes the same random numbers as in the clean list, and pictures that stay as they are, the queries above
    all, are its pictures bit for bit. Outlines alone are drawn before, since they would be those of the grain; they
    take no random numbers.
    """
    shift = CORRUPTIONS[name]
    return (shift, WEAR) if isinstance(shift, Outline) else (WEAR, shift)
