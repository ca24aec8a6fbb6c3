"""Hostile inputs through the command line: what each of them did, and whether that was right."""

import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from common import Rows, stage
from trust_cases import Case
from trust_examples import picture_cases, table_cases
from trust_files import (
    cache_cases,
    library_cases,
    profile_cases,
    recipe_cases,
    router_cases,
    suite_cases,
    training_cases,
)
from trust_models import config_cases, preprocessor_cases, tokenizer_cases
from trust_requests import name_cases, place_cases, request_cases
from trust_world import Stand, World, n_bytes, state

CPU_SECONDS = 20
MEGABYTES_BEYOND_FILES = 300
STOPPED_AT = 3 << 29
"""Bytes of memory at which a command is stopped, for the sake of the machine."""

RAW = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Characters that a terminal obeys; a line may end, and a table have tabs."""

OWN = re.compile(
    r"(?:^|.*/)library\.json|.*/sources(?:/[0-9a-f]{64}.*)?|.*/experts(?:/[0-9a-f]{64}.*)?"
    r"|cache/[0-9a-f]{64}\.(?:json|safetensors)|.*\.work/(?:state\.safetensors|log\.jsonl)"
)
"""What commands that succeed may change without being told a place."""

MAKERS: tuple[Callable[[World], list[Case]], ...] = (
    name_cases, place_cases, request_cases, table_cases, picture_cases, training_cases, library_cases, recipe_cases,
    router_cases, profile_cases, cache_cases, suite_cases, preprocessor_cases, tokenizer_cases, config_cases,
)  # fmt: skip
FAULTS = (
    "tracebacks", "internal_errors", "hangs", "over_memory", "files_lost", "sockets_opened", "programs_started",
    "code_run", "not_one_line", "wrong_exit_codes", "accepted", "raw_control_bytes", "left_behind", "processes_left",
)  # fmt: skip


def hostile(stand: Stand) -> dict[str, Any]:
    """Run every case; figures and tables of what went wrong."""
    cases = [*_shelf_cases(), *(case for make in MAKERS for case in make(stand.template))]
    shelf = _shelf(stand.scratch / "shelf")
    cases = [case for case in cases if stand.cases in f"{case.family}: {case.name}"]
    if stand.quick:
        cases = cases[:: max(1, len(cases) // 100)]
    rows: Rows = []
    faulty: Rows = []
    with stage("hostile inputs", len(cases)) as tick:
        for case in cases:
            row = run_case(stand, case, shelf if case.family.startswith("shelf") else None)
            rows.append(row)
            if any(row[fault] for fault in FAULTS):
                faulty.append({key: value for key, value in row.items() if value})
                print(faulty[-1], file=sys.stderr)
            tick()
    return {"figures": _figures(rows), "tables": {"hostile_families": _families(rows), "hostile_faults": faulty}}


def run_case(stand: Stand, case: Case, template: Path | None) -> dict[str, Any]:
    """Lay a case out in a fresh copy of the template, run its commands, and judge what they did."""
    home = stand.home
    commands = [list(map(_word, words)) for words in case.lay_out(stand.fresh(template))]
    size = n_bytes(home)
    row: dict[str, Any] = {"family": case.family, "case": case.name} | dict.fromkeys(FAULTS, 0)
    row |= {
        "commands": 0,
        "megabytes": 0.0,
        "seconds": 0.0,
        "allowed_megabytes": 3 * size / 1e6 + MEGABYTES_BEYOND_FILES,
    }
    codes = []
    for words in commands:
        before = state(home)
        done = stand.server.run(words, home, cpu=CPU_SECONDS, bytes=STOPPED_AT)
        judge(row, words, done, case)
        compare(row, words, before, state(home), done["code"])
        codes.append(done["code"])
        if done["code"]:
            break
    if case.refused and not codes[-1]:
        row["accepted"] += 1
    return {key: value.replace(str(home), "HOME") if isinstance(value, str) else value for key, value in row.items()}


def _word(word: object) -> str:
    return os.fspath(word) if isinstance(word, Path) else str(word)


def judge(row: dict[str, Any], words: Sequence[str], done: dict[str, Any], case: Case) -> None:
    """What one command printed, took and how it ended."""
    code, errors, told = done["code"], done["err"], done["out"] + done["err"]
    row["commands"] += 1
    row["megabytes"] = max(row["megabytes"], done["growth"] / 1e6)
    row["seconds"] = max(row["seconds"], done["seconds"])
    row["tracebacks"] += "Traceback (most recent call last)" in told or "panicked at" in told
    row["internal_errors"] += "internal error" in errors
    over = row["megabytes"] > row["allowed_megabytes"]
    row["over_memory"] |= over
    stopped = code in (-signal.SIGXCPU, -signal.SIGKILL)
    row["hangs"] += stopped and not over
    row["sockets_opened"] += len(done["sockets"])
    row["programs_started"] += len(done["programs"])
    row["processes_left"] += done["left"]
    printed = errors if words[0] == "predict" else told  # a table of predictions in a pipe is data
    if raw := RAW.search(printed.replace("\r\n", "\n")):
        row["raw_control_bytes"] += 1
        row["raw"] = printed[max(0, raw.start() - 60) : raw.end() + 20]
    row["wrong_exit_codes"] += code not in case.codes and not stopped
    lines = [line for line in errors.split("\n") if not line.startswith("smatter: warning: ")]
    complained = len(lines) == 2 and lines[0].startswith("smatter: ") and not lines[1]
    predicted = code == 1 and words[0] == "predict"  # what could not be read stands among the predictions
    checked = code == 2 and words[:2] == ["library", "check"] and done["out"] and not errors  # a verdict
    row["not_one_line"] += bool(code) and not stopped and not (complained or predicted or checked)
    if code or any(row[fault] for fault in FAULTS):
        row |= {"last": " ".join(words)[-300:], "code": code, "told": errors[-400:], "sockets": done["sockets"][:2]}


def compare(
    row: dict[str, Any], words: Sequence[str], before: dict[str, Any], after: dict[str, Any], code: int
) -> None:
    """What a command did to the files that were there, and what it left behind when it refused."""
    places = [words[number + 1] for number, word in enumerate(words[:-1]) if word in ("-o", "--report", "--work")]
    named = [Path(place).name for place in places if "--replace" in words]
    lost = [
        path
        for path, content in before.items()
        if after.get(path) != content
        and not OWN.fullmatch(path)
        and not any(path == name or path.startswith(f"{name}/") for name in named)
    ]
    lost += [path for path in before if path.endswith(("mine.txt", "thesis.txt", "notes.txt")) and path not in after]
    new = [path for path in after if path not in before]
    if "code-was-run" in new:
        row["code_run"] += 1
    litter = [path for path in new if ".partial-" in path]
    if code == 2:
        litter += [path for path in new if ".work" not in path and not path.startswith("cache")]
    row["files_lost"] += len(set(lost))
    row["left_behind"] += len(set(litter))
    if lost or litter:
        row |= {"lost": sorted(set(lost))[:4], "litter": sorted(set(litter))[:4], "last": " ".join(words)[-300:]}


def _shelf(root: Path) -> Path:
    import io
    from contextlib import redirect_stdout

    from hostile_shelf import build

    with redirect_stdout(io.StringIO()):
        build(root)
    return root


def _shelf_cases() -> list[Case]:
    """The tables of hostile files that the tests keep, and each spoiled library checked and listed too."""
    import hostile_files
    import hostile_libraries
    import hostile_recipes  # noqa: F401
    import hostile_requests
    from hostile_shelf import Shelf

    cases = []
    for table in (hostile_files, hostile_libraries, hostile_requests):
        for each in table.CASES.values():
            family = f"shelf {table.__name__.removeprefix('hostile_')}"
            lay_out = lambda world, each=each: [each.lay_out(Shelf(world.home))]  # noqa: E731
            cases.append(Case(family, each.name, lay_out, refused=True))
    for each in hostile_libraries.CASES.values():

        def checked(world: World, each: Any = each) -> list[list[str]]:
            each.lay_out(Shelf(world.home))
            folder = str(world.home / "library")
            return [["library", "list", folder], ["library", "check", folder]]

        cases.append(Case("shelf checked", each.name, checked))
    return cases


def _families(rows: Rows) -> Rows:
    families: Rows = []
    for family in dict.fromkeys(row["family"] for row in rows):
        chosen = [row for row in rows if row["family"] == family]
        families.append(
            {
                "family": family, "cases": len(chosen), "commands": sum(row["commands"] for row in chosen),
                "most_megabytes": max(row["megabytes"] for row in chosen),
                "most_seconds": max(row["seconds"] for row in chosen),
            } | {fault: sum(row[fault] for row in chosen) for fault in FAULTS}
        )  # fmt: skip
    return families


def _figures(rows: Rows) -> dict[str, float]:
    totals: Counter[str] = Counter()
    for row in rows:
        totals.update({fault: row[fault] for fault in FAULTS})
    return {
        "hostile_inputs": len(rows),
        "hostile_commands": sum(row["commands"] for row in rows),
        **{fault: totals[fault] for fault in FAULTS},
        "most_megabytes_beyond_three_times_the_files": max(
            row["megabytes"] - row["allowed_megabytes"] + MEGABYTES_BEYOND_FILES for row in rows
        ),
    }
