import re
from html.parser import HTMLParser

import numpy as np

from smatter.report import page
from smatter.report.png import grey_png


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
    )  # fmt: skip
    collected = Collector()
    collected.feed(text)
    assert "script" not in collected.tags
    assert all(link.startswith("data:") for link in collected.links)
    assert not re.search(r"https?://", text)


def test_lines_rise_with_their_values() -> None:
    chart = page.line_chart({"up": [0.0, 0.5, 1.0]}, [0, 1, 2], "x", "y")
    points = re.search(r'points="([^"]+)"', chart)
    assert points
    heights = [float(point.split(",")[1]) for point in points[1].split()]
    assert heights == sorted(heights, reverse=True)


def test_png_survives_another_reader() -> None:
    import struct
    import zlib

    pixels = np.random.default_rng(0).integers(0, 256, (5, 7), dtype=np.uint8)
    data = grey_png(pixels)
    width, height = struct.unpack(">II", data[16:24])
    start = data.index(b"IDAT") + 4
    size = struct.unpack(">I", data[start - 8 : start - 4])[0]
    rows = np.frombuffer(zlib.decompress(data[start : start + size]), np.uint8).reshape(height, width + 1)
    assert np.array_equal(rows[:, 1:], pixels)
