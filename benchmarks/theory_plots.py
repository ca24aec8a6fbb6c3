"""Charts as SVG, written by hand: points with intervals, lines, one or more panels side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from pathlib import Path

COLOURS = ("#2a78d6", "#d9622b", "#2a9d6f", "#9a5fd0", "#c2467f", "#7a7f87", "#8a6d1f", "#1f2937", "#3bb3c3")
INK, SOFT, GRID = "#1c2430", "#4b5563", "#e1e5ea"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM, LEGEND_ROW = 440, 330, 70, 18, 34, 48, 17


@dataclass(frozen=True)
class Series:
    """One set of points.

    Args:
        name: in the legend; empty for none.
        x, y: the points.
        low, high: ends of their intervals.
        mark: "points", "line", "dashed" or "both".
        colour: which of the colours; by default each series takes the next.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    mark: str = "both"
    colour: int | None = None


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    y_floor: float | None = None
    from_zero: bool = True


@dataclass(frozen=True)
class _Axis:
    low: float
    high: float
    start: float
    end: float
    is_log: bool

    @classmethod
    def around(cls, values: Sequence[float], start: float, end: float, is_log: bool, zero: bool = False) -> "_Axis":
        low, high = min(values), max(values)
        if is_log:
            low, high = log10(low), log10(high)
        pad = 0.05 * ((high - low) or 1)
        return cls(0.0 if zero and low >= 0 and not is_log else low - pad, high + pad, start, end, is_log)

    def place(self, value: float) -> float:
        at = log10(value) if self.is_log else value
        return self.start + (at - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        if self.is_log:
            decades = range(floor(self.low), ceil(self.high) + 1)
            span = self.high - self.low
            factors = (1,) if span > 2.2 else (1, 3) if span > 1.2 else (1, 2, 5)
            every = 1 if span < 6 else 2 if span < 12 else 4
            ticks = [factor * 10.0**decade for decade in decades if decade % every == 0 for factor in factors]
            return [tick for tick in ticks if self.low <= log10(tick) <= self.high]
        raw = (self.high - self.low) / 5
        unit = 10 ** floor(log10(raw))
        step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= raw)
        first = ceil(self.low / step)
        return [step * (first + index) for index in range(floor(self.high / step) - first + 1)]


def _number(value: float) -> str:
    if value and not 1e-4 <= abs(value) < 1e5:
        mantissa, exponent = f"{value:.0e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    return f"{value:.6g}"


def _text(x: float, y: float, text: str, anchor: str = "middle", style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {style}>{escape(text)}</text>'


def _panel(panel: Panel, height: int) -> str:
    bottom = TOP + height
    values = [v for s in panel.series for v in (*s.y, *s.low, *s.high)]
    values = values if panel.y_floor is None else [max(v, panel.y_floor) for v in values]
    values = [v for v in values if v > 0 or not panel.log_y]
    across = _Axis.around([v for s in panel.series for v in s.x], LEFT, WIDTH - RIGHT, panel.log_x)
    up = _Axis.around(values, bottom, TOP, panel.log_y, zero=panel.from_zero)
    parts = [_text(LEFT, 20, panel.title, "start", f'style="font-weight:600;fill:{INK}"')]
    for tick in up.ticks():
        y = up.place(tick)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{GRID}"/>')
        parts.append(_text(LEFT - 6, y + 4, _number(tick), "end"))
    for tick in across.ticks():
        x = across.place(tick)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 4}" stroke="{SOFT}"/>')
        parts.append(_text(x, bottom + 17, _number(tick)))
    parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}" stroke="{SOFT}"/>')
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, bottom + 36, panel.x_label))
    middle = (TOP + bottom) / 2
    parts.append(_text(12, middle, panel.y_label, "middle", f'transform="rotate(-90 12 {middle:.1f})"'))
    legend, x, y = [], float(LEFT), bottom + BOTTOM + 8.0
    for index, series in enumerate(panel.series):
        colour = COLOURS[(index if series.colour is None else series.colour) % len(COLOURS)]
        parts.append(_drawn(series, colour, across, up, panel.y_floor))
        if not series.name:
            continue
        wide = 30 + 6.3 * len(series.name)
        if x + wide > WIDTH and x > LEFT:
            x, y = float(LEFT), y + LEGEND_ROW
        legend.append(_key(series.mark, colour, x, y) + _text(x + 22, y, series.name, "start"))
        x += wide + 6
    return "".join(parts + legend)


def _legend_rows(panel: Panel) -> int:
    x, rows = float(LEFT), 1
    for series in panel.series:
        wide = 30 + 6.3 * len(series.name)
        if series.name and x + wide > WIDTH and x > LEFT:
            x, rows = float(LEFT), rows + 1
        x += wide + 6 if series.name else 0
    return rows


def _stroke(mark: str) -> str:
    return 'stroke-width="1.6" stroke-dasharray="5 4"' if mark == "dashed" else 'stroke-width="2"'


def _key(mark: str, colour: str, x: float, y: float) -> str:
    line = f'<line x1="{x}" x2="{x + 16}" y1="{y - 4}" y2="{y - 4}" stroke="{colour}" {_stroke(mark)}/>'
    dot = f'<circle cx="{x + 8}" cy="{y - 4}" r="3.2" fill="{colour}"/>'
    return {"points": dot, "both": line + dot}.get(mark, line)


def _drawn(series: Series, colour: str, across: _Axis, up: _Axis, y_floor: float | None) -> str:
    def height(value: float) -> float | None:
        value = value if y_floor is None else max(value, y_floor)
        return None if up.is_log and value <= 0 else up.place(value)

    points = [(across.place(x), height(y)) for x, y in zip(series.x, series.y, strict=True)]
    shown = [(x, y) for x, y in points if y is not None]
    parts = []
    if series.mark != "points":
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in shown)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" {_stroke(series.mark)}/>')
    for (x, _), low, high in zip(points, series.low, series.high, strict=False):
        ends = height(low), height(high)
        if ends[0] is not None and ends[1] is not None:
            parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{ends[0]:.1f}" y2="{ends[1]:.1f}" stroke="{colour}"/>')
    if series.mark in ("points", "both"):
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" fill="{colour}"/>' for x, y in shown]
    return "".join(parts)


def draw(path: Path, panels: Sequence[Panel]) -> Path:
    """Write panels side by side, at most two in a row."""
    columns = min(2, len(panels))
    body, top = [], 0
    for start in range(0, len(panels), columns):
        row = panels[start : start + columns]
        plot = HEIGHT - TOP - BOTTOM
        for column, panel in enumerate(row):
            body.append(f'<g transform="translate({column * (WIDTH + 10)} {top})">{_panel(panel, plot)}</g>')
        top += HEIGHT + 12 + LEGEND_ROW * max(map(_legend_rows, row))
    width = columns * (WIDTH + 10)
    label = escape("; ".join(panel.title for panel in panels))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top}" width="{width}" role="img" '
        f'aria-label="{label}"><style>text{{font:12px system-ui,sans-serif;fill:{SOFT}}}</style>'
        f'<rect width="{width}" height="{top}" fill="#fff"/>{"".join(body)}</svg>\n'
    )
    return path


def of_rows(name: str, rows: Sequence[dict], x: str, y: str, mark: str = "both", **more: int) -> Series:
    """A series from the rows of a table, with intervals where the rows have them."""
    bounds = [[row[f"{y}_{end}"] for row in rows] if f"{y}_{end}" in rows[0] else () for end in ("low", "high")]
    return Series(name, [row[x] for row in rows], [row[y] for row in rows], *bounds, mark=mark, **more)
