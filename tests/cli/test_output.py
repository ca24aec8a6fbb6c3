"""Nothing that a stranger named does anything to a terminal, a page or a model card but be read."""

import ast
import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

import smatter
from smatter.cli.main import main
from smatter.cli.output import Lines, print_table, say
from smatter.library.card import _code
from smatter.records import printable
from smatter.report import page

HOSTILE = "\x1b]0;pwned\x07\x9b31m\u202egnp.exe\u2066\r\n\x00\x7f\u2028\ud800<script>'\"`|"
WORDS = st.text(st.characters() | st.sampled_from(HOSTILE))


def does_nothing(text: str) -> bool:
    """Whether a text has no controls, no halves of characters, no line breaks, and keeps to one direction."""
    categories = {unicodedata.category(letter) for letter in text if letter not in "\u200c\u200d"}
    return not categories & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@given(WORDS)
def test_what_is_printable_does_nothing(text: str) -> None:
    assert does_nothing(printable(text)) and printable(printable(text)) == printable(text)


@given(st.text(st.characters(categories=("L", "M", "N", "P", "S", "Zs")) | st.sampled_from("\u200c\u200d")))
def test_letters_of_all_scripts_stay(text: str) -> None:
    assert printable(text) == text


def test_long_work_tells_a_line_every_few_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    progress = Lines("training", 100, clock=lambda: now[0])
    progress(40, "resumed")  # an earlier run has done these: they say nothing of the speed
    for second in range(1, 13):
        now[0] = float(second)
        progress(1, f"loss {second}")
    assert capsys.readouterr().err.splitlines() == [
        "training 45 of 100, 55 s left: loss 5",
        "training 50 of 100, 50 s left: loss 10",
    ]


def test_tables_and_lines_are_clean(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["source", HOSTILE], [[HOSTILE, "1"], ["b", "2"]])
    say(HOSTILE, f"  {HOSTILE}")
    lines = capsys.readouterr().out.split("\n")
    assert len(lines) == 6 and all(map(does_nothing, lines))


def test_commands_print_names_through_one_function() -> None:
    """A bare print of theirs would print a name as it is."""
    for path in (Path(smatter.__file__).parent / "cli").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                on_errors = any(keyword.arg == "file" for keyword in node.keywords)
                assert on_errors or path.name in ("main.py", "output.py"), f"{path.name}:{node.lineno} prints by itself"


@pytest.mark.parametrize("as_json", [False, True])
def test_a_suite_with_hostile_words_is_shown_clean(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    words = HOSTILE.replace("\ud800", "")
    classes = [{"name": f"{words}{number}", "key": f"k{number}", "examples": [0, 0]} for number in range(2)]
    (tmp_path / "d.jsonl").write_text("")
    domain = {"name": "d", "title": words, "role": "id", "sheet": "d.jsonl", "styles": [words], "classes": classes}
    package = dict.fromkeys(("registry", "name", "version", "licence", "use"), words)
    table = {"schema": 1, "name": "s", "kind": "texts", "domains": [domain], "packages": [package]}
    (tmp_path / "suite.json").write_text(json.dumps(table))
    assert main(["suite", "show", str(tmp_path), *(["--json"] if as_json else [])]) == 0
    out = capsys.readouterr().out
    assert all(map(does_nothing, out.split("\n")))
    if as_json:
        assert json.loads(out)["domains"][0]["title"] == words


@given(WORDS.filter(str.strip))
def test_a_strangers_words_are_one_piece_of_code_in_a_card(text: str) -> None:
    tokens = MarkdownIt("commonmark").enable("table").parse(f"Checkpoints of {_code(text)}.")
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    children = tokens[1].children or []
    assert [child.type for child in children] == ["text", "code_inline", "text"] and does_nothing(children[1].content)


@given(WORDS)
def test_a_strangers_words_are_text_in_a_page(text: str) -> None:
    told = page.table([text], [[text]]) + page.bar_chart({text: 1.0}, text) + page.page(text, text) + page.code(text)
    empty = page.table([""], [[""]]) + page.bar_chart({"": 1.0}, "") + page.page("", "") + page.code("")
    assert all(told.count(mark) == empty.count(mark) for mark in "<>\"'")
    assert all(map(does_nothing, told.split("\n")))
