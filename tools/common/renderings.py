"""How the pictures of the frozen lists of Signs are changed, by the names that lists have."""

from smatter.tasks.shifts.catalogue import Shift
from smatter.tasks.shifts.renderings import GrayOnColour, Halftone, Inverted, Outline, TexturedBackground
from smatter.tasks.shifts.shapes import Perspective, StrokeThickness, StrongRotation
from smatter.tasks.shifts.wear import Worn

WEAR = Worn("both", 5)
"""Without it, letters of most scripts are too easy to tell apart for a network that knows the script."""

RENDERINGS: dict[str, Shift] = {
    "inverted": Inverted("both"), "outline": Outline("both"), "textured": TexturedBackground("both"),
    "rotated": StrongRotation("both"), "gray": GrayOnColour("both"), "halftone": Halftone("both"),
    "thickness": StrokeThickness("both"), "perspective": Perspective("both"),
}  # fmt: skip
