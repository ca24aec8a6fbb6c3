"""What the house costs whoever walks through it, and that moving in changed no bit.

The code of commit `OLD`, before rooms were named by noun, runs beside the present code in one process: both are loaded
under the name `smatter`, and the loaded modules change places between calls.
"""

import argparse
import hashlib
import io
import json
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from common import ROOT, SCRATCH, Rows, interleave, machine, show, write_result

OLD = "693aa6f"
PLACE = SCRATCH / "house"
LIBRARY, ROUTER, TASKS = PLACE / "library", PLACE / "router", PLACE / "tasks"
OLD_ROUTER = PLACE / "src" / "smatter" / "shipped" / "signs-router"
"""The same router as its files were then."""

TASK_NAMES = ("thai", "people", "mixed", "negatives", "faces", "handwriting")


@dataclass
class House:
    """One version of the package.

    Args:
        source: the folder that holds `smatter`.
    """

    source: Path
    modules: dict[str, ModuleType] = field(default_factory=dict)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Whoever imports smatter in here gets this version."""
        outside = _taken_out()
        sys.modules.update(self.modules)
        sys.path.insert(0, str(self.source))
        try:
            yield
        finally:
            sys.path.remove(str(self.source))
            self.modules = _taken_out()
            sys.modules.update(outside)


def _taken_out() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name == "smatter" or name.startswith("smatter.")]
    return {name: sys.modules.pop(name) for name in names}


def make_place(new: House) -> None:
    """The shipped library and router, tasks as folders, and two larger ones."""
    shutil.rmtree(PLACE, ignore_errors=True)
    TASKS.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", OLD, "src"], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "x", "-C", str(PLACE)], input=archive, check=True)
    with new.inside():
        from smatter.demo.story import draw_task
        from smatter.tasks.export import write_task
        from smatter.tasks.open import SHIPPED, open_suite
        from smatter.tasks.sampler import Sampler, SamplerSettings

        shutil.copytree(SHIPPED / "signs-library", LIBRARY)
        make_old(LIBRARY)
        shutil.copytree(SHIPPED / "signs-router", ROUTER)
        suite = open_suite("signs")
        for name in TASK_NAMES:
            write_task(TASKS / name, draw_task(suite, name, 0))
        for name, ways, shots in (("25 pictures", 5, 5), ("200 pictures", 20, 10)):
            settings = SamplerSettings("validation", n_way=(ways, ways), n_shot=(shots, shots), n_query=1)
            write_task(TASKS / name, Sampler(suite, settings).episode(0))


def make_old(library: Path) -> None:
    """Let a manifest say nothing that the old version does not know."""
    table = library / "library.json"
    told = json.loads(table.read_text())
    table.write_text(json.dumps({key: value for key, value in told.items() if key != "experts"}))


@dataclass(frozen=True)
class Case:
    """One way to adapt to one task, as both versions say it.

    Args:
        task: a folder of TASKS, or `one-shot` or a text task.
        method: its name now.
        settings: now, less the router.
        routed: whether the router is asked.
        before: the settings of old: the class's name, then its arguments.
    """

    task: str
    method: str
    settings: dict[str, Any]
    routed: bool
    before: tuple[str, dict[str, Any]]


def mode(task: str, routed: bool, method: str, settings: dict[str, Any], **before: Any) -> Case:
    return Case(task, method, settings, routed, ("ModeSettings", before))


def solved(task: str, **settings: Any) -> Case:
    return Case(task, "solver", settings, False, ("SolverSettings", settings))


FREE, BASED = "gradient-free", "gradient-based"
CASES = {
    "evidence": mode("thai", False, "evidence", {}),
    "evidence, cold, three sources": mode(
        "people", False, "evidence", {"temperature": 0.2, "max_sources": 3}, temperature=0.2, max_sources=3
    ),
    "router": mode("thai", True, "router", {}),
    "router on negatives": mode("negatives", True, "router", {}),
    "router without evidence": mode("people", True, "router", {"evidence": False}, evidence=False),
    "router, two sources": mode("mixed", True, "router", {"max_sources": 2}, max_sources=2),
    "refined weights": mode("mixed", True, "refined", {"n_steps": 6}, mode=FREE, n_steps=6),
    "refined weights, no router": mode("faces", False, "refined", {"n_steps": 3}, mode=FREE, n_steps=3),
    "refined experts": mode("negatives", True, "refined", {"tune": "experts"}, mode=BASED, tune="experts"),
    "refined mask": mode("negatives", True, "refined", {"tune": "mask"}, mode=BASED, tune="mask"),
    "refined modules": mode(
        "handwriting", True, "refined", {"tune": "modules", "n_modules": 2}, mode=BASED, tune="modules", n_modules=2
    ),
    "refined modules, no router": mode("people", False, "refined", {"tune": "modules"}, mode=BASED, tune="modules"),
    "private": mode("thai", True, "private", {"epsilon": 4.0}, epsilon=4.0),
    "solver": solved("mixed"),
    "solver, uniform start": solved("people", start="uniform", pull=0.0, n_steps=5),
    "solver per module": solved("thai", per_module=True, n_steps=4),
    "solver, elements": solved("mixed", n_steps=4, n_elements=300, n_residual_steps=4),
    "solver, modules": solved("negatives", n_steps=3, n_modules=2, n_residual_steps=3, max_sources=2),
    "one shot, evidence": mode("one-shot", False, "evidence", {}),
    "one shot, router": mode("one-shot", True, "router", {}),
    "one shot, solver": solved("one-shot", n_steps=3),
    "texts, evidence": mode("law", False, "evidence", {}),
    "texts, one shot": mode("law once", False, "evidence", {}),
    "texts, refined weights": mode("law", False, "refined", {}, mode=FREE),
    "texts, refined modules": mode("food", False, "refined", {"tune": "modules"}, mode=BASED, tune="modules"),
    "texts, solver": solved("food", n_steps=4),
    "texts, solver, elements": solved("food", n_steps=2, n_elements=50, n_residual_steps=3),
}


class _Seeded(random.Random):
    """Noise that both versions draw alike."""

    def __init__(self) -> None:
        super().__init__(7)


def support_of(case: Case) -> Any:
    """The examples of a case, in the version that is inside."""
    from smatter.tasks.support import Support, read_support

    if case.task in ("law", "food", "law once"):
        from tiny_libraries import texts_support

        made = texts_support(case.task.split()[0], 1 if "once" in case.task else 4)
        names = tuple(made.class_names)
        return Support(tuple(made.inputs), tuple(made.labels), names, "texts")
    if case.task != "one-shot":
        return read_support(TASKS / case.task / "support")
    whole = read_support(TASKS / "thai" / "support")
    kept = [whole.labels.index(label) for label in range(len(whole.class_names))]
    return Support(tuple(whole.inputs[index] for index in kept), tuple(range(len(kept))), whole.class_names, whole.kind)


def library_of(case: Case) -> Path:
    return PLACE / "topics" / "library" if case.task in ("law", "food", "law once") else LIBRARY


def adapt_old(case: Case) -> Any:
    from smatter.adaptation.adapt import adapt
    from smatter.adaptation.modes import ModeSettings
    from smatter.adaptation.solver import SolverSettings

    name, told = case.before
    settings = ModeSettings(**told) if name == "ModeSettings" else SolverSettings(**told)
    return adapt(library_of(case), support_of(case), OLD_ROUTER if case.routed else None, settings)


def adapt_new(case: Case) -> Any:
    from smatter import methods
    from smatter.pipeline import adapt

    settings = methods.find(case.method).settings(**case.settings)
    return adapt(library_of(case), support_of(case), case.method, settings, router=ROUTER if case.routed else None)


def digest(adapted: Any) -> str:
    """Of the network that the recipe rebuilds."""
    composed = hashlib.sha256()
    arena = adapted._live.library.compose(adapted.recipe)
    for name in sorted(arena.specs):
        composed.update(name.encode() + arena.array(name).tobytes())
    return composed.hexdigest()


def bits(old: House, new: House, quick: bool) -> Rows:
    """Networks that the recipes of both versions rebuild, case by case; what is in the recipes' files has changed."""
    rows: Rows = []
    random.SystemRandom = _Seeded  # type: ignore[misc, assignment]
    with new.inside():
        from tiny_libraries import topic_library

        (PLACE / "topics").mkdir()
        topic_library(PLACE / "topics")
    make_old(PLACE / "topics" / "library")
    for name, case in CASES.items():
        if quick and case.task not in ("thai", "law"):
            continue
        with old.inside():
            before = adapt_old(case)
            was, passes = digest(before), before._live.n_forwards
        with new.inside():
            after = adapt_new(case)
            is_now = digest(after)
            rows.append(
                {
                    "case": name, "networks_equal": was == is_now, "forwards_before": passes,
                    "forwards": after._live.n_forwards,
                    "forwards_to_fit": after.fit.passes.forwards, "backwards_to_fit": after.fit.passes.backwards,
                }
            )  # fmt: skip
    return rows


