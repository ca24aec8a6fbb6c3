"""Small suites and folder trees for tests."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from smatter.tasks.stores import Pictures, Texts
from smatter.tasks.suite import Domain, Role, Suite, SuiteClass


def picture(seed: int, size: tuple[int, int] = (8, 8)) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 255, (*size, 3), np.uint8))


def text_suite(
    domains: Mapping[str, tuple[Role, list[str]]], n_examples: int = 12, name: str = "toy", styles: tuple[str, ...] = ()
) -> Suite:
    """Each text says where it is from: `domain/key/number`."""
    made = []
    for domain, (role, keys) in domains.items():
        classes = tuple(
            SuiteClass(key, key, i * n_examples, (i + 1) * n_examples) for i, key in enumerate(keys)
        )  # fmt: skip
        texts = [f"{domain}/{key}/{number}" for key in keys for number in range(n_examples)]
        style_of = tuple(i % len(styles) for i in range(len(texts))) if styles else ()
        made.append(Domain(domain, domain.title(), role, classes, Texts(texts), styles, style_of))
    return Suite(name, "texts", tuple(made))


def keys(first: int, last: int) -> list[str]:
    return [f"k{number}" for number in range(first, last)]


def usual_suite(n_examples: int = 12) -> Suite:
    """Four domains to train on, two of which share half their concepts, and two held out."""
    return text_suite(
        {
            "print": ("id", keys(0, 60)),
            "hand": ("id", keys(30, 90)),
            "icons": ("id", keys(100, 160)),
            "flags": ("id", keys(200, 240)),
            "masks": ("ood", keys(50, 130)),
            "runes": ("ood", keys(300, 340)),
        },
        n_examples,
    )


def picture_suite(
    n_classes: int = 4, n_examples: int = 7, side: int = 8, styles: tuple[str, ...] = ("a", "b")
) -> Suite:
    """Two domains of pictures, one of them grey; no two pictures are alike."""
    generator = np.random.default_rng(0)
    n = n_classes * n_examples
    classes = tuple(
        SuiteClass(f"Class {i}", f"c{i}", i * n_examples, (i + 1) * n_examples) for i in range(n_classes)
    )  # fmt: skip
    style_of = tuple(i % len(styles) for i in range(n)) if styles else ()
    domains = []
    for name, n_channels, role in (("colour", 3, "id"), ("grey", 1, "ood")):
        pixels = np.broadcast_to(generator.integers(0, 255, (n, side, side, n_channels), np.uint8), (n, side, side, 3))
        store = Pictures(pixels, [each.tobytes() for each in pixels])
        domains.append(Domain(name, name.title(), role, classes, store, styles, style_of, ("some-package",)))
    package = {"registry": "npm", "name": "some-package", "version": "1.0", "licence": "MIT", "use": "colour, grey"}
    return Suite("pictures", "images", tuple(domains), (package,))


def write_tree(folder: Path, domains: Mapping[str, str], n_each: int = 3) -> Path:
    """`domain/class/number.png`, a class for every letter; with the domain `.` there is one level less."""
    seed = 0
    for domain, classes in domains.items():
        for label in classes:
            (folder / domain / label).mkdir(parents=True)
            for number in range(n_each):
                picture(seed).save(folder / domain / label / f"{number}.png")
                seed += 1
    return folder
