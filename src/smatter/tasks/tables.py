"""A suite from one file: CSV or JSONL with a text and a label in every row and, for several domains, a domain."""

from __future__ import annotations

from pathlib import Path
from sys import intern

from smatter.errors import InvalidSuite, InvalidSupport
from smatter.tasks.assemble import Omissions, assemble, short_name
from smatter.tasks.rows import name_in, raw_rows, text_and_label
from smatter.tasks.stores import Texts
from smatter.tasks.suite import MAX_CLASSES, MAX_DOMAINS, Suite

MAX_ROWS = 1_000_000


def read_table(path: Path, omitted: Omissions, name: str | None = None) -> Suite:
    """Texts of a table as a suite; their order in the file does not matter.

    Args:
        path: a .csv or .jsonl file.
        omitted: is told of rows without text, label or domain, and of rows that repeat another one, which would put
            the same text into support and query.
        name: of the suite; the file's by default.
    """
    try:
        rows = _rows(path, omitted)
    except InvalidSupport as error:
        raise InvalidSuite(str(error)) from None
    if not rows:
        raise InvalidSuite(f"{path} holds no examples; add some of at least two classes")
    found: dict[str, dict[str, list[str]]] = {}
    for domain, label, text in sorted(rows):
        classes = found.setdefault(domain or path.stem, {})
        classes.setdefault(label, []).append(text)
        if len(found) > MAX_DOMAINS or len(classes) > MAX_CLASSES:
            break  # `assemble` says so
    return assemble(name or short_name(path.stem), "texts", found, Texts, str(path))


def _rows(path: Path, omitted: Omissions) -> dict[tuple[str, str, str], str]:
    """Domain, label and text of every row that can be used, and where it is; no domain where the table names none."""
    rows: dict[tuple[str, str, str], str] = {}
    has_domains = False
    for number, row in enumerate(raw_rows(path)):
        if number >= MAX_ROWS:
            raise InvalidSuite(f"{path} holds more than {MAX_ROWS} rows; give fewer")
        has_domains = has_domains or "domain" in row.cells
        try:
            text, label = text_and_label(path, row)
        except InvalidSupport as error:
            omitted.add(str(error))
            continue
        domain, label = intern(name_in(row.cells.get("domain"))), intern(label)  # one string for all rows of a class
        first = rows.setdefault((domain, label, text), row.where)
        if first is not row.where:
            omitted.add(f"{path}, {row.where}: the same as {first}; delete it")
    for example in [example for example in rows if has_domains and not example[0]]:
        omitted.add(f"{path}, {rows.pop(example)}: no domain; fill it in, or delete the whole column")
    return rows
