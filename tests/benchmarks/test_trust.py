"""The judges of the benchmark of trust notice what they are there for."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from trust_cases import Case, mutations
from trust_hostile import FAULTS, compare, judge
from trust_neighbours import _mixed

FILE = (0o100000, "digest")
SOUND = {
    "code": 2, "out": "", "err": "smatter: no; mend it\n", "growth": 0, "seconds": 0.1, "sockets": [], "programs": [],
    "left": 0,
}  # fmt: skip


def judged(words: tuple[str, ...] = ("compose",), **changes: Any) -> set[str]:
    row: dict[str, Any] = dict.fromkeys(FAULTS, 0)
    row |= {"commands": 0, "megabytes": 0.0, "seconds": 0.0, "allowed_megabytes": 300.0}
    judge(row, words, SOUND | changes, Case("", "", lambda _: []))
    return {fault for fault in FAULTS if row[fault]}


@pytest.mark.parametrize(
    ("changes", "faults"),
    [
        ({}, set()),
        ({"code": 0, "err": ""}, set()),
        ({"err": "smatter: warning: left out\nsmatter: no; mend it\n"}, set()),
        ({"err": "smatter: no\nsmatter: no\n"}, {"not_one_line"}),
        ({"err": ""}, {"not_one_line"}),
        ({"err": "smatter: \x1b[31mno\n"}, {"raw_control_bytes"}),
        ({"code": 0, "err": "", "out": "a\u202eb\n"}, {"raw_control_bytes"}),
        ({"code": 1, "err": "smatter: internal error: x\n"}, {"internal_errors", "wrong_exit_codes"}),
        ({"code": -24, "err": ""}, {"hangs"}),
        ({"code": -9, "growth": 400e6, "err": ""}, {"over_memory"}),
        ({"code": -11, "err": ""}, {"wrong_exit_codes", "not_one_line"}),
        ({"sockets": ["socket.connect x"]}, {"sockets_opened"}),
        ({"left": 1}, {"processes_left"}),
    ],
)
def test_what_a_command_did_is_judged(changes: dict[str, Any], faults: set[str]) -> None:
    assert judged(**changes) == faults


@pytest.mark.parametrize(
    ("words", "before", "after", "faults"),
    [
        (["compose"], ["notes.txt"], ["notes.txt"], (0, 0)),
        (["compose"], ["notes.txt"], [], (1, 0)),
        (["compose"], [], ["out"], (0, 1)),
        (["library", "add"], ["texts/library.json"], [], (0, 0)),
        (["compose", "-o", "/h/out", "--replace"], ["out/model"], [], (0, 0)),
        (["compose", "-o", "/h/out"], ["out/model"], [], (1, 0)),
    ],
)
def test_lost_and_left_files_are_counted(words: list[str], before: list[str], after: list[str], faults: Any) -> None:
    row: dict[str, Any] = {"files_lost": 0, "left_behind": 0, "code_run": 0}
    compare(row, words, dict.fromkeys(before, FILE), dict.fromkeys(after, FILE), 2)
    assert (row["files_lost"], row["left_behind"]) == faults


def test_mutations_are_distinct_and_the_same_every_time() -> None:
    document = {"a": {"b": [1, 2]}, "c": "d"}
    text = json.dumps(document)
    found = list(mutations(document, 40))
    assert found == list(mutations(document, 40)) and len({name for name, _ in found}) == len(found)
    assert all(json.dumps(changed) != text for _, changed in found) and json.dumps(document) == text


def test_an_export_of_other_contents_is_noticed() -> None:
    contents = {digest: {"w": np.float32([value, 1])} for digest, value in (("a", 0.1), ("b", 0.2), ("c", 0.3))}
    made = (np.float32(0.25) * contents["a"]["w"] + np.float32(0.75) * contents["b"]["w"]).tobytes()
    assert _mixed(contents, [("a", 0.25), ("b", 0.75)], "w") == made
    assert _mixed(contents, [("a", 0.25), ("c", 0.75)], "w") != made