def routers(old: House, new: House) -> Rows:
    """Routers that both versions train in three steps: the bytes of what is learnt."""
    rows: Rows = []
    for name, words in {
        "experts and all distillation": [
            "--experts", "2", "--variant", "inverted:target=both", "--distill", "weights=.3", "--distill", "experts=.3",
            "--distill", "predictions=.2",
        ],
        "rank components, tied rows, entropy": [
            "--experts", "2", "--units", "components", "--tying", "tied", "--entropy", ".1",
        ],
    }.items():  # fmt: skip
        found = []
        for version, house in (("old", old), ("new", new)):
            output = PLACE / f"trained {version} {len(rows)}"
            with house.inside():
                from smatter.cli.main import main

                command = [
                    "train",
                    str(LIBRARY),
                    "signs",
                    "-o",
                    str(output),
                    "--steps",
                    "3",
                    "--workers",
                    "0",
                    "--json",
                ]
                assert main([*command, *words]) == 0
            found.append(learnt(output))
        rows.append({"router": name, "weights_equal": found[0] == found[1]})
    return rows


def learnt(router: Path) -> dict[str, bytes]:
    """The tensors of a router, by name; its experts have a file of their own now."""
    from safetensors.numpy import load_file

    found = {name: tensor.tobytes() for name, tensor in load_file(router / "router.safetensors").items()}
    if (bank := router / "experts.safetensors").exists():
        found |= {f"experts.{name}": tensor.tobytes() for name, tensor in load_file(bank).items()}
    return found


