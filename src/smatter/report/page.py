"""The parts a page is made of: headings, tables, line charts, pictures. All text is escaped."""

import base64
from collections.abc import Mapping, Sequence
from html import escape as escape_html
from pathlib import Path
from typing import Literal

from smatter.records import printable

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --paper: #fff; --line: #d9dee5;
  --heat: 42, 120, 214; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8ecf2; --soft: #9aa6b5; --paper: #14181e; --line: #333c47; --heat: 90, 160, 250; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 62rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
p, figcaption { color: var(--soft); max-width: 44rem; } code, pre { font: .85rem/1.5 ui-monospace, monospace; }
pre { border: 1px solid var(--line); border-radius: 6px; padding: .7rem 1rem; overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: .35rem .6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
td:first-child, th:first-child, .words { text-align: left; } th { font-weight: 600; color: var(--soft); }
figure { margin: 1rem 0; } .bars + figcaption { margin-top: .4rem; }
svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }
.pictures { display: flex; flex-wrap: wrap; gap: 1.2rem; } .pictures figcaption { max-width: 11rem; }
.wide { overflow-x: auto; }
.pictures img { image-rendering: pixelated; border-radius: 4px; max-width: 100%; }
.bars { display: grid; grid-template-columns: minmax(5rem, auto) 1fr auto; gap: .25rem .6rem; align-items: center;
  font-size: .85rem; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.bars > span { max-width: 18rem; } .bars .track { position: relative; height: 14px; max-width: none; }
.track i { display: block; height: 100%; border-radius: 2px; background: #2a78d6; }
.track b { position: absolute; top: 6px; height: 2px; background: var(--ink); }
@media (max-width: 40rem) {
  body { margin: 1rem auto; } svg text { font-size: 20px; } .unit { display: none; }
  .pictures { gap: .6rem; } .pictures figure { width: 46%; margin: .3rem 0; } .bars > span { max-width: 9rem; }
  td, th { white-space: normal; padding: .3rem; }
  .dense td, .dense th { padding: .25rem .15rem; font-size: .7rem; white-space: normal; }
  .dense th:not(:first-child) span { writing-mode: vertical-rl; transform: rotate(180deg); } .dense th {
    vertical-align: bottom; } }
"""
START = "<!doctype html><html lang=en><meta charset=utf-8><meta name=generator content=smatter>"
"""Of every page, by which it is known again."""

COLOURS = ("#2a78d6", "#d9622b", "#2a9d6f", "#9a5fd0", "#c2467f", "#7a7f87")


def escape(text: str) -> str:
    """Words of a stranger as words of a page, in its text or between quotation marks."""
    return escape_html(printable(text))


def is_page(path: Path) -> bool:
    """Whether a file is a page that this module made."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(START)) == START.encode()


def page(title: str, lead: str, *parts: str) -> str:
    """A whole page."""
    return (
        f"{START}<meta name=viewport content='width=device-width'>"
        f"<title>{escape(title)}</title><style>{STYLE}</style><h1>{escape(title)}</h1><p>{escape(lead)}</p>"
        f"{''.join(parts)}</html>\n"
    )


def section(title: str, text: str, *parts: str) -> str:
    """A heading, a paragraph, and what they introduce."""
    return f"<h2>{escape(title)}</h2><p>{escape(text)}</p>{''.join(parts)}"


def code(text: str) -> str:
    """Lines to type."""
    return "<pre>" + "\n".join(escape(line) for line in text.splitlines()) + "</pre>"


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str | float]], best: Literal["row", "column"] | None = None
) -> str:
    """A table; floats are shares between 0 and 1, shown as percent and shaded. Columns of words begin at the left.

    Args:
        columns: their headings.
        rows: of cells.
        best: where the highest share is bold: of each row, or of each column.
    """
    lines: Sequence[Sequence[str | float]] = list(zip(*rows, strict=True)) if best == "column" else rows
    highest = [max((each for each in line if isinstance(each, float)), default=None) for line in lines]

    words = [all(isinstance(each, str) and each[:1].isalpha() for each in column) for column in zip(*rows, strict=True)]
    words += [False] * (len(columns) - len(words))

    def cell(value: str | float, row: int, column: int) -> str:
        if isinstance(value, str):
            return f"<td{' class=words' * words[column]}>{escape(value)}</td>"
        told = f'{100 * value:.1f}<span class="unit"> %</span>'
        if best and value == highest[column if best == "column" else row]:
            told = f"<strong>{told}</strong>"
        return f'<td style="background: rgba(var(--heat), {0.55 * value**2:.3f})">{told}</td>'

    head = "".join(
        f"<th{' class=words' * is_words}><span>{escape(column)}</span></th>"
        for column, is_words in zip(columns, words, strict=True)
    )
    body = "".join(
        f"<tr>{''.join(cell(value, number, place) for place, value in enumerate(row))}</tr>"
        for number, row in enumerate(rows)
    )
    return f'<div class="wide"><table{" class=dense" if len(columns) > 4 else ""}><tr>{head}</tr>{body}</table></div>'


