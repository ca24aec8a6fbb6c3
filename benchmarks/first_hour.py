"""A stranger's first hour: the documents word by word, the way to a first prediction, sixty mistakes, and start-up.

Commands of the documents and mistakes run in this process, through the program's own entry; what is timed runs as a
stranger runs it. `--only STAGE` runs one of docs, first, mistakes, startup, evaluate; `--demo FOLDER` uses that
demonstration instead of making one.
"""

import argparse
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from common import PLAIN_PROCESS, ROOT, machine, write_result
from markdown_it import MarkdownIt

sys.path.append(str(ROOT / "tests" / "cli"))
from newcomers import MISTAKES, SUPPORT, make_place

WORDS = {
    "LIB": "library",
    "SUPPORT": SUPPORT,
    "EXAMPLES": SUPPORT,
    "DATA": "tasks/thai",
    "INPUTS": "tasks/thai/query",
    "RECIPE": "t.safetensors",
    "ROUTER": "router",
    "BASE": "library/base",
    "SOURCE...": "checkpoints/novel",
    "SOURCE": "checkpoints/novel",
}
"""What stands in documents and remedies for something of one's own."""

SLOW = ("smatter train", "smatter profile", "smatter demo", "smatter suite build", "smatter evaluate", "--workers")
LEFT = r"\b[A-Z]{3,}\b"
"""A placeholder that nothing stands for."""
Figures = dict[str, Any]


def run_here(words: list[str], place: Path) -> tuple[int, str, str]:
    """A command in this process: exit code, output and errors."""
    from smatter.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    with chdir(place), redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as end:
            code = int(end.code or 0)
    return code, out.getvalue(), err.getvalue()