def speed(old: House, new: House, rounds: int) -> tuple[Rows, dict[str, float]]:
    """`adapt --router` without start-up: reads library, router and pictures, adapts, and says what the command says."""
    rows: Rows = []
    figures: dict[str, float] = {}

    def run_old(support: Path) -> None:
        with old.inside():
            from smatter.adaptation.adapt import adapt

            adapted = adapt(LIBRARY, support, OLD_ROUTER)
            _ = adapted.loss, adapted.held_out_accuracy

    def run_new(support: Path) -> None:
        with new.inside():
            from smatter.pipeline import adapt

            adapt(LIBRARY, support, router=ROUTER).to_dict()

    for name in ("25 pictures", "200 pictures"):
        support = TASKS / name / "support"
        cases: dict[str, Callable[[], object]] = {
            "old": lambda support=support: run_old(support), "new": lambda support=support: run_new(support)
        }  # fmt: skip
        timed = interleave(cases, rounds)
        ratio = timed.ratio("new", "old")
        rows.append(
            {
                "task": name, "seconds_old": timed.median("old"), "seconds_new": timed.median("new"),
                "ratio": ratio.median, "ratio_low": ratio.low, "ratio_high": ratio.high,
            }
        )  # fmt: skip
        short = name.split()[0]
        figures |= {f"adapt_seconds_ratio_{short}": ratio.median, f"adapt_seconds_ratio_{short}_high": ratio.high}
    return rows, figures


