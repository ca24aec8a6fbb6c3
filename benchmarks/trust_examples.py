"""Hostile examples: tables of texts, and pictures."""

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Sequence
from typing import Any

from trust_cases import CONTROL, Case, Words
from trust_world import World

ROW = "filler1 law0a,law-0\nfiller2 law1a,law-1\n"
TABLES: dict[str, bytes] = {
    "empty": b"", "header only": b"text,label\n", "no label": b"text\na\n",
    "twice a column": b"text,text,label\na,b,c\n",
    "nul": f"text,label\na\0b,law-0\n{ROW}".encode(), "not utf-8": b"text,label\n\xff\xfe,a\nb,c\n",
    "utf-16": ("text,label\n" + ROW).encode("utf-16"), "bom": b"\xef\xbb\xbf" + f"text,label\n{ROW}".encode(),
    "quotes without end": b'text,label\n"abc,law\n' + b"x\n" * 10**5,
    "huge field": b"text,label\n" + b"x" * 5_000_000 + b",a\nb,c\n",
    "huge label": b"text,label\na," + b"x" * 5_000_000 + b"\nb,c\n",
    "many rows": b"text,label\n" + b"filler1,a\nfiller2,b\n" * 20_000,
    "many columns": b"text,label" + b",x" * 50_000 + b"\n" + ROW.encode(),
    "control labels": f'text,label\na,"{CONTROL}"\nb,"{CONTROL}2"\n'.encode(),
    "control texts": f'text,label\n"{CONTROL}",law-0\n"{CONTROL}",law-1\n'.encode(),
    "one letter": b"text,label\n" + b"a" * 90_000 + b",a\n" + b"b" * 90_000 + b",b\n",
    "combining": ("text,label\n" + "e" + "\u0301" * 50_000 + ",a\nb,b\n").encode(),
    "carriage returns": b"text,label\rfiller1,a\rfiller2,b\r", "semicolons": b"text;label\na;b\n",
    "formula": b'text,label\n"=cmd|calc",=1+1\nb,@x\n', "blank lines": b"text,label\n\n\n\na,b\n\nc,d\n",
    "numbers": b"text,label\n1,1\n2,2\n", "same text": b"text,label\nfiller1,a\nfiller1,b\n",
    "tabs": b"text\tlabel\na\tb\n",
}  # fmt: skip
LINES: dict[str, bytes] = {
    "empty": b"", "blank": b"\n\n\n", "list": b"[1,2]\n", "cut": b'{"text": "a", "lab',
        "nan": b'{"text": NaN, "label": 1}\n',
    "numbers": b'{"text": 1, "label": 2}\n{"text": 3, "label": 4}\n', "nested": b'{"text": {"a": 1}, "label": []}\n',
    "twice": b'{"text": "a", "text": "b", "label": "c"}\n',
    "deep": b'{"text": ' + b"[" * 50_000 + b"]" * 50_000 + b"}\n",
    "surrogate": b'{"text": "\\ud800", "label": "a"}\n{"text": "b", "label": "\\udfff"}\n',
    "huge line": b'{"text": "' + b"x" * 5_000_000 + b'", "label": "a"}\n',
    "huge number": b'{"text": ' + b"9" * 100_000 + b"}\n",
    "nul": b'{"text": "a\\u0000b", "label": "a"}\n{"text": "b", "label": "b\\u0000"}\n',
    "control": json.dumps({"text": CONTROL, "label": CONTROL}).encode() + b'\n{"text": "b", "label": "b"}\n',
    "not utf-8": b'{"text": "\xff", "label": "a"}\n',
    "many keys": json.dumps({f"k{n}": n for n in range(50_000)}).encode(),
    "null": b'{"text": null, "label": null}\n', "array file": b'[{"text": "a", "label": "b"}]',
    "proto": b'{"__class__": "x", "text": "a", "label": "b"}\n{"text": "c", "label": "d"}\n',
}  # fmt: skip