def run_there(words: list[str], place: Path) -> tuple[float, str]:
    """A command as a process: seconds and output."""
    begin = time.perf_counter()
    env = {**os.environ, **PLAIN_PROCESS, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-m", "smatter", *words], cwd=place, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return time.perf_counter() - begin, done.stdout


def filled(line: str, numbered: Callable[[], str]) -> list[str]:
    """The words of a command of the documents, with something in the place of its placeholders."""
    line = re.sub(r"\s+#.*$| {3,}.*$", "", line)
    words: list[str] = []
    for word in shlex.split(line.replace("[", "").replace("]", "")):
        if words and words[-1] in ("-o", "--output", "--report"):
            words.append(f"new-{numbered()}{'.html' if words[-1] == '--report' else Path(word).suffix}")
        else:
            words += WORDS[word].split() if word in WORDS else [word]
    return words


def blocks() -> list[tuple[str, str, str]]:
    """Page, language and text of every code block."""
    found = []
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for token in MarkdownIt("commonmark").parse(page.read_text()):
            if token.type in ("fence", "code_block"):
                found.append((page.name, token.info.strip(), token.content))
    return found


def follow_documents(place: Path) -> Figures:
    """Run every block that can be run here; the README's own in one folder, in its order."""
    count = iter(range(10_000))
    told: dict[str, list[Any]] = {"run": [], "failed": [], "left out": []}
    for page, language, text in blocks():
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
        name = f"{page}: {lines[0][:60] if lines else ''}"
        if language == "python" or (lines and lines[0].startswith("import smatter")):
            if "import smatter" not in text or page != "README.md":
                told["left out"].append(name)  # parts of a program, on data of their own
                continue
            code = f"import sys\nsys.path.insert(0, {str(ROOT / 'src')!r})\n{text}"
            done = subprocess.run([sys.executable, "-c", code], cwd=place, capture_output=True, text=True)
            told["run"].append(name)
            if done.returncode:
                told["failed"].append([name, done.stderr.strip().splitlines()[-1]])
            continue
        commands = [line for line in lines if line.startswith("smatter ")]
        is_run = False
        for line in commands:
            words = line.split("   ")[0] if page == "README.md" else " ".join(filled(line, lambda: str(next(count))))
            if set("|-") & set(words.split()) or any(each in words for each in SLOW) or re.search(LEFT, words):
                continue
            given = shlex.split(re.sub(r"\s+#.*$", "", words), comments=True)[1:]
            if page != "README.md" and not _is_at_hand(given, place):
                continue
            is_run = True
            code, _, errors = run_here(given, place)
            print(f"{page}: {' '.join(given)}: {code}", file=sys.stderr, flush=True)
            if code:
                told["failed"].append([f"{page}: {line}", errors.strip()])
        told["run" if is_run else "left out"].append(name)
    figures: Figures = {f"blocks_{key.replace(' ', '_')}": len(each) for key, each in told.items()}
    return {"figures": figures, "tables": {"documents": told}}


def _is_at_hand(words: list[str], place: Path) -> bool:
    """Whether the files that a command reads are there: documents speak of other people's, too."""
    skip = {"-o", "--output", "--report", "--cache", "--work"}
    for before, word in zip(["", *words], words, strict=False):
        looks_like_file = "/" in word or re.search(r"\.(csv|jsonl|yaml|json|safetensors|png|jpg)$", word)
        if looks_like_file and before not in skip and not word.startswith("-") and not (place / word).exists():
            return False
    return words[0] == "methods" or (len(words) > 1 and any((place / word).exists() for word in words))


def first_prediction(place: Path) -> Figures:
    """From own checkpoints and own pictures to names: every command that it takes, and the seconds of all."""
    commands = [
        ["library", "init", "mine", "library/base", "library/latin", "library/emoji", "library/symbols"],
        ["adapt", "mine", SUPPORT, "-o", "first.safetensors"],
        ["predict", "first.safetensors", "tasks/thai/query", "--library", "mine"],
    ]
    seconds, out = 0.0, ""
    for words in commands:
        took, out = run_there(words, place)
        seconds += took
    assert len(out.splitlines()) > 1
    return {"figures": {"seconds_to_first_prediction": seconds, "commands_to_first_prediction": len(commands)}}


def make_mistakes(place: Path) -> Figures:
    """Each ends in one line and code 2; where it names a command or words to give, that is followed."""
    told = []
    for mistake in MISTAKES:
        code, out, errors = run_here(shlex.split(mistake), place)
        row: dict[str, Any] = {"words": mistake, "code": code, "lines": errors.count("\n"), "said": errors.strip()}
        row["is_one_line"] = code == 2 and errors.count("\n") == 1 and not out
        if remedy := _remedy(mistake, errors):
            copy = place.parent / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(place, copy)
            found, _, said = run_here(remedy, copy)
            row |= {"followed": shlex.join(remedy), "works": found == 0, "then": said.strip()}
        told.append(row)
    followed = [row for row in told if "works" in row]
    return {
        "figures": {
            "mistakes": len(told),
            "mistakes_in_one_line_and_code_2": sum(row["is_one_line"] for row in told),
            "remedies_followed": len(followed),
            "remedies_followed_that_work": sum(row["works"] for row in followed) / len(followed),
        },
        "tables": {"mistakes": told},
    }


def _remedy(mistake: str, errors: str) -> list[str] | None:
    """The command that a line names, with something in the place of its placeholders; or the words it says to give."""
    words = shlex.split(mistake)
    if named := re.search(r"`smatter ([^`]+ [^`]+)`", errors):
        command = re.sub(r"^library init LIB\b", "library init mine", named[1])  # a name of one's own
        return filled(command.replace("--name NAME", "--name another"), lambda: "0")
    if given := re.search(r"exchange them, (.+)$", errors):
        return [mistake.split()[0], *shlex.split(given[1])]
    if given := re.search(r": give (\S*/\S+)$", errors):
        return [*mistake.split()[:2], *shlex.split(given[1])]
    if "--replace" in errors and "--replace" not in mistake:
        return [*shlex.split(mistake), "--replace"]
    if near := re.search(r"Possible options: (--[a-z-]+)", errors):
        return shlex.split(mistake.replace(words[-2], near[1]))
    if near := re.search(r"has no setting '(\w+)', like '(\w+)'", errors):
        return shlex.split(mistake.replace(near[1] + "=", near[2] + "="))
    if option := re.search(r"leave out (--[a-z-]+)", errors):
        at = words.index(option[1])
        return words[:at] + words[at + 2 :]
    if value := re.search(r"give (--[a-z-]+) (\d+)", errors):
        at = words.index(value[1])
        return [*words[:at], value[1], value[2], *words[at + 2 :]]
    if option := re.search(r"say (--[a-z-]+)( predictions)?", errors):
        return [*words, *option[0].split()[1:]]
    return None


def start_up(place: Path) -> Figures:
    """Commands that need no torch import none; adapting costs little beside imports and passes."""
    program = (
        "import sys\nfrom smatter.cli.main import main\nmain(sys.argv[1:])\n"
        "print('torch' in sys.modules, file=sys.stderr)"
    )
    env = {**os.environ, **PLAIN_PROCESS, "PYTHONPATH": str(ROOT / "src")}

    def timed(code: str, *words: str) -> tuple[float, str]:
        begin = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", code, *words], cwd=place, env=env, capture_output=True, text=True)
        return time.perf_counter() - begin, done.stderr.strip().splitlines()[-1] if done.stderr else done.stdout

    free = [["--help"], ["--version"], ["library", "list", "library"], ["adapt", "library", "nowhere"]]
    with_torch = [words for words in free if timed(program, *words)[1] != "False"]
    passes = (
        "import time, torch, transformers; torch.set_num_threads(1); import smatter\n"
        "from smatter.live.mixture import LiveMixture; from smatter.live.task import Task\n"
        "from smatter import methods; from smatter.tasks.support import read_support\n"
        "live = LiveMixture(smatter.open_library('library'))\n"
        f"task = Task.of(live, read_support({SUPPORT!r}))\n"
        "begin = time.perf_counter()\n"
        "for name in live.library.names: live.compose(smatter.Mixture.of({name: 1.0})); live.read(task.objective)\n"
        "print(time.perf_counter() - begin)"
    )
    ratios = []
    for _ in range(3):
        imports = timed("import torch, transformers; transformers.ConvNextModel")[0]
        alone = float(timed(passes)[1])
        whole = run_there(["adapt", "library", SUPPORT], place)[0]
        ratios.append(whole / (imports + alone))
    ratio = sorted(ratios)[1]
    return {
        "figures": {"commands_that_import_torch_needlessly": len(with_torch), "adapt_overhead_ratio": ratio},
        "tables": {"adapt_overhead_ratios": ratios},
    }


def evaluate_all(place: Path) -> Figures:
    """Twenty classes of thirty pictures, six sources, every method, two processes."""
    data, pictures = place / "twenty", sorted((place / "tasks").glob("*/*/*/*.png"))
    by_class: dict[Path, list[Path]] = {}
    for path in pictures:
        by_class.setdefault(path.parent.parent.parent / path.parent.name, []).append(path)
    for number, paths in enumerate(list(by_class.values())[:20]):
        (data / f"class-{number}").mkdir(parents=True)
        for index in range(30):
            source = paths[index % len(paths)]
            target = data / f"class-{number}" / f"{index}.png"
            _varied(source, target, index // len(paths))
    words = ["evaluate", "library", str(data), "--tasks", "1", "--workers", "2", "--router", "router", "--json"]
    seconds, out = run_there(words, place)
    told = json.loads(out)
    again = json.loads(run_there(words, place)[1])
    return {
        "figures": {
            "evaluate_seconds": seconds,
            "evaluate_methods": len(told["methods"]),
            "evaluate_is_the_same_again": float(told == again),
        }
    }


def _varied(source: Path, target: Path, turn: int) -> None:
    """A picture, or the same one a little darker, so that none is there twice."""
    from PIL import Image

    Image.open(source).convert("RGB").point(lambda value: max(0, value - 5 * turn)).save(target)


STAGES: dict[str, Callable[[Path], Figures]] = {
    "first": first_prediction,
    "startup": start_up,
    "mistakes": make_mistakes,
    "docs": follow_documents,
    "evaluate": evaluate_all,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=STAGES, action="append")
    parser.add_argument("--demo", type=Path)
    options = parser.parse_args()
    begin, figures, tables = time.perf_counter(), {}, {}
    with tempfile.TemporaryDirectory() as scratch:
        demo = options.demo or Path(scratch) / "demo"
        if options.demo is None:
            run_there(["demo", "-o", str(demo)], Path(scratch))
        for name in options.only or [name for name in STAGES if not options.quick or name != "evaluate"]:
            place = Path(scratch) / name / "place"
            place.mkdir(parents=True)
            make_place(demo, place)
            if name in ("mistakes", "docs"):
                run_here(["adapt", "library", SUPPORT, "-o", "t.safetensors"], place)
            found = STAGES[name](place)
            figures |= found["figures"]
            tables |= found.get("tables", {})
            print(name, json.dumps(found["figures"]), flush=True)
    told = json.loads(json.dumps(tables).replace(scratch, "PLACE"))
    seconds = time.perf_counter() - begin
    write_result("first_hour", figures, told, machine(("torch", "transformers"), 1), seconds, options.quick)


if __name__ == "__main__":
    main()
