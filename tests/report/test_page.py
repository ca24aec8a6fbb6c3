import io
import re
from html.parser import HTMLParser

import numpy as np
from PIL import Image

from smatter.report import page
from smatter.report.pictures import contact_sheet


class Collector(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href") and value]


def test_a_page_is_offline_and_escapes_what_it_shows() -> None:
    nasty = "<script>alert('x')</script>"
    text = page.page(
        nasty, nasty, page.section(nasty, nasty, page.table([nasty], [[nasty], [0.5]]), page.code(nasty)),
        page.line_chart({nasty: [0.1, 0.9]}, [0, 1], nasty, nasty), page.pictures({nasty: b"png"}, 10),
        page.bar_chart({nasty: 0.5}, nasty, {nasty: 0.1}),
    )  # fmt: skip
    collected = Collector()
    collected.feed(text)
    assert "script" not in collected.tags
    assert all(link.startswith("data:") for link in collected.links)
    assert not re.search(r"https?://", text)


def test_bars_are_as_long_as_their_values_and_whiskers_stay_inside() -> None:
    chart = page.bar_chart({"half": 0.5, "all": 1.0, "none": 0.0}, "shares", {"all": 0.4, "half": 0.1})
    half, all_, none = (float(width) for width in re.findall(r'<rect[^>]* width="([\d.]+)"', chart))
    assert (half, none) == (all_ / 2, 0)
    starts, ends = zip(*re.findall(r'd="M([\d.]+) [\d.]+H([\d.]+)"', chart), strict=True)
    assert float(ends[1]) == 210 + all_ and float(starts[0]) < 210 + half < float(ends[0])
    assert "50.0 %" in chart and "100.0 %" in chart


def test_lines_rise_with_their_values() -> None:
    chart = page.line_chart({"up": [0.0, 0.5, 1.0]}, [0, 1, 2], "x", "y")
    points = re.search(r'points="([^"]+)"', chart)
    assert points
    heights = [float(point.split(",")[1]) for point in points[1].split()]
    assert heights == sorted(heights, reverse=True)


def test_pictures_stand_side_by_side_on_white() -> None:
    pictures = np.random.default_rng(0).integers(0, 255, (3, 4, 5, 3), dtype=np.uint8)
    sheet = np.asarray(Image.open(io.BytesIO(contact_sheet(pictures, 2, gap=1))))
    assert sheet.shape == (9, 11, 3)
    assert np.array_equal(sheet[:4, :5], pictures[0]) and np.array_equal(sheet[:4, 6:], pictures[1])
    assert np.array_equal(sheet[5:, :5], pictures[2])
    assert (sheet[4] == 255).all() and (sheet[:, 5] == 255).all() and (sheet[5:, 6:] == 255).all()