def decodes(new: House) -> float:
    """How often the pixels of a picture are decoded in one command, mean over the pictures."""
    from PIL.ImageFile import ImageFile

    counts: Counter[str] = Counter()
    load = ImageFile.load

    def counted(self: ImageFile) -> Any:
        if self.tile:  # still to be decoded
            counts[str(self.fp.name if self.fp else "")] += 1
        return load(self)

    ImageFile.load = counted  # type: ignore[method-assign]
    try:
        with new.inside():
            from smatter.cli.main import main

            words = ["adapt", str(LIBRARY), str(TASKS / "thai" / "support"), "--router", str(ROUTER), "--json"]
            with redirect_stdout(io.StringIO()):
                assert main(words) == 0
    finally:
        ImageFile.load = load  # type: ignore[method-assign]
    return sum(counts.values()) / len(counts)


WALK = """
import pathlib, sys
root = str(pathlib.Path(sys.argv[1]).resolve() / "smatter") + "/"
sys.path.insert(0, sys.argv[1])
from smatter.cli.main import main
hidden = ("<module>", "<genexpr>", "<lambda>", "comp>", "__annotate__")
seen = set()
def watch(frame, event, _):
    code = frame.f_code
    is_ours = event == "call" and code.co_filename.startswith(root) and code.co_flags & 1
    if is_ours and not any(part in code.co_qualname for part in hidden):
        seen.add((code.co_filename, code.co_qualname))
sys.setprofile(watch)
assert main(sys.argv[2:]) == 0
sys.setprofile(None)
print(len({path for path, _ in seen}), len(seen), file=sys.stderr)
"""


def walk(source: Path, router: Path) -> tuple[int, int]:
    """Files and named functions of the package that run between `smatter adapt --router -o` and the recipe's file.

    The second of two runs: on the first one numba may compile, and files be hashed.
    """
    for _ in range(2):
        output = PLACE / "walked.safetensors"
        output.unlink(missing_ok=True)
        words = ["adapt", str(LIBRARY), str(TASKS / "thai" / "support"), "--router", str(router), "-o", str(output)]
        done = subprocess.run(
            [sys.executable, "-c", WALK, str(source), *words], capture_output=True, text=True, check=True, cwd=PLACE
        )
    files, functions = done.stderr.split()[-2:]
    return int(files), int(functions)


def shape() -> dict[str, float]:
    """How long files are."""
    lengths = sorted(len(path.read_text().splitlines()) for path in (ROOT / "src" / "smatter").rglob("*.py"))
    return {"files": len(lengths), "median_file_lines": lengths[len(lengths) // 2], "longest_file_lines": lengths[-1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    begin = time.perf_counter()

    import torch
    from transformers.utils import logging

    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    sys.path.insert(0, str(ROOT / "tests"))
    new, old = House(ROOT / "src"), House(PLACE / "src")
    make_place(new)
    walked = {"old": walk(old.source, OLD_ROUTER), "new": walk(new.source, ROUTER)}
    timed, figures = speed(old, new, 3 if quick else 15)
    compared = bits(old, new, quick)
    trained = [] if quick else routers(old, new)
    figures |= {
        "files_on_adapt_path": walked["new"][0],
        "functions_on_adapt_path": walked["new"][1],
        "files_on_adapt_path_before": walked["old"][0],
        "functions_on_adapt_path_before": walked["old"][1],
        "decodes_per_picture": decodes(new),
        "cases_compared": len(compared),
        "networks_equal": sum(row["networks_equal"] for row in compared),
        "trained_routers_equal": sum(row["weights_equal"] for row in trained),
        **shape(),
    }
    tables: dict[str, Rows] = {"speed": timed, "bits": compared, "routers": trained}
    for title, rows in tables.items():
        if rows:
            show(title, rows)
    print(figures)
    with new.inside():
        described = machine(["torch", "transformers", "numba", "pillow"], 1)
    print("wrote", write_result("house", figures, tables, described, time.perf_counter() - begin, quick))


if __name__ == "__main__":
    main()