def table_cases(template: World) -> list[Case]:
    del template
    cases = []
    for suffix, tables in (("csv", TABLES), ("jsonl", LINES)):
        for name, content in tables.items():

            def lay_out(world: World, suffix: str = suffix, content: bytes = content) -> Sequence[Words]:
                path = world.home / f"given.{suffix}"
                path.write_bytes(content)
                return [
                    ["adapt", world.texts, path, "-o", world.home / "r.safetensors", "--report", world.home / "p.html"]
                ]

            def as_inputs(world: World, suffix: str = suffix, content: bytes = content) -> Sequence[Words]:
                path = world.home / f"given.{suffix}"
                path.write_bytes(content)
                return [["predict", world.recipe, path, "--library", world.texts]]

            def as_suite(world: World, suffix: str = suffix, content: bytes = content) -> Sequence[Words]:
                path = world.home / f"given.{suffix}"
                path.write_bytes(content)
                return [["suite", "show", path], ["suite", "build", path, "-o", world.out]]

            cases += [
                Case("table", f"{suffix}, {name}, to adapt", lay_out),
                Case("table", f"{suffix}, {name}, to predict", as_inputs, codes=(0, 1, 2)),
                Case("table", f"{suffix}, {name}, a suite", as_suite),
            ]
    for name, text in {
        "control": CONTROL,
        "nul": "a\0b\n",
        "long": "x" * 10**6,
        "blank": "\n\n",
        "half": "\udcff\n",
    }.items():

        def lines(world: World, text: str = text) -> Sequence[Words]:
            (world.home / "given.txt").write_bytes(text.encode(errors="surrogateescape"))
            given = world.home / "given.txt"
            return [["predict", world.recipe, given, "--library", world.texts, "-o", world.home / "p.csv"]]

        cases.append(Case("table", f"lines, {name}", lines, codes=(0, 1, 2)))
    return cases


def png(width: int, height: int, data: bytes, depth: int = 8, colour: int = 2, extra: bytes = b"") -> bytes:
    """A PNG with this header, whatever it holds."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = zlib.crc32(kind + content).to_bytes(4, "big")
        return struct.pack(">I", len(content)) + kind + content + checksum

    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def _pictures() -> dict[str, bytes]:
    from PIL import Image

    def saved(kind: str, side: int = 64, **options: Any) -> bytes:
        file = io.BytesIO()
        Image.effect_noise((side, side), 50).convert("RGB").save(file, kind, **options)
        return file.getvalue()

    def zipped() -> bytes:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("bomb", bytes(10**7))
        return file.getvalue()

    text = struct.pack(">I", 0) + b"zTXt" + b"a\0\0" + zlib.compress(bytes(50_000_000))
    jpeg, sound = saved("JPEG"), saved("PNG")
    return {
        "bomb of 400 megapixels": png(20_000, 20_000, zlib.compress(bytes(10**6))),
        "bomb of 60 megapixels": png(60_000, 1_000, zlib.compress(bytes(60_000 * 3 * 1_000 + 1_000))),
        "bomb in a text": png(8, 8, zlib.compress(bytes(8 * 25)), extra=text),
        "side beyond": png(2**31 - 1, 1, b""), "no pixels": png(0, 0, b""), "no data": png(64, 64, b""),
        "sixteen bits": png(8, 8, zlib.compress(bytes(8 * 49)), depth=16), "bad depth": png(8, 8, b"x", depth=3),
        "palette without one": png(8, 8, zlib.compress(bytes(72)), colour=3),
        "cut jpeg": jpeg[: len(jpeg) // 2], "jpeg header": jpeg[:20], "cut png": sound[: len(sound) // 2],
        "zip": zipped(), "zip behind a png": sound + zipped(), "text": b"hello", "empty": b"", "gif": saved("GIF"),
        "tiff": saved("TIFF"), "ppm": b"P6 99999 99999 255\n",
        "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        "svg": b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>",
        "webp": saved("WEBP"), "cut webp": saved("WEBP")[:60], "bmp": saved("BMP"), "cut bmp": saved("BMP")[:80],
        "bmp of a negative side": saved("BMP")[:18] + b"\xff\xff\xff\xff" + saved("BMP")[22:],
        "icc garbage": saved("PNG", icc_profile=b"x" * 1000), "exif garbage": saved("JPEG",
            exif=b"Exif\0\0" + b"\xff" * 99),
        "one pixel": png(1, 1, zlib.compress(bytes(4))), "long": png(30_000, 1, zlib.compress(bytes(90_001))),
    }  # fmt: skip


def picture_cases(template: World) -> list[Case]:
    del template
    cases = []
    for name, content in _pictures().items():

        def put(world: World, content: bytes = content) -> None:
            (world.examples / "a" / "evil.png").write_bytes(content)

        def adapting(world: World, put: Any = put) -> Sequence[Words]:
            put(world)
            return [world.adapt_pictures("--report", str(world.home / "p.html"))]

        def predicting(world: World, put: Any = put) -> Sequence[Words]:
            put(world)
            words = ["predict", world.picture_recipe, world.examples, "--library", world.pictures]
            return [[*words, "--router", world.router]]

        def suite(world: World, put: Any = put) -> Sequence[Words]:
            put(world)
            return [["suite", "build", world.examples, "-o", world.out, "--size", "8"]]

        cases += [
            Case("picture", f"{name}, to adapt", adapting),
            Case("picture", f"{name}, to predict", predicting, codes=(0, 1, 2)),
            Case("picture", f"{name}, a suite", suite),
        ]
    return cases
