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
    assert [float(width) for width in re.findall(r'<i style="width:([\d.]+)%"', chart)] == [50, 100, 0]
    whiskers = re.findall(r'<b style="left:([\d.]+)%;width:([\d.]+)%"', chart)
    assert [(float(left), float(width)) for left, width in whiskers] == [(40, 20), (60, 40)]
    assert 'aria-label="shares: half 50.0 %, all 100.0 %, none 0.0 %"' in chart


def test_the_best_of_a_row_or_a_column_is_bold() -> None:
    rows = [["a", 0.1, 0.9], ["b", 0.3, 0.2]]
    for best, bold in (("row", ["90.0", "30.0"]), ("column", ["90.0", "30.0"]), (None, [])):
        text = page.table(["", "x", "y"], rows, best)  # type: ignore[arg-type]
        assert re.findall(r"<strong>([\d.]+)", text) == bold
    text = page.table(["", "x", "y"], [["a", 0.1, 0.9], ["b", 0.3, 0.95]], "column")
    assert re.findall(r"<strong>([\d.]+)", text) == ["30.0", "95.0"]


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
