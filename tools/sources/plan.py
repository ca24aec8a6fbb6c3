"""Which sources there are, what each learns from, and for how long."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from smatter.train.pictures import Variation
from smatter.train.supervised import TrainingSettings

CONFIG: dict[str, Any] = {
    "model_type": "convnext", "num_channels": 3, "patch_size": 4, "num_stages": 3, "hidden_sizes": [48, 96, 192],
    "depths": [2, 2, 2], "image_size": 32, "drop_path_rate": 0.0,
}  # fmt: skip
"""Three stages with layer norms, 0.9 M parameters."""

PREPROCESSOR = {
    "image_processor_type": "ViTImageProcessor", "resample": 2,  # bilinear
    "do_resize": True, "size": {"height": 32, "width": 32}, "do_rescale": True, "rescale_factor": 1 / 255,
    "do_normalize": True, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
}  # fmt: skip

SPECIALISTS: dict[str, tuple[str, ...]] = {
    "latin": ("latin-print", "latin-hand", "latin-display"),
    "alphabets": ("cyrillic", "greek", "hebrew"),
    "syllables": ("devanagari", "kana"),
    "emoji": ("emoji-kinds", "emoji-people"),
    "symbols": ("icons-line", "flags"),
}
"""Domains of each specialist."""

WEAR = Variation(degrees=30.0, zoom=0.3, shift=0.12, shear=0.3, contrast=0.3, noise=0.15)
"""Pictures as worn as `Worn` makes them at severity 5."""

BASE_EVERY = 6
"""The base learns from one class in so many, so that there is something left for specialists to know."""

BASE = TrainingSettings(n_steps=3000, batch_size=96, learning_rate=6e-3, variation=WEAR)
TRUNK = TrainingSettings(n_steps=300, batch_size=96, learning_rate=1.2e-2, warm_up=0.1, imprint=True, variation=WEAR)
"""What all specialists have in common before they part: sources that part later mix better."""
TUNING = replace(TRUNK, n_steps=900, learning_rate=6e-3)
TUNINGS = {"emoji": replace(TRUNK, n_steps=600)}
"""At half the rate sources mix better, but `emoji` forgets what the trunk knew of people."""


@dataclass(frozen=True)
class Job:
    """One source to train.

    Args:
        name: of the source.
        domains: that it learns from.
        settings: how.
        start: source to begin with; from random weights where there is none.
        every: one class in so many is learnt from.
        weights_seed: of the random weights.
        objective: tell classes apart, in pictures as they are or rendered anew, or tell by how many quarters a picture
            was turned.
        forbidden: a domain that is learnt as one class.
    """

    name: str
    domains: tuple[str, ...]
    settings: TrainingSettings
    start: str | None = None
    every: int = 1
    weights_seed: int = 0
    objective: Literal["classes", "renderings", "turns"] = "classes"
    forbidden: str | None = None


INSIDE = tuple(sorted(domain for own in SPECIALISTS.values() for domain in own))
"""Every domain that is not held out."""

BASE_JOB = Job("base", INSIDE, BASE, every=BASE_EVERY)
TRUNK_JOB = Job("trunk", INSIDE, TRUNK, BASE_JOB.name)


def _specialist(name: str, *domains: str) -> Job:
    return Job(name, domains, TUNINGS.get(name, TUNING), TRUNK_JOB.name)


def _twin(name: str) -> Job:
    job = _specialist(name, *SPECIALISTS[name])
    return replace(job, name=f"{name}-twin", settings=replace(job.settings, seed=1))


SPECIALIST_JOBS = tuple(_specialist(name, *own) for name, own in SPECIALISTS.items())


SCRIPTS = (*SPECIALISTS["latin"], *SPECIALISTS["alphabets"], *SPECIALISTS["syllables"])

STUDY_JOBS = (
    _twin("latin"),
    _twin("emoji"),
    Job("turns", INSIDE, replace(TUNING, imprint=False), TRUNK_JOB.name, objective="turns"),
    _specialist("scripts", *SCRIPTS),
    _specialist("pictures", *SPECIALISTS["emoji"], *SPECIALISTS["symbols"]),
    _specialist("print-and-flags", "latin-print", "cyrillic", "flags"),
    _specialist("hands-and-people", "latin-hand", "kana", "emoji-people"),
    Job("guard", INSIDE, TUNING, TRUNK_JOB.name, forbidden="kana"),
    replace(BASE_JOB, name="stranger", weights_seed=1),
)
"""With base, specialists and one source of noise, sixteen: near-duplicates by another seed, another objective,
specialists of many domains, one that learnt what is forbidden in the safety study, a base from other random weights."""

WHOLE = replace(TRUNK, n_steps=TRUNK.n_steps + TUNING.n_steps)
"""As many steps as trunk and specialist together."""

PEER_JOBS = (
    Job("one-for-all", INSIDE, WHOLE, BASE_JOB.name),
    Job("rendered", INSIDE, WHOLE, BASE_JOB.name, objective="renderings"),
)
"""What one would train instead: one network on all that any specialist learns from, and the same in renderings that
no source sees, which the experts of routers learn."""

LONGER_JOB = Job("base-longer", INSIDE, WHOLE, BASE_JOB.name, BASE_EVERY)
"""The base once more, for as many steps as a specialist, on all domains: was it trained to the end?"""
