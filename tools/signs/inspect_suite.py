"""Look at a built suite: a contact sheet, and how far pixels alone get: python tools/signs/inspect_suite.py OUT."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "common"))

import numpy as np
from pack import read
from PIL import Image, ImageDraw, ImageFont
from rich.console import Console
from rich.table import Table
from tiles import SIDE, Pixels

N_WAY = 5
N_QUERY = 3


def classes_of(domain: dict, tiles: Pixels) -> list[Pixels]:
    """The tiles of each class."""
    sizes = [len(entry["examples"]) for entry in domain["classes"]]
    return np.split(tiles, np.cumsum(sizes)[:-1])


def pixel_accuracy(classes: list[Pixels], n_shot: int, n_episodes: int = 600, seed: int = 0) -> float:
    """Nearest class by the nearest support picture, Euclidean in pixels; mean over episodes, in percent."""
    generator = np.random.default_rng(seed)
    flat = [group.reshape(len(group), -1).astype(np.float32) / 255 for group in classes]
    correct = 0
    for _ in range(n_episodes):
        picks = generator.choice(len(flat), min(N_WAY, len(flat)), replace=False)
        orders = [generator.permutation(len(flat[pick])) for pick in picks]
        support = np.concatenate([flat[pick][order[:n_shot]] for pick, order in zip(picks, orders, strict=True)])
        query = np.concatenate(
            [flat[pick][order[n_shot : n_shot + N_QUERY]] for pick, order in zip(picks, orders, strict=True)]
        )
        distances = (query**2).sum(1)[:, None] - 2 * query @ support.T + (support**2).sum(1)[None]
        truth = np.repeat(np.arange(len(picks)), N_QUERY)
        correct += (distances.argmin(1) // n_shot == truth).mean()
    return 100 * correct / n_episodes


def contact_sheet(folder: Path, n_classes: int, n_examples: int, seed: int = 0) -> Image.Image:
    """A strip for each domain in two columns: a few classes with several examples each."""
    generator = np.random.default_rng(seed)
    font = ImageFont.load_default(13)
    strips = []
    for domain, tiles in read(folder):
        classes = classes_of(domain, tiles)
        picks = np.sort(generator.choice(len(classes), min(n_classes, len(classes)), replace=False))
        strip = Image.new("RGB", (n_classes * n_examples * SIDE // 2 + 8 * n_classes, 2 * SIDE + 18), "white")
        title = f"{domain['name']}  ({len(classes)} classes, {len(domain['styles'])} styles, {domain['role']})"
        ImageDraw.Draw(strip).text((2, 0), title, fill="black", font=font)
        for column, pick in enumerate(picks):
            shown = classes[pick][np.linspace(0, len(classes[pick]) - 1, n_examples).astype(int)]
            for place, tile in enumerate(shown):
                row, across = divmod(place, n_examples // 2)
                left = column * (n_examples * SIDE // 2 + 8) + across * SIDE
                strip.paste(Image.fromarray(tile), (left, 18 + row * SIDE))
        strips.append(strip)
    n_rows = -(-len(strips) // 2)
    width, height = strips[0].size
    page = Image.new("RGB", (2 * width + 12, n_rows * (height + 6)), "white")
    for place, strip in enumerate(strips):
        page.paste(strip, ((place // n_rows) * (width + 12), (place % n_rows) * (height + 6)))
    return page


def main() -> None:
    """Print the table of pixel baselines and, when asked, save the contact sheet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", type=Path, help="folder with suite.json")
    parser.add_argument("--sheet", type=Path, help="save a contact sheet here")
    options = parser.parse_args()
    lines = Table("domain", "role", "classes", "examples", "styles", "kB", "1-shot %", "5-shot %")
    for domain, tiles in read(options.suite):
        classes = classes_of(domain, tiles)
        size = (options.suite / domain["sheet"]).stat().st_size / 1000
        lines.add_row(
            domain["name"], domain["role"], str(len(classes)), str(len(tiles)), str(len(domain["styles"])),
            f"{size:.0f}", *(f"{pixel_accuracy(classes, n_shot):.1f}" for n_shot in (1, 5)),
        )  # fmt: skip
    Console().print(lines)
    if options.sheet:
        contact_sheet(options.suite, n_classes=4, n_examples=12).save(options.sheet, lossless=True, method=6)


if __name__ == "__main__":
    main()
