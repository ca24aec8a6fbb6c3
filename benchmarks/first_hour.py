"""A stranger's first hour: the documents word by word, the way to a first prediction, sixty mistakes, and start-up.

A fresh clone makes its own environment, as the README says; all that is timed, and every block of the documents, runs
there. Mistakes run in this process, through the program's own entry.
"""

import argparse
import io
import json
import os
import re
import resource
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import PLAIN_PROCESS, RESULTS, ROOT, machine, write_result
from first_hour_documents import Stranger, blocks, follow_page, own_words, pages, summary
from first_hour_place import lay_out

sys.path.append(str(ROOT / "tests" / "cli"))
from newcomers import MISTAKES, SUPPORT, make_place

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


@dataclass(frozen=True)
class Took:
    """What a command took, and told."""

    seconds: float
    processor: float
    out: str


def run_there(place: Path, *words: str | Path) -> Took:
    """A program of its own; refused where it fails."""
    env = {**os.environ, **PLAIN_PROCESS}
    env.pop("PYTHONPATH", None)
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([str(word) for word in words], cwd=place, env=env, capture_output=True, text=True)
    seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, (words, done.stderr[-2000:])
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(seconds, processor, done.stdout)


def prepare(work: Path) -> Path:
    """A clone of what is committed here; one that is there already is brought up to date."""
    clone = work / "clone"
    if clone.exists():
        run_there(clone, "git", "fetch", "--quiet", ROOT, "HEAD")
        run_there(clone, "git", "reset", "--quiet", "--hard", "FETCH_HEAD")
    else:
        run_there(work, "git", "clone", "--quiet", ROOT, clone)
    return clone


def follow_documents(work: Path, names: list[str], told: dict[str, Any]) -> Iterator[None]:
    """Run every block of the pages, the README's in the clone itself, each other page's in a folder of its own."""
    clone, model = work / "clone", work / "place"
    binaries = clone / ".venv" / "bin"
    for page in pages(clone):
        if names and page.name not in names:
            continue
        if page.name == "README.md":
            stranger = Stranger(clone, binaries, is_plain=False)
        else:
            if not model.exists():
                model.mkdir()
                lay_out(clone / "smatter-demo", model, binaries)
            place = work / "docs" / page.stem / "place"
            shutil.rmtree(place.parent, ignore_errors=True)
            shutil.copytree(model, place)
            for name in (".venv", "benchmarks"):
                (place / name).symlink_to(clone / name)
            stranger = Stranger(place, binaries)
        told[page.name] = {"blocks": len(blocks(page)), "programs": follow_page(page, stranger)}
        yield


def first_prediction(place: Path, binaries: Path) -> Figures:
    """From own checkpoints and own pictures to names: every command that it takes, and the seconds of all."""
    commands = [
        ["library", "init", "mine", "library/base", "library/latin", "library/emoji", "library/symbols"],
        ["adapt", "mine", SUPPORT, "-o", "first.safetensors"],
        ["predict", "first.safetensors", "tasks/thai/query", "--library", "mine"],
    ]
    took = [run_there(place, binaries / "smatter", *words) for words in commands]
    assert len(took[-1].out.splitlines()) > 1
    return {
        "figures": {
            "seconds_to_first_prediction": sum(each.seconds for each in took),
            "processor_seconds_to_first_prediction": sum(each.processor for each in took),
            "commands_to_first_prediction": len(commands),
        }
    }


def make_mistakes(place: Path, _: Path) -> Figures:
    """Each ends in one line and code 2; where it names a command or words to give, that is followed."""
    run_here(["adapt", "library", SUPPORT, "-o", "t.safetensors"], place)
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
        return shlex.split(own_words(f"smatter {command}".replace("--name NAME", "--name another")))[1:]
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


PASSES = f"""
import resource, torch, transformers; torch.set_num_threads(1); import smatter
from smatter.live.mixture import LiveMixture; from smatter.live.task import Task
from smatter.tasks.support import read_support
live = LiveMixture(smatter.open_library('library'))
task = Task.of(live, read_support({SUPPORT!r}))
import time
begin, before = time.perf_counter(), time.process_time()
for name in live.library.names: live.compose(smatter.Mixture.of({{name: 1.0}})); live.read(task.objective)
print(time.perf_counter() - begin, time.process_time() - before)
"""
IMPORTED = (
    "import sys\nfrom smatter.cli.main import main\nmain(sys.argv[1:])\nprint('torch' in sys.modules, file=sys.stdout)"
)


