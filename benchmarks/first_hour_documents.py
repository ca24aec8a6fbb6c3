"""Every code block of README and docs, run word by word in a shell, or in one Python for each page.

A stranger puts things of their own where a page says LIB or SUPPORT: `THINGS` are ours. What takes long runs with fewer
steps or tasks (`SHORTER`), and what cannot run here is left out with its reason (`LEFT_OUT`); both are in the result.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from common import PLAIN_PROCESS
from markdown_it import MarkdownIt

THINGS = {
    "LIB": "library",
    "SUPPORT": "tasks/thai/support",
    "EXAMPLES": "tasks/thai/support",
    "DATA": "my-pictures",
    "INPUTS": "tasks/thai/query",
    "ROUTER": "router",
    "RECIPE": "thai.safetensors",
    "FILE": "thai.safetensors",
    "BASE": "library/base",
    "SOURCE...": "checkpoints/novel",
    "SOURCE": "checkpoints/novel",
    "NAME": "novel",
    "SUITE": "signs",
    "TREE": "my-suite",
    "OUT": "out",
    "NEW": "new.safetensors",
    "REGEX": "'(encoder)'",
}
"""What stands in the documents for something of one's own, and what it is here."""

INSTEAD = {
    r"library init LIB BASE SOURCE\.\.\.": "library init mine library/base library/latin",
    r"library init LIB": "library init mine",
    r"suite (show|task|freeze) SUITE": r"suite \1 my-suite",
    r"library safe LIB NAME": "library safe library base",
    r"library add LIB SOURCE --accept": "library add texts checkpoints/other --accept",
    r"\ba=\.7,b=\.3": "latin=.7,emoji=.3",
    r"\ba=\.8,b=\.6": "latin=.8,emoji=.6",
    r"texts\.csv --library LIB": "texts.csv --library texts",
    r"predict task\.safetensors texts\.csv": "predict words.safetensors texts.csv",
    r"^(.*predict .* - --library)": r"ls pictures/*.png | \1",
    r"--budget 8ms": "--budget 1.2x",
    r"evaluate library shots\.csv": "evaluate texts shots.csv",
    r"\s\[[^]]*\]": "",
}
"""Words of a command that a stranger replaces; what is in brackets may be left out."""

SHORTER = {
    r"(train (?!.*--from).*)$": r"\1 --steps 4",
    r"(train .*--posterior.*)$": r"\1 --tables 12",
    r"(evaluate library signs .*)--tasks 40": r"\1--tasks 1",
    r"(calibrate \S+ calibration\S*)": r"\1 --tasks 50",
    r"(catalogue .*)--size 8": r"\1--size 2 --tables 12",
    r"(theory\.py|certificates\.py)(?! --quick)": r"\1 --quick",
}
"""What would take minutes to hours, and is run with fewer steps, tasks or tables."""

LEFT_OUT = {
    r"^make test": "twelve minutes; what CI runs",
    r"^hf download": "needs the network",
    r"--domain greek": "needs limits of that domain: all calibration tasks",
    r"^make (words|sources-words|router-words|bench-)|\.build/words": "hours, and downloads",
    r"certificates_(tasks|real)\.py": "collects tasks until it is stopped",
}
"""Lines that are not run, and why."""

IS_COMMAND = re.compile(r"^(\$ )?(smatter|make|source|hf|pip|\.venv/bin/python) ")
Row = dict[str, Any]


@dataclass(frozen=True)
class Block:
    """A block of code; `shown` is the output that the next block shows of it."""

    page: str
    number: int
    language: str
    text: str
    shown: str = ""

    @property
    def kind(self) -> str:
        if self.language in ("python", "text", "json"):
            return self.language
        return "shell" if IS_COMMAND.match(self.text) else "no program"


