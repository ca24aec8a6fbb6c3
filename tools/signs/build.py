"""Build Signs, the vision suite, from packages of public registries: python tools/signs/build.py --cache DIR -o OUT."""

import argparse
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "common"))

from download import Cache
from emoji import DOMAINS as EMOJI
from emoji import emoji_domain
from families import SCRIPTS
from flags import flag_domain
from fonts import script_domain
from icons import icon_domain
from pack import encode, few_colours, sheet, write
from photos import digit_domain, fashion_domain
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from tiles import Domain

PINS = Path(__file__).parent / "packages.json"
LARGEST = 11_000_000


def jobs() -> list[Callable[[Cache], Domain]]:
    """One for each domain, in the order of the suite; the long ones are at the front."""
    return [
        *(partial(emoji_domain, name) for name in EMOJI),
        partial(icon_domain, "line", "id"),
        partial(icon_domain, "solid", "ood"),
        flag_domain,
        *(partial(script_domain, script) for script in SCRIPTS),
        fashion_domain,
        digit_domain,
    ]


def finish(job: Callable[[Cache], Domain], cache: Cache) -> tuple[Domain, bytes]:
    """One domain and its sheet."""
    domain = job(cache)
    if domain.colour:
        domain = few_colours(domain)
    return domain, encode(sheet(domain))


def draw(cache: Cache, workers: int, progress: Callable[[int], None]) -> list[tuple[Domain, bytes]]:
    """Every domain, those that sources are trained on first; the order does not depend on the workers."""
    with ProcessPoolExecutor(workers) as pool:
        futures = [pool.submit(finish, job, cache) for job in jobs()]
        for future in futures:
            future.add_done_callback(lambda _: progress(1))
        finished = [future.result() for future in futures]
    return sorted(finished, key=lambda pair: (pair[0].role != "id", pair[0].name))


def main() -> None:
    """Download, draw, pack, and say what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, required=True, help="folder for downloads; filled once, read afterwards")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder for suite.json and the sheets")
    parser.add_argument("--workers", type=int, default=2, help="processes that draw")
    options = parser.parse_args()
    console = Console()
    cache = Cache.at(options.cache, PINS)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console) as bars:
        download = bars.add_task("download", total=sum(map(len, cache.pins.values())))
        size = cache.fetch(lambda done: bars.advance(download, done))
        drawing = bars.add_task("draw", total=len(jobs()))
        finished = draw(cache, options.workers, lambda done: bars.advance(drawing, done))
    domains = [domain for domain, _ in finished]
    write(domains, [content for _, content in finished], cache, options.out)
    console.print(f"downloads {size / 1e6:.0f} MB")
    report(console, domains, options.out)


def report(console: Console, domains: list[Domain], folder: Path) -> None:
    """A line for each domain, and a refusal when the suite has outgrown its room."""
    lines = Table("domain", "role", *(("classes", "examples", "styles", "kB")))
    for domain in domains:
        styles = {tile.style for group in domain.groups for tile in group.tiles}
        size = (folder / f"{domain.name}.webp").stat().st_size
        numbers = len(domain.groups), domain.count(), len(styles), round(size / 1000)
        lines.add_row(domain.name, domain.role, *map(str, numbers))
    total = sum(path.stat().st_size for path in folder.iterdir())
    lines.add_row("in all", "", str(sum(len(d.groups) for d in domains)), str(sum(d.count() for d in domains)), "",
                  str(round(total / 1000)))  # fmt: skip
    console.print(lines)
    if total > LARGEST:
        raise SystemExit(f"{total} bytes are more than the {LARGEST} that may ship: fewer examples or colours")


if __name__ == "__main__":
    main()
