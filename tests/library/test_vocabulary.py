"""Which row is which token: tokenizer files of several versions, compared."""

import json
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter

import pytest

from smatter.errors import UnsafeFile
from smatter.library.vocabulary import is_spare, read_vocabulary, vocabulary_differences

WORDS = {"[PAD]": 0, "[UNK]": 1, "cat": 2, "dog": 3, "[unused0]": 4, "reserved": 5}


def folder_of(path: Path, files: Mapping[str, object]) -> Path:
    path.mkdir()
    for name, content in files.items():
        if isinstance(content, bytes):
            (path / name).write_bytes(content)
        else:
            (path / name).write_text(json.dumps(content))
    return path


def tokenizer(tokens: Mapping[str, int], *added: tuple[str, int]) -> dict[str, object]:
    listed = [{"content": token, "id": number} for token, number in added]
    return {"tokenizer.json": {"model": {"vocab": dict(tokens)}, "added_tokens": listed}}


def found(tmp_path: Path, base: Mapping[str, object], source: Mapping[str, object]) -> list[tuple[str, str | None]]:
    folders = folder_of(tmp_path / "base", base), folder_of(tmp_path / "source", source)
    return [(each.severity, each.key) for each in vocabulary_differences(*folders)]


LINES = b"[PAD]\n[UNK]\ncat\ndog\n[unused0]\nreserved\n"
SAME = {
    "the same": tokenizer(WORDS),
    "one token a line": {"vocab.txt": LINES},
    "lines of another system": {"vocab.txt": LINES.replace(b"\n", b"\r\n")},
    "a plain mapping": {"vocab.json": WORDS},
    "special tokens in their own list": tokenizer(
        {token: number for token, number in WORDS.items() if token[0] != "["}, ("[PAD]", 0), ("[UNK]", 1)
    ),
    "special tokens in their own file": {
        "vocab.json": {token: number for token, number in WORDS.items() if token[0] != "["},
        "added_tokens.json": {"[PAD]": 0, "[UNK]": 1},
    },
    "pairs of token and score": {"tokenizer.json": {"model": {"vocab": [[token, -1.0] for token in WORDS]}}},
    "fewer tokens": tokenizer({"cat": 2, "dog": 3}),
}


@pytest.mark.parametrize("kind", SAME)
def test_one_vocabulary_is_the_same_in_every_file(tmp_path: Path, kind: str) -> None:
    assert found(tmp_path, tokenizer(WORDS), SAME[kind]) == []


OTHER = {
    "two swapped": tokenizer(WORDS | {"cat": 3, "dog": 2}),
    "another word in a row": tokenizer(
        {token: number for token, number in WORDS.items() if token != "cat"}, ("cow", 2)
    ),
    "a word that only looks unused": tokenizer(
        {token: number for token, number in WORDS.items() if token != "reserved"}, ("new", 5)
    ),
    "an added token in a row that has a word": {"vocab.txt": LINES, "added_tokens.json": {"<x>": 2}},
}


@pytest.mark.parametrize("kind", OTHER)
def test_rows_of_other_tokens_are_an_error(tmp_path: Path, kind: str) -> None:
    assert found(tmp_path, tokenizer(WORDS), OTHER[kind]) == [("error", "vocabulary")]


NEW = {
    "in a spare row": tokenizer({token: number for token, number in WORDS.items() if number != 4}, ("<chat>", 4)),
    "behind all rows": tokenizer(WORDS, ("<chat>", 6)),
}


@pytest.mark.parametrize("kind", NEW)
def test_tokens_in_unused_rows_are_worth_a_warning(tmp_path: Path, kind: str) -> None:
    assert found(tmp_path, tokenizer(WORDS), NEW[kind]) == [("warning", None)]


def test_a_row_that_only_the_base_uses_does_no_harm(tmp_path: Path) -> None:
    spare = {token: number for token, number in WORDS.items() if token != "cat"} | {"[unused9]": 2}
    assert found(tmp_path, tokenizer(WORDS), tokenizer(spare)) == []


def test_separators_of_text_may_be_tokens(tmp_path: Path) -> None:
    """transformers ends a token at a line feed only; Unicode knows more ends of lines."""
    tokens = ["a", "\u2028", "\x85", "\x0c", "b"]
    folder = folder_of(tmp_path / "base", {"vocab.txt": "\n".join(tokens).encode()})
    assert read_vocabulary(folder) == {token: number for number, token in enumerate(tokens)}


def test_transformers_reads_the_same_numbers(tmp_path: Path) -> None:
    from transformers import BertTokenizer

    folder = folder_of(tmp_path / "slow", {"vocab.txt": b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ncat\ndog\n"})
    tokens = BertTokenizer.from_pretrained(folder)
    tokens.add_tokens(["<chat>"])
    tokens.save_pretrained(tmp_path / "saved")
    assert read_vocabulary(tmp_path / "saved") == tokens.get_vocab()
    assert [each.severity for each in vocabulary_differences(folder, tmp_path / "saved")] == ["warning"]


@pytest.mark.parametrize(
    "token",
    ["[unused7]", "<unused12>", "<|reserved_special_token_3|>", "<extra_id_0>", "<|dummy_4|>", "<|placeholder1|>",
     "[control_8]", "<SPECIAL_20>", ">>UNUSED_1<<", "madeupword0003", "<|extra_9|>"],
)  # fmt: skip
def test_spare_names_of_known_families(token: str) -> None:
    assert is_spare(token)


@pytest.mark.parametrize("token", ["unused", "reserved", "special", "extra1", "[MASK]", "<s>", "<|im_start|>", "<pad>"])
def test_words_and_special_tokens_are_not_spare(token: str) -> None:
    assert not is_spare(token)


def test_a_long_token_takes_no_time() -> None:
    start = perf_counter()
    for token in (
        "<extra" + "1" * 1_000_000 + "x",
        "<" * 1_000_000,
        "<extra_" * 100_000,
        "<extra1" + ">" * 1_000_000 + "x",
    ):
        assert not is_spare(token)
    assert perf_counter() - start < 0.5


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    assert found(tmp_path, tokenizer(WORDS), {}) == [("warning", None)]
    pieces = [folder_of(tmp_path / name, {"spiece.model": name.encode()}) for name in ("one", "two")]
    assert [each.severity for each in vocabulary_differences(*pieces)] == ["warning"]
    assert [*vocabulary_differences(pieces[0], pieces[0])] == []


@pytest.mark.parametrize(
    "content", [{"model": 3}, {"model": {"vocab": {"a": "b"}}}, [], {"model": {"vocab": {}}, "added_tokens": [{}]}]
)
def test_a_file_of_another_form_is_refused_in_one_line(tmp_path: Path, content: object) -> None:
    folder = folder_of(tmp_path / "odd", {"tokenizer.json": content})
    with pytest.raises(UnsafeFile, match="copy the checkpoint again") as refused:
        read_vocabulary(folder)
    assert "\n" not in str(refused.value)