def pages(root: Path) -> list[Path]:
    """README and docs of a clone."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """Those of a page, in its order; one of language `text` is what the one before shows."""
    tokens = [each for each in MarkdownIt("commonmark").parse(page.read_text()) if each.type in ("fence", "code_block")]
    texts = [(each.info.strip(), each.content) for each in tokens]
    found = []
    for number, ((language, text), (next_language, next_text)) in enumerate(pairwise([*texts, ("", "")])):
        shown = next_text if next_language == "text" else ""
        found.append(Block(page.name, number, language, text, shown))
    return found


def commands(text: str) -> Iterator[tuple[str, str]]:
    """The lines of a block and the output shown of each; with a prompt what follows is output."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if not any(line.startswith("$ ") for line in lines):
        yield from ((line, "") for line in lines)
        return
    for part in re.split(r"^\$ ", "\n".join(lines), flags=re.M)[1:]:
        line, _, shown = part.partition("\n")
        yield line, shown


def own_words(line: str) -> str:
    """A command with one's own things in it, without what is said of it."""
    line = re.sub(r"\s+#.*$", "", line)
    for pattern, words in INSTEAD.items():
        line = re.sub(pattern, words, line)
    for word, thing in THINGS.items():
        line = re.sub(rf"(?<![\w./-]){re.escape(word)}(?![\w./-])", thing, line)
    return line


def shorter(line: str) -> str:
    for pattern, words in SHORTER.items():
        line = re.sub(pattern, words, line)
    return line


def differs(shown: str, told: str) -> str:
    """The first line that is shown and was not told; dots stand for what is left out, numbers may differ by 2 %."""
    rest = [line.split() for line in told.splitlines()]
    for line in shown.splitlines():
        if line.strip() == "..." or not line.strip():
            continue
        at = next((place for place, words in enumerate(rest) if _alike(line.split(), words)), None)
        if at is None:
            return f"shown, and not told: {line}"
        rest = rest[at + 1 :]
    return ""


def _alike(words: list[str], others: list[str]) -> bool:
    if words[-1] == "...":
        words, others = words[:-1], others[: len(words) - 1]
    return len(words) == len(others) and all(map(_alike_word, words, others))


def _alike_word(word: str, other: str) -> bool:
    number = r"[-+]?\d+(?:\.\d+)?(?:e-?\d+)?"
    if re.sub(number, "0", word) != re.sub(number, "0", other):
        return False
    pairs = zip(re.findall(number, word), re.findall(number, other), strict=True)
    return all(a == b or abs(float(a) - float(b)) <= 0.02 * abs(float(a)) + 0.002 for a, b in pairs)


class Stranger:
    """Somebody who follows one page in a folder, with an environment's programs."""

    def __init__(self, place: Path, binaries: Path, is_plain: bool = True):
        self.place, self.binaries, self.is_plain = place, binaries, is_plain
        self.here = place.parent / f"{place.name}.here"
        self.env = {**os.environ, **PLAIN_PROCESS, "PATH": f"{binaries}:{os.environ['PATH']}", "COLUMNS": "120"}
        self.env.pop("PYTHONPATH", None)
        self.is_begun = False

    def run(self, line: str) -> tuple[int, str, str]:
        """A line where the one before ended: code, output, errors.

        A plain command of Smatter goes through the program's own entry in one process of the environment, where torch
        is imported once; all else, and every line of the README, goes to a shell.
        """
        self._make_room(line)
        if self.is_plain and line.startswith("smatter ") and not set(shlex.split(line)) & {"|", "&&", "-", "--workers"}:
            return self._ask(shlex.split(line)[1:])
        script = f"{line}\ncode=$?; pwd > {shlex.quote(str(self.here))}; exit $code"
        done = subprocess.run(["bash", "-c", script], cwd=self.place, env=self.env, capture_output=True, text=True)
        self.place = Path(self.here.read_text().strip())
        return done.returncode, done.stdout, done.stderr

    def _make_room(self, line: str) -> None:
        """Take away what the same page wrote before under the same name, as whoever tries one way after the other."""
        words = line.split()
        for before, word in pairwise(words):
            target = self.place / word
            if before in ("-o", "--output", "init") and target.exists() and "--replace" not in words:
                shutil.rmtree(target) if target.is_dir() else target.unlink()

    def python(self, code: str) -> tuple[int, str, str]:
        """A block of Python, in the names that the page's blocks before have left."""
        return self._ask(code)

    def _ask(self, given: str | list[str] | dict[str, str]) -> tuple[int, str, str]:
        if not self.is_begun:
            self.is_begun = True
            self._ask({"begin in": str(self.place)})
        process = _interpreter(self.binaries, tuple(sorted(self.env.items())))
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(given) + "\n")
        process.stdin.flush()
        code, out, errors = json.loads(process.stdout.readline())
        return code, out, errors


