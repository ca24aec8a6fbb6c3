"""Two real data sets with natural domains, from files inside registry packages; nothing of them is kept in the tree.

- diamonds: `diamonds.csv` of PyPI `plotnine` (MIT, as in ggplot2). Log price; clarity grades are domains.
- emoji: six drawing styles from npm `@iconify-json/*` (Apache-2.0, MIT, CC BY 4.0, CC BY-SA 4.0), groups of the emoji
  from npm `unicode-emoji-json` (MIT), drawn by PyPI `resvg-py`. What an emoji shows is its class; styles are domains.
"""

import csv
import io
import json
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import SCRATCH
from PIL import Image

Array = np.ndarray[Any, Any]

FOLDER = SCRATCH / "linear_transfer"
PLOTNINE, RESVG, GROUPS = "plotnine==0.15.8", "resvg-py==0.5.0", "unicode-emoji-json@0.9.0"
STYLES = {
    "noto": "1.2.9",
    "twemoji": "1.2.5",
    "openmoji": "1.2.29",
    "fluent-emoji-flat": "1.2.6",
    "emojione": "1.2.3",
    "noto-v1": "1.2.5",
}
CLARITIES = ("I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF")
CUTS = ("Fair", "Good", "Very Good", "Premium", "Ideal")
COLOURS = "DEFGHIJ"
CLASSES = ("People & Body", "Animals & Nature", "Food & Drink", "Travel & Places", "Objects")
SIDE, CELLS, DIRECTIONS = 36, 3, 6


@dataclass(frozen=True)
class Domain:
    """Examples of one domain.

    Args:
        features: (n, n_features), not yet standardised.
        targets: numbers or class numbers, (n,).
        for_sources: the examples that a model of this domain learns from where it serves as a source, (n,). The others
            are the examples of the domain where it is the target.
    """

    features: Array
    targets: Array
    for_sources: Array


def diamonds() -> dict[str, Domain]:
    """Log price of round diamonds from carat, shape, cut and colour, by clarity grade."""
    with zipfile.ZipFile(_wheel(PLOTNINE)) as wheel:
        rows = list(csv.DictReader(io.TextIOWrapper(wheel.open("plotnine/data/diamonds.csv"))))
    rows = [row for row in rows if all(2 < float(row[side]) < 15 for side in "xyz")]  # a side of 0 or 58 mm is a slip
    number = {key: np.array([float(row[key]) for row in rows]) for key in ("carat", "depth", "table", "x", "y", "z")}
    size = np.log(number["carat"])
    kinds = [np.array([row["cut"] == cut for row in rows], float) for cut in CUTS[:-1]]
    kinds += [np.array([row["color"] == colour for row in rows], float) for colour in COLOURS[1:]]
    plain = [size, size**2, size**3, *(number[key] for key in ("depth", "table", "x", "y", "z"))]
    features = np.stack([*plain, *kinds, *(size * kind for kind in kinds)], axis=1)
    targets = np.log([float(row["price"]) for row in rows])
    grades = np.array([row["clarity"] for row in rows])
    everything = {grade: np.flatnonzero(grades == grade) for grade in CLARITIES}
    return {
        grade: Domain(features[index], targets[index], np.ones(len(index), bool)) for grade, index in everything.items()
    }


