"""Score against number of examples, as an SVG written by hand; a colour for each idea, dashes for its variant."""

from collections.abc import Sequence
from html import escape
from math import log
from typing import Any

import numpy as np
from sklearn.isotonic import isotonic_regression

# After Okabe and Ito, whose colours people with any kind of colour vision can tell apart; darker, to be read on white.
BLUE, ORANGE, GREEN, VERMILION, PINK, GREY, PURPLE, BLACK = (
    "#0072B2", "#B87A00", "#00795A", "#C04A00", "#B0517F", "#666666", "#7A5FC0", "#000000",
)  # fmt: skip
LOOKS = {
    "smatter": (BLUE, "", 3.5),
    "smatter, mixture only": (BLUE, "7 4", 2.5),
    "ridge": (VERMILION, "", 1.8),
    "lasso": (VERMILION, "7 4", 1.8),
    "best source": (GREEN, "", 1.8),
    "best source, shifted": (GREEN, "7 4", 1.8),
    "average": (PINK, "", 1.8),
    "average, shifted": (PINK, "7 4", 1.8),
    "stacking": (ORANGE, "", 1.8),
    "pooling": (GREY, "", 1.8),
    "pooling, shifted": (GREY, "7 4", 1.8),
    "pooling + lasso": (PURPLE, "", 1.8),
    "ridge on all": (BLACK, "2 4", 1.5),
}
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM, ROW = 840, 500, 62, 190, 40, 50, 17
FONT = 'font-family="system-ui, sans-serif" font-size="13"'


def draw(scores: Sequence[dict[str, Any]], is_classification: bool) -> str:
    """A chart of rows with n, method and mean. Errors stand on a logarithmic axis, accuracies on a linear one."""
    sizes = sorted({row["n"] for row in scores})
    title = "Accuracy in a new style of emoji" if is_classification else "Error of log price in a new grade of diamonds"
    better = "higher is better" if is_classification else "lower is better, logarithmic"
    means = [row["mean"] for row in scores]
    ticks = (
        [share / 10 for share in range(2, 10)] if is_classification else [0.1, 0.12, 0.14, 0.16, 0.2, 0.25, 0.3, 0.4]
    )
    low, high = (min(means) - 0.02, max(means) + 0.02) if is_classification else (0.93 * min(means), 0.4)
    ticks = [tick for tick in ticks if low <= tick <= high]

    def across(size: float) -> float:
        return LEFT + (log(size) - log(sizes[0])) / (log(sizes[-1]) - log(sizes[0])) * (WIDTH - LEFT - RIGHT)

    def up(value: float) -> float:
        place = (value - low) / (high - low) if is_classification else log(value / low) / log(high / low)
        return HEIGHT - BOTTOM - place * (HEIGHT - TOP - BOTTOM)

    box = f'x="{LEFT - 3}" y="{TOP}" width="{WIDTH - LEFT - RIGHT + 6}" height="{HEIGHT - TOP - BOTTOM}"'
    parts = [f'<clipPath id="inside"><rect {box}/></clipPath>']  # errors beyond the axis are not worth its length
    parts += [f'<text x="{LEFT}" y="20" font-weight="600">{escape(title)} <tspan fill="#555">({better})</tspan></text>']
    for tick in ticks:
        y = up(tick)
        label = f"{100 * tick:.0f} %" if is_classification else f"{tick:g}"
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#444">{label}</text>')
    for size in sizes:
        x = across(size)
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle" fill="#444">{size}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle" fill="#444">examples of the new domain</text>'
    )
    ends = []
    for method in reversed(LOOKS):
        rows = sorted((row for row in scores if row["method"] == method), key=lambda row: row["n"])
        if not rows:
            continue
        colour, dashes, thickness = LOOKS[method]
        points = " ".join(f"{across(row['n']):.1f},{up(row['mean']):.1f}" for row in rows)
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{thickness}"'
            f' stroke-dasharray="{dashes}" clip-path="url(#inside)"><title>{escape(method)}</title></polyline>'
        )
        ends.append((up(rows[-1]["mean"]), method))
    parts += _names(sorted(ends), across(sizes[-1]))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" {FONT}>'
        f'<title>{escape(title)}</title><rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def _names(ends: Sequence[tuple[float, str]], x: float) -> list[str]:
    """Names at the right ends of the lines, moved as little as keeps them a row apart and inside."""
    rows = ROW * np.arange(len(ends))
    wanted = np.array([y for y, _ in ends]) - rows
    places = rows + isotonic_regression(wanted, y_min=TOP, y_max=HEIGHT - BOTTOM - rows[-1])
    parts = []
    for place, (y, method) in zip(places, ends, strict=True):
        colour, dashes, thickness = LOOKS[method]
        weight = ' font-weight="700"' if method == "smatter" else ""
        parts.append(
            f'<path d="M{x + 3:.1f} {y:.1f}L{x + 16:.1f} {place:.1f}" stroke="{colour}" fill="none" opacity=".5"/>'
        )
        parts.append(
            f'<line x1="{x + 16:.1f}" x2="{x + 40:.1f}" y1="{place:.1f}" y2="{place:.1f}" stroke="{colour}"'
            f' stroke-width="{thickness}" stroke-dasharray="{dashes}"/>'
        )
        parts.append(f'<text x="{x + 46:.1f}" y="{place + 4:.1f}" fill="{colour}"{weight}>{escape(method)}</text>')
    return parts