@cache
def _interpreter(binaries: Path, env: tuple[tuple[str, str], ...]) -> "subprocess.Popen[str]":
    """One Python of an environment for all pages, each of which begins anew in it: importing torch takes long."""
    program = [binaries / "python", "-u", "-c", INTERPRETER]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(program, env=dict(env), text=True, **pipes)


INTERPRETER = """
import contextlib, io, json, os, sys, traceback

names, answers = {"__name__": "__main__"}, sys.stdout

def command(words):
    from smatter.cli.main import main
    try:
        return main(words)
    except SystemExit as end:
        return int(end.code or 0)

for line in sys.stdin:
    given, out, errors, code = json.loads(line), io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        if isinstance(given, dict):
            os.chdir(given["begin in"])
            names = {"__name__": "__main__"}
        elif isinstance(given, list):
            code = command(given)
        else:
            try:
                exec(compile(given, "block", "exec"), names)
            except Exception:
                code, errors = 1, io.StringIO(traceback.format_exc().strip().splitlines()[-1])
    print(json.dumps([code, out.getvalue(), errors.getvalue()]), file=answers, flush=True)
"""


def follow(block: Block, stranger: Stranger) -> Row:
    """Run a block and compare what it tells with what is shown of it."""
    row: Row = {"page": block.page, "block": block.number, "first": block.text.splitlines()[0][:80], "ran": []}
    if block.kind == "python":
        row["ran"] = ["python"]
        code, out, errors = stranger.python(block.text)
        row["failed"] = [errors] if code else [each] if (each := differs(block.shown, out)) else []
        row["compared"] = bool(block.shown)
        return row
    row |= {"failed": [], "left_out": [], "shortened": [], "seconds": [], "compared": False}
    for line, shown in commands(block.text):
        if why := next((why for pattern, why in LEFT_OUT.items() if re.search(pattern, line)), ""):
            row["left_out"].append([line, why])
            continue
        whole = own_words(line)
        given = shorter(whole)
        begin = time.perf_counter()
        code, out, errors = stranger.run(given)
        print(f"{block.page} {time.perf_counter() - begin:5.1f} s, {code}: {given}", file=sys.stderr, flush=True)
        row["ran"].append(given)
        row["seconds"].append(time.perf_counter() - begin)
        row["compared"] = row["compared"] or bool(shown or block.shown)
        if given != whole:
            row["shortened"].append([whole, given])
        if code:
            row["failed"].append([given, (errors.strip().splitlines() or [out])[-1]])
        elif difference := differs(shown or block.shown, out):
            row["failed"].append([given, difference])
    return row


def follow_page(page: Path, stranger: Stranger) -> list[Row]:
    """All blocks of a page that are programs."""
    return [follow(block, stranger) for block in blocks(page) if block.kind in ("python", "shell")]


def summary(documents: dict[str, Any]) -> dict[str, int]:
    """How many blocks ran, failed, were shortened or left out; the rest is formulas, maps and shown output."""
    rows = [row for page in documents.values() for row in page["programs"]]
    ran, n_blocks = [row for row in rows if row["ran"]], sum(page["blocks"] for page in documents.values())
    return {
        "pages": len(documents),
        "blocks": n_blocks,
        "blocks_run": len(ran),
        "blocks_failed": sum(bool(row["failed"]) for row in ran),
        "blocks_shortened": sum(bool(row.get("shortened")) for row in ran),
        "blocks_left_out": len(rows) - len(ran),
        "blocks_that_are_no_programs": n_blocks - len(rows),
        "blocks_whose_output_is_compared": sum(bool(row.get("compared")) for row in ran),
    }