def emoji() -> dict[str, Domain]:
    """What an emoji shows, from edges and colours of its picture, by drawing style.

    Half of the emoji serve the sources and the other half the target, in all styles: no source has seen, in whatever
    style, an emoji that the target is tested on.
    """
    stored = FOLDER / "emoji.npz"
    if not stored.exists():
        stored.parent.mkdir(parents=True, exist_ok=True)
        np.savez(stored, **_draw_emoji())
    with np.load(stored) as arrays:
        keys = {style: arrays[f"{style} keys"] for style in STYLES}
        pictures = {style: arrays[f"{style} features"] for style in STYLES}
        classes = {style: arrays[f"{style} classes"] for style in STYLES}
    names = np.unique(np.concatenate(list(keys.values())))
    first = set(np.random.default_rng(0).permutation(names)[: len(names) // 2].tolist())
    return {
        style: Domain(pictures[style], classes[style], np.array([key in first for key in keys[style]]))
        for style in STYLES
    }


def _draw_emoji() -> dict[str, Array]:
    sys.path.append(str(_installed(RESVG)))
    import resvg_py

    groups = _member(GROUPS, "data-by-emoji.json")
    emoji = {_code(text): entry for text, entry in groups.items() if entry["group"] in CLASSES}
    by_name = {_squeezed(entry["name"]): code for code, entry in emoji.items()}
    arrays: dict[str, Array] = {}
    for style, version in STYLES.items():
        package = f"@iconify-json/{style}@{version}"
        icons, codes = _member(package, "icons.json"), _member(package, "chars.json")
        width, height = icons.get("width", 16), icons.get("height", 16)
        named = {by_name.get(_squeezed(name)): name for name in icons["icons"]}  # some sets give names, not codes
        chosen = {code: name for code, name in (named | codes).items() if code in emoji and name in icons["icons"]}
        rows = []
        for name in chosen.values():
            icon = icons["icons"][name]
            box = f"0 0 {icon.get('width', width)} {icon.get('height', height)}"
            drawing = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}">{icon["body"]}</svg>'
            drawn = bytes(resvg_py.svg_to_bytes(svg_string=drawing, width=4 * SIDE, height=4 * SIDE))
            picture = Image.open(io.BytesIO(drawn)).convert("RGBA")
            paper = Image.new("RGBA", picture.size, "white")
            small = Image.alpha_composite(paper, picture).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BOX)
            rows.append(edges_and_colours(np.asarray(small, float) / 255))
        arrays[f"{style} keys"] = np.array(list(chosen))
        arrays[f"{style} classes"] = np.array([CLASSES.index(emoji[code]["group"]) for code in chosen])
        arrays[f"{style} features"] = np.stack(rows)
    return arrays


def edges_and_colours(picture: Array) -> Array:
    """Strength of edges by cell and direction, as in HOG, and the mean colour of every cell.

    Args:
        picture: red, green and blue from 0 to 1, (SIDE, SIDE, 3).
    """
    down, across = np.gradient(picture.mean(axis=2))
    direction = (np.arctan2(down, across) % np.pi / np.pi * DIRECTIONS).astype(int) % DIRECTIONS
    strength = np.hypot(down, across)[..., None] * np.eye(DIRECTIONS)[direction]
    edge = SIDE // CELLS
    cells = np.concatenate([strength, picture], axis=2).reshape(CELLS, edge, CELLS, edge, -1).mean(axis=(1, 3))
    return np.concatenate([np.sqrt(cells[..., :DIRECTIONS]).ravel(), cells[..., DIRECTIONS:].ravel()])


def _code(text: str) -> str:
    """Code points as icon sets write them; the sign that asks for colour is left out there."""
    return "-".join(f"{ord(sign):x}" for sign in text if ord(sign) != 0xFE0F)


def _squeezed(name: str) -> str:
    return "".join(sign for sign in name.lower() if sign.isalnum())


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", *arguments, "--no-deps", "--quiet", "--quiet"], check=True)


def _wheel(requirement: str) -> Path:
    start = requirement.replace("==", "-").replace("-", "_", requirement.partition("==")[0].count("-"))
    if not list(FOLDER.glob(f"{start}-*.whl")):
        _pip("download", "--dest", str(FOLDER), requirement)
    return next(FOLDER.glob(f"{start}-*.whl"))


def _installed(requirement: str) -> Path:
    folder = FOLDER / requirement
    if not folder.exists():
        _pip("install", "--target", str(folder), requirement)
    return folder


def _member(package: str, member: str) -> Mapping[str, Any]:
    """A JSON file of an npm package; only its archive is fetched, nothing of it runs."""
    name, _, version = package.rpartition("@")
    archive = FOLDER / f"{name.removeprefix('@').replace('/', '-')}-{version}.tgz"
    if not archive.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "pack", "--silent", package], cwd=FOLDER, check=True, stdout=subprocess.DEVNULL)
    with tarfile.open(archive) as files:
        found = files.extractfile(f"package/{member}")
        assert found is not None
        contents: Mapping[str, Any] = json.load(found)
    return contents
