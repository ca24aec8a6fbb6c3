"""Build Words, the text suite, from packages of public registries: python tools/words/build.py --work DIR -o FOLDER."""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "common"))

from debian import LIST, archive, package_domains, version_of
from diagnoses import diagnosis_domains
from dictionaries import dictionary_domains
from download import Cache
from fortunes import fortune_domains
from passages import Domain
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from wordnet import wordnet_domains

from smatter.tasks.assemble import assemble
from smatter.tasks.packed import read_packed, write_packed
from smatter.tasks.splits import SPLITS
from smatter.tasks.stores import Texts
from smatter.tasks.suite import Suite

PINS = Path(__file__).parent / "packages.json"
LICENCES = {
    "dict-foldoc": "GFDL-1.1-or-later",
    "dict-gcide": "GPL-2.0-or-later",
    "fortunes": "BSD-3-Clause for the collection; quotations are their authors'",
    "fortunes-bofh-excuses": "public domain",
    "fortunes-min": "BSD-3-Clause for the collection; quotations are their authors'",
    "simple-icd-10-cm": "MIT; the classification is a work of the US government",
}
"""Of packages that say it in words of their own."""


def domains(cache: Cache, descriptions: str) -> Iterator[Domain]:
    """Every domain, those that sources are trained on first."""
    found = [
        *fortune_domains(cache),
        *dictionary_domains(cache),
        *package_domains(descriptions),
        *wordnet_domains(cache),
        *diagnosis_domains(cache),
    ]
    return iter(sorted(found, key=lambda domain: domain.role != "id"))


def packages(cache: Cache, descriptions: str, found: list[Domain]) -> Iterator[dict[str, str]]:
    """Registry, name, version, licence and use of everything that texts are from."""

    def entry(registry: str, name: str, version: str, licence: str) -> dict[str, str]:
        use = ", ".join(each.name for each in found if name in each.packages)
        return {"registry": registry, "name": name, "version": version, "licence": licence, "use": use}

    for registry, names in cache.pins.items():
        for name in names:
            package = cache.package(registry, name)
            yield entry(registry, name, package.version, LICENCES.get(name) or package.licence())
            package.close()
    yield entry("apt", LIST, version_of(descriptions), "free, each under the terms of its package")


def suite_of(found: list[Domain], described: tuple[dict[str, str], ...]) -> Suite:
    """All domains as a suite; classes of the same name are the same concept."""
    plain = assemble("words", "texts", {each.name: each.classes for each in found}, Texts, "Words")
    told = (
        replace(domain, title=each.title, role=each.role, packages=each.packages)
        for domain, each in zip(plain.domains, found, strict=True)
    )
    return replace(plain, domains=tuple(told), packages=described)


def main() -> None:
    """Download, read, pack, and say what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="folder for downloads; filled once, read afterwards")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder of the suite; an older one is replaced")
    options = parser.parse_args()
    console = Console()
    cache = Cache.at(options.work, PINS)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console) as bars:
        download = bars.add_task("download", total=sum(map(len, cache.pins.values())))
        cache.fetch(lambda done: bars.advance(download, done))
    with console.status("reading"):
        descriptions = archive()
        found = list(domains(cache, descriptions))
        write_packed(options.out, suite_of(found, tuple(packages(cache, descriptions, found))), replace=True)
    suite = read_packed(options.out)
    lines = Table("domain", "role", "classes", "texts", *SPLITS)
    for domain in suite.domains:
        splits = (str(len(suite.classes(domain, split))) for split in SPLITS)
        lines.add_row(domain.name, domain.role, str(len(domain.classes)), str(len(domain.store)), *splits)
    console.print(lines)
    console.print(f"wrote {options.out}, digest {suite.digest[:16]}")


if __name__ == "__main__":
    main()
