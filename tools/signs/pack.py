"""One sheet of tiles for each domain, losslessly compressed, and the table that says what is on it."""

import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from download import Cache
from notice import notice
from PIL import Image
from tiles import SIDE, Domain, Pixels, Tile, limited, without_doubles

COLUMNS = 64
N_COLOURS = 256


def sheet(domain: Domain) -> Pixels:
    """Every example of a domain, class after class, 64 to a row, on white."""
    tiles = [tile.pixels for group in domain.groups for tile in group.tiles]
    n_rows = -(-len(tiles) // COLUMNS)
    channels = (3,) if domain.colour else ()
    grid = np.full((n_rows * COLUMNS, SIDE, SIDE, *channels), 255, np.uint8)
    grid[: len(tiles)] = tiles
    rows = grid.reshape(n_rows, COLUMNS, SIDE, SIDE, *channels).swapaxes(1, 2)
    return rows.reshape(n_rows * SIDE, COLUMNS * SIDE, *channels)


def tiles_of(pixels: Pixels, n_tiles: int) -> Pixels:
    """The tiles on a sheet, (n_tiles, 32, 32, ...)."""
    channels = pixels.shape[2:]
    rows = pixels.reshape(-1, SIDE, COLUMNS, SIDE, *channels).swapaxes(1, 2)
    return rows.reshape(-1, SIDE, SIDE, *channels)[:n_tiles]


def few_colours(domain: Domain) -> Domain:
    """A colour domain in a palette of its own; white stays white, and what becomes equal is dropped."""
    before = sheet(domain)
    few = Image.fromarray(before).quantize(N_COLOURS, Image.Quantize.MEDIANCUT, kmeans=1, dither=Image.Dither.NONE)
    after = np.array(few.convert("RGB"))
    after[(before == 255).all(axis=-1)] = 255
    reduced = iter(tiles_of(after, domain.count()))
    groups = [
        replace(group, tiles=tuple(Tile(tile.style, next(reduced)) for tile in group.tiles)) for group in domain.groups
    ]
    return replace(domain, groups=tuple(limited(without_doubles(groups), most=domain.count(), least=8)))


def encode(pixels: Pixels) -> bytes:
    """Lossless WebP: any reader gives back the same pixels."""
    stream = io.BytesIO()
    Image.fromarray(pixels).convert("RGB").save(stream, "WEBP", lossless=True, quality=100, method=4)
    return stream.getvalue()


def table(domains: Sequence[Domain], cache: Cache) -> dict:
    """The contents of suite.json."""
    uses: dict[str, list[str]] = {}
    for domain in domains:
        for name in domain.packages:
            uses.setdefault(name, []).append(domain.name)
    packages = []
    for registry, names in cache.pins.items():
        for name in sorted(names):
            if name in uses:
                package = cache.package(registry, name)
                packages.append({
                    "registry": registry, "name": name, "version": package.version, "licence": package.licence(),
                    "use": ", ".join(uses[name]),
                })  # fmt: skip
                package.close()
    return {
        "schema": 1, "name": "signs", "image_size": SIDE,
        "domains": [_describe(domain) for domain in domains], "packages": packages,
    }  # fmt: skip


def _describe(domain: Domain) -> dict:
    styles = sorted({tile.style for group in domain.groups for tile in group.tiles})
    index = {style: number for number, style in enumerate(styles)}
    return {
        "name": domain.name, "title": domain.title, "role": domain.role, "sheet": f"{domain.name}.webp",
        "styles": styles,
        "classes": [
            {"name": group.name, "key": group.key, "examples": [index[tile.style] for tile in group.tiles]}
            for group in domain.groups
        ],
        "packages": sorted(domain.packages),
    }  # fmt: skip


def write(domains: Sequence[Domain], sheets: Sequence[bytes], cache: Cache, folder: Path) -> None:
    """Sheets and table, each complete under its name or not there; files of an older build are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {f"{domain.name}.webp": content for domain, content in zip(domains, sheets, strict=True)}
    contents_table = table(domains, cache)
    text = json.dumps(contents_table, ensure_ascii=False, separators=(",", ":"))
    contents["suite.json"] = (text + "\n").encode()
    contents["NOTICE"] = notice(contents_table).encode()
    for old in _stale(folder, contents):
        old.unlink()
    for name, content in contents.items():
        partial = folder / f"{name}.partial"
        partial.write_bytes(content)
        partial.replace(folder / name)


def _stale(folder: Path, names: Iterable[str]) -> list[Path]:
    return [path for path in folder.glob("*.webp") if path.name not in set(names)]


def read(folder: Path) -> Iterable[tuple[dict, Pixels]]:
    """Each domain of a written suite with its tiles, (n_examples, 32, 32, 3), as a user of the files reads them."""
    for domain in json.loads((folder / "suite.json").read_text())["domains"]:
        with Image.open(folder / domain["sheet"]) as image:
            pixels = np.asarray(image.convert("RGB"))
        yield domain, tiles_of(pixels, sum(len(entry["examples"]) for entry in domain["classes"]))