def line_chart(series: Mapping[str, Sequence[float]], x: Sequence[float], x_label: str, y_label: str) -> str:
    """Lines over a common axis, with values from 0 to 1 upwards; each named at its right end."""
    width, height, left, right, top, bottom = 720, 300, 56, 96, 12, 44

    def place(across: float, up: float) -> tuple[float, float]:
        span = max(x) - min(x) or 1
        return left + (across - min(x)) / span * (width - left - right), height - bottom - up * (height - top - bottom)

    grid = []
    for step in range(0, 101, 25):
        _, y = place(min(x), step / 100)
        grid.append(f'<line x1="{left}" x2="{width - right}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--line)"/>')
        grid.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{step} %</text>')
    for value in (min(x), (min(x) + max(x)) / 2, max(x)):
        across, _ = place(value, 0)
        grid.append(f'<text x="{across:.1f}" y="{height - bottom + 18}" text-anchor="middle">{value:g}</text>')
    lines, ends = [], []
    for index, (name, values) in enumerate(series.items()):
        colour = COLOURS[index % len(COLOURS)]
        points = [place(*pair) for pair in zip(x, values, strict=True)]
        path = " ".join(f"{across:.1f},{up:.1f}" for across, up in points)
        lines.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        lines += [f'<circle cx="{across:.1f}" cy="{up:.1f}" r="3" fill="{colour}"/>' for across, up in points]
        ends.append((points[-1][1], name, colour))
    names = []
    lowest = float("-inf")
    for up, name, colour in sorted(ends):  # keep names of lines that end together apart
        lowest = max(up + 4, lowest + 15)
        names.append(f'<text x="{width - right + 10}" y="{lowest:.1f}" style="fill: {colour}">{escape(name)}</text>')
    axis = f'<text x="{(left + width - right) / 2}" y="{height - 6}" text-anchor="middle">{escape(x_label)}</text>'
    drawing = "".join([*grid, *lines, *names, axis])
    return (
        f'<figure><svg viewBox="0 0 {width} {height}" width="100%" role="img" aria-label="{escape(y_label)}">{drawing}'
        f"</svg><figcaption>{escape(y_label)}</figcaption></figure>"
    )


def scatter_chart(
    points: Sequence[tuple[float, float]], lines: Mapping[str, tuple[float, float]], x_label: str, y_label: str
) -> str:
    """Points, both axes on one scale, and lines: factor and offset of each by name."""
    size, left, bottom, top, right = 420, 56, 44, 12, 110
    values = [value for point in points for value in point]
    middle_x = sorted(across for across, _ in points)[len(points) // 2]
    low, high = min(values), max(*values, *(factor * middle_x + offset for factor, offset in lines.values()))
    low, high = low - 0.05 * (high - low or 1), high + 0.05 * (high - low or 1)

    def place(across: float, up: float) -> tuple[float, float]:
        scale = (size - left) / (high - low)
        return left + (across - low) * scale, top + size - left - (up - low) * scale

    base, end = place(low, low), place(high, high)
    drawn = [f'<path d="M{base[0]} {end[1]}V{base[1]}H{end[0]}" fill="none" stroke="var(--line)"/>']
    for share in (0.1, 0.5, 0.9):
        value = low + share * (high - low)
        across, up = place(value, value)
        drawn.append(f'<text x="{across:.1f}" y="{base[1] + 18:.1f}" text-anchor="middle">{value:.3g}</text>')
        drawn.append(f'<text x="{base[0] - 8:.1f}" y="{up + 4:.1f}" text-anchor="end">{value:.3g}</text>')
    for index, (name, (factor, offset)) in enumerate(lines.items()):
        stop = min(high, (high - offset) / factor)
        (x1, y1), (x2, y2) = place(low, factor * low + offset), place(stop, factor * stop + offset)
        colour = COLOURS[(index + 1) % len(COLOURS)]
        drawn.append(f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{colour}" stroke-width="1.5"/>')
        drawn.append(f'<text x="{end[0] + 8}" y="{top + 12 + 16 * index}" style="fill: {colour}">{escape(name)}</text>')
    for point in points:
        across, up = place(*point)
        drawn.append(f'<circle cx="{across:.1f}" cy="{up:.1f}" r="3" fill="{COLOURS[0]}" fill-opacity=".7"/>')
    middle = (base[0] + end[0]) / 2
    drawn.append(f'<text x="{middle}" y="{base[1] + 38:.1f}" text-anchor="middle">{escape(x_label)}</text>')
    width, height = size + right, size + top - left + bottom
    return (
        f'<figure><svg viewBox="0 0 {width} {height}" width="{width}" style="max-width: 100%" role="img" '
        f'aria-label="{escape(y_label)}">{"".join(drawn)}</svg><figcaption>{escape(y_label)}</figcaption></figure>'
    )


def bar_chart(
    values: Mapping[str, float], label: str, spreads: Mapping[str, float] | None = None, most: float = 1.0
) -> str:
    """A bar for each share, with its value; `most` fills the width. A whisker shows how far it may move.

    Boxes of the page and no drawing, so that words keep their size on a phone.
    """

    def across(value: float) -> float:
        return 100 * min(max(value / most, 0.0), 1.0)

    bars, told = [], []
    for name, value in values.items():
        whisker, spread = "", (spreads or {}).get(name, 0.0)
        if spread > 0:
            low, high = across(value - spread), across(value + spread)
            whisker = f'<b style="left:{low:.1f}%;width:{high - low:.1f}%"></b>'
        bars.append(
            f'<span>{escape(name)}</span><span class="track"><i style="width:{across(value):.1f}%"></i>{whisker}</span>'
            f"<span>{100 * value:.1f} %</span>"
        )
        told.append(f"{name} {100 * value:.1f} %")
    spoken = escape(f"{label}: {', '.join(told)}")
    return (
        f'<figure><div class="bars" role="img" aria-label="{spoken}">{"".join(bars)}</div>'
        f"<figcaption>{escape(label)}</figcaption></figure>"
    )


def pictures(images: Mapping[str, bytes], width: int) -> str:
    """PNG pictures with captions, inside the page."""
    figures = "".join(
        f'<figure><img alt="{escape(name)}" width="{width}" '
        f'src="data:image/png;base64,{base64.b64encode(data).decode()}">'
        f"<figcaption>{escape(name)}</figcaption></figure>"
        for name, data in images.items()
    )
    return f'<div class="pictures">{figures}</div>'