def start_up(place: Path, binaries: Path) -> Figures:
    """Commands that need no torch import none; adapting costs little beside imports and passes."""
    python, free = binaries / "python", ["--help", "--version", "library list library", "adapt library nowhere"]
    told = [run_there(place, python, "-c", IMPORTED, *words.split()).out for words in free]
    rows = []
    for _ in range(3):
        imports = run_there(place, python, "-c", "import torch, transformers; transformers.ConvNextModel")
        seconds, processor = map(float, run_there(place, python, "-c", PASSES).out.split()[-2:])
        whole = run_there(place, binaries / "smatter", "adapt", "library", SUPPORT)
        row = {"imports": imports.seconds, "passes": seconds, "adapt": whole.seconds}
        row["ratio"] = whole.seconds / (imports.seconds + seconds)
        row["processor_ratio"] = whole.processor / (imports.processor + processor)
        rows.append(row)
    return {
        "figures": {
            "commands_that_import_torch_needlessly": sum(out.split()[-1] != "False" for out in told),
            "adapt_overhead_ratio": statistics.median(row["ratio"] for row in rows),
            "adapt_overhead_ratio_of_processor_time": statistics.median(row["processor_ratio"] for row in rows),
        },
        "tables": {"adapt_overhead": rows},
    }


def evaluate_all(place: Path, binaries: Path) -> Figures:
    """Twenty classes of thirty pictures, six sources, every method, two processes; then interrupted and resumed."""
    data, by_class = place / "twenty", dict[Path, list[Path]]()
    for path in sorted((place / "tasks").glob("*/*/*/*.png")):
        by_class.setdefault(path.parent.parent.parent / path.parent.name, []).append(path)
    for number, paths in enumerate(list(by_class.values())[:20]):
        (data / f"class-{number}").mkdir(parents=True)
        for index in range(30):
            _varied(paths[index % len(paths)], data / f"class-{number}" / f"{index}.png", index // len(paths))
    words = [binaries / "smatter", "evaluate", "library", "twenty", "--tasks", "1", "--workers", "2"]
    words += ["--router", "router", "--json", "--cache"]
    took = run_there(place, *words, "whole")
    whole = json.loads(took.out)
    with subprocess.Popen([str(word) for word in [*words, "stopped"]], cwd=place, stdout=subprocess.PIPE) as stopped:
        while stopped.poll() is None and _n_files(place / "stopped") < 3:
            time.sleep(0.05)
        stopped.send_signal(signal.SIGTERM)
    kept = _n_files(place / "stopped")
    again = json.loads(run_there(place, *words, "stopped").out)
    return {
        "figures": {
            "evaluate_seconds": took.seconds,
            "evaluate_processor_seconds": took.processor,
            "evaluate_methods": len(whole["methods"]),
            "evaluate_scores_kept_when_interrupted": kept,
            "evaluate_resumed_is_the_same": float(_without_times(whole) == _without_times(again)),
        }
    }


def _n_files(folder: Path) -> int:
    return sum(1 for _ in folder.rglob("*.json"))


def _without_times(told: Any) -> Any:
    """All that a command told but how long things took."""
    if isinstance(told, dict):
        return {key: _without_times(value) for key, value in told.items() if "seconds" not in key}
    return [_without_times(value) for value in told] if isinstance(told, list) else told


def _varied(source: Path, target: Path, turn: int) -> None:
    """A picture, or the same one a little darker, so that none is there twice."""
    from PIL import Image

    Image.open(source).convert("RGB").point(lambda value: max(0, value - 5 * turn)).save(target)


PLACED: dict[str, Callable[[Path, Path], Figures]] = {
    "first": first_prediction,
    "startup": start_up,
    "mistakes": make_mistakes,
    "evaluate": evaluate_all,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one page besides the README, and no evaluation")
    parser.add_argument("--only", choices=["docs", *PLACED], action="append", default=[], help="a stage")
    parser.add_argument("--page", action="append", default=[], help="a page; the others' rows stay as they were")
    parser.add_argument("--work", type=Path, help="a folder whose clone is used again")
    options = parser.parse_args()
    begin, figures, tables = time.perf_counter(), Figures(), Figures()
    before = RESULTS / "first_hour.json"
    if (options.only or options.page) and before.exists():
        known = json.loads(before.read_text())
        figures, tables = known["figures"], known["tables"]
    stages = options.only or (["docs"] if options.page else ["docs", *PLACED])
    with tempfile.TemporaryDirectory() as name:
        work = options.work or Path(name)

        def keep() -> None:
            told = json.loads(json.dumps(tables).replace(str(work), "WORK"))
            parts = machine(("torch", "transformers"), 1)
            write_result("first_hour", figures, told, parts, time.perf_counter() - begin, options.quick)

        clone = prepare(work)
        documents = tables.setdefault("documents", {})
        names = options.page or (["README.md", "adapting.md"] if options.quick else [])
        if "docs" in stages:
            for _ in follow_documents(work, names, documents):
                figures |= summary(documents)
                keep()
            if "README.md" in documents:
                figures["seconds_to_install_and_demo"] = documents["README.md"]["programs"][0]["seconds"][0]
        for stage in (each for each in stages if each in PLACED and not (options.quick and each == "evaluate")):
            place = work / stage / "place"
            shutil.rmtree(place.parent, ignore_errors=True)
            place.mkdir(parents=True)
            make_place(clone / "smatter-demo", place)
            found = PLACED[stage](place, clone / ".venv" / "bin")
            figures |= found["figures"]
            tables |= found.get("tables", {})
            keep()
            print(stage, json.dumps(found["figures"]), flush=True)


if __name__ == "__main__":
    main()
