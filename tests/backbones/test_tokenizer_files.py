"""Tokenizers of strangers: known parts of bounded size pass, and whatever else happens ends in one line."""

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest
import transformers
from tiny_models import tiny_model
from tokenizers.pre_tokenizers import ByteLevel

from smatter.backbones.texts import Tokenizer
from smatter.backbones.tokenizer_files import checked_copy
from smatter.errors import IncompatibleSource, SmatterError

CONFIG = {"model_type": "llama", "vocab_size": 100}
VOCABULARY = {"[UNK]": 0, "red": 1, "a": 2}
WORDS = {"type": "WordLevel", "vocab": VOCABULARY, "unk_token": "[UNK]"}


def write(folder: Path, parts: dict[str, Any] | None = None, **files: Any) -> Path:
    content = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None, "model": WORDS,
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(content | (parts or {})))
    for name, file in files.items():
        (folder / f"{name}.json").write_text(json.dumps(file))
    return folder


def test_a_plain_tokenizer_works(tmp_path: Path) -> None:
    tokens = Tokenizer.of(CONFIG, write(tmp_path)).tokens(["red a blue", "a"])
    assert tokens["input_ids"].tolist() == [[1, 2, 0], [2, 0, 0]]
    assert tokens["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]


BYTES = {letter: number for number, letter in enumerate(["<unk>", "<s>", "</s>", *sorted(ByteLevel.alphabet()), "Ġr"])}
LETTERS = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *"abcdehlorw▁", "▁r"]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdehlorw", *(f"##{letter}" for letter in "abcdehlorw")]
NUMBERED = [{word: number for number, word in enumerate(words)} for words in (PIECES, LETTERS)]
SCORED = [(word, -1.0) for word in ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *"abcdehlorw▁"]]
FILES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertTokenizer", {"vocab": NUMBERED[0]}),
    "mpnet": ("MPNetTokenizer", {"vocab": NUMBERED[0]}),
    "gpt2": ("GPT2Tokenizer", {"vocab": BYTES, "merges": [("Ġ", "r")]}),
    "roberta": ("RobertaTokenizer", {"vocab": BYTES, "merges": [("Ġ", "r")]}),
    "gpt_neox": ("GPTNeoXTokenizer", {"vocab": BYTES, "merges": [("Ġ", "r")]}),
    "deberta": ("DebertaTokenizer", {"vocab": BYTES, "merges": [("Ġ", "r")]}),
    "qwen2": ("Qwen2Tokenizer", {"vocab": BYTES, "merges": [("Ġ", "r")]}),
    "llama": ("LlamaTokenizer", {"vocab": NUMBERED[1], "merges": [("▁", "r")]}),
    "gemma": ("GemmaTokenizer", {"vocab": NUMBERED[1], "merges": [("▁", "r")]}),
    "xlm-roberta": ("XLMRobertaTokenizer", {"vocab": SCORED}),
    "camembert": ("CamembertTokenizer", {"vocab": SCORED}),
    "deberta-v2": ("DebertaV2Tokenizer", {"vocab": SCORED}),
}
"""By model type, the tokenizer that its checkpoints come with."""


@pytest.mark.parametrize("model_type", FILES)
def test_tokens_are_those_of_transformers_itself(model_type: str, tmp_path: Path) -> None:
    name, settings = FILES[model_type]
    getattr(transformers, name)(**settings).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    plain = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = Tokenizer.of({"model_type": model_type, "vocab_size": 1000}, tmp_path)
    texts = ["Hello red  world", " héllo", "</s> [MASK] red", "red " * 600]
    rows = plain(texts, truncation=True, max_length=512)["input_ids"]
    tokens = ours.tokens(texts)
    found = [ids[: sum(mask)] for ids, mask in zip(*(tokens[key].tolist() for key in tokens), strict=True)]
    assert found == rows
    assert type(ours.encode) is type(plain) and ours.encode.pad_token_id == plain.pad_token_id


def replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def charsmap(tree: bytes, texts: bytes) -> dict[str, Any]:
    table = len(tree).to_bytes(4, "little") + tree + texts
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()}


def added(number: int) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": 10 + number, "content": f"<{number}>", "special": True, **flags}


TEMPLATE = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "X", "type_id": 0}}], "pair": []}

HOSTILE: dict[str, dict[str, Any]] = {
    "doubling": {"normalizer": {"type": "Sequence", "normalizers": 25 * [replace({"String": "a"}, "aa")]}},
    "inserting": {"normalizer": replace({"Regex": ""}, "a" * 1000)},
    "long chain": {"normalizer": {"type": "Sequence", "normalizers": 5000 * [{"type": "Lowercase"}]}},
    "nested chain": {"normalizer": {"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": [
        {"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": [{"type": "NFC"}]}]}]}]}},
    "unknown step": {"pre_tokenizer": {"type": "Shell"}},
    "backtracking": {"pre_tokenizer": split("(a+)+$")},
    "backtracking normaliser": {"normalizer": replace({"Regex": "(a+a+)+y"}, "z")},
    "overlong pattern": {"pre_tokenizer": split("a" * 5000)},
    "panic in a table": {"normalizer": charsmap(b"\1\2\3\4", b"x\0")},
    "growth in a table": {"normalizer": charsmap(b"", b"x" * 100_000)},
    "table that is no text": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": 3}},
    "panic in a template": {"post_processor": {**TEMPLATE, "special_tokens": {}}},
    "long template": {"post_processor": {**TEMPLATE, "single": 10_000 * TEMPLATE["single"], "special_tokens": {}}},
    "many numbers": {"post_processor": {**TEMPLATE, "special_tokens": {
        "X": {"id": "X", "ids": [1] * 10**5, "tokens": []}}}},
    "panic in a pre-tokenizer": {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
    "panic in merges": {"model": {"type": "BPE", "vocab": {"é": 0, "a": 1, "éa": 2}, "merges": [["é", "a"]],
                                  "continuing_subword_prefix": "xé"}},
    "unknown model": {"model": {"type": "Oracle", "vocab": {}}},
    "no model": {"model": None},
    "no unknown word": {"model": {"type": "WordLevel", "vocab": {"red": 0}, "unk_token": "[UNK]"}},
    "no unknown piece": {"model": {"type": "Unigram", "vocab": [["red", -1.0]], "unk_id": None}},
    "long words": {"model": {"type": "WordPiece", "vocab": VOCABULARY, "unk_token": "[UNK]",
                             "continuing_subword_prefix": "##", "max_input_chars_per_word": 10**9}},
    "overlong token": {"model": {**WORDS, "vocab": {**VOCABULARY, "b" * 10_000: 3}}},
    "number beyond the network": {"model": {**WORDS, "vocab": {"[UNK]": 2**32 - 1}}},
    "padding": {"padding": {"strategy": {"Fixed": 10**9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
                            "pad_type_id": 0, "pad_token": "a"}},
    "padding that is no object": {"padding": "x"},
    "truncation": {"truncation": {"direction": "Right", "max_length": 0, "strategy": "LongestFirst", "stride": 10**12}},
    "word that is printed": {"added_tokens": [{**added(1), "special\x1b[31m": True}]},
    "many added tokens": {"added_tokens": [added(number) for number in range(20_000)]},
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_tokenizers_end_in_one_line_at_once(
    case: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tiny_model("bert")  # the libraries are imported before time counts
    begin = time.perf_counter()
    with pytest.raises(SmatterError) as caught:
        Tokenizer.of(CONFIG, write(tmp_path, HOSTILE[case])).tokens(["a red blue " + "a" * 3000 + "b"])
    assert time.perf_counter() - begin < 5
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600
    assert "panicked" not in capfd.readouterr().err


def test_a_tokenizer_without_unknown_token_names_the_remedy(tmp_path: Path) -> None:
    tokenizer = Tokenizer.of(CONFIG, write(tmp_path, HOSTILE["no unknown word"]))
    assert tokenizer.tokens(["red red"])["input_ids"].tolist() == [[0, 0]]
    with pytest.raises(IncompatibleSource, match="give it an unknown token"):
        tokenizer.tokens(["red blue"])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer_config", {"tokenizer_class": "EvilTokenizer"}),
        ("tokenizer_config", {"tokenizer_class": ["BertTokenizer"]}),
        ("tokenizer_config", [1]),
        ("tokenizer_config", {"pad_token": {"a": 1}}),
        ("tokenizer_config", {"pad_token": {"content": "x", "lstrip\x1b[31m": True}}),
        ("tokenizer_config", {"added_tokens_decoder": {"0": {"content": "x", "lstrip\x1b[31m": True}}}),
        ("tokenizer_config", {"model_max_length": "long"}),
        ("tokenizer_config", {"extra_special_tokens": [f"<{number}>" for number in range(20_000)]}),
        ("special_tokens_map", {"pad_token": ["x"]}),
        ("added_tokens", {"x": "y"}),
        ("config", {"tokenizer_class": "EvilTokenizer"}),
    ],
)
def test_odd_settings_of_a_tokenizer_end_in_one_line(name: str, content: Any, tmp_path: Path) -> None:
    with pytest.raises(SmatterError) as caught:
        Tokenizer.of(CONFIG, write(tmp_path, **{name: content}))
    assert "\n" not in str(caught.value)


def test_a_library_sees_no_name_of_code_or_files(tmp_path: Path) -> None:
    settings = {
        "auto_map": {"AutoTokenizer": ["evil.Tokenizer", None]}, "vocab_file": "/etc/passwd", "init_inputs": ["x"],
        "tokenizer_file": "/etc/passwd", "name_or_path": "someone/x", "fast_tokenizer_files": ["../x"],
        "sp_model_kwargs": {"model_file": "/etc/passwd"}, "unk_token": "[UNK]",
    }  # fmt: skip
    config = {"model_type": "detr", "auto_map": {"AutoConfig": "evil.Config"}, "transformers_version": "5.1"}
    write(tmp_path, tokenizer_config=settings, special_tokens_map={"vocab_file": "x"}, config=config)
    (tmp_path / "evil.py").write_text("raise SystemExit")
    with checked_copy(tmp_path, "llama") as copy:
        assert json.loads((copy / "config.json").read_text()) == {"model_type": "llama", "transformers_version": "5.1"}
        assert json.loads((copy / "tokenizer_config.json").read_text()) == {"unk_token": "[UNK]"}
        assert json.loads((copy / "special_tokens_map.json").read_text()) == {}
        names = {"config.json", "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"}
        assert {path.name for path in copy.iterdir()} == names
    assert not copy.exists()
    assert Tokenizer.of(CONFIG, tmp_path).tokens(["red"])["input_ids"].tolist() == [[1]]


def test_long_pieces_of_sentencepiece_are_refused(tmp_path: Path) -> None:
    piece = b"\n" + bytes([0x80 | (1000 & 0x7F), 1000 >> 7]) + b"a" * 1000
    for raw in (b"\n\x03abc" + piece, b"QUFB 1\n" + b"QUFB" * 1000 + b" 2\n"):
        (tmp_path / "tokenizer.model").write_bytes(raw)
        with pytest.raises(IncompatibleSource, match="piece of more than"):
            Tokenizer.of(CONFIG, tmp_path)


def test_padding_that_the_network_does_not_know_is_not_used(tmp_path: Path) -> None:
    folder = write(tmp_path, tokenizer_config={"pad_token": "<added behind the others>"})
    assert Tokenizer.of({**CONFIG, "vocab_size": 3}, folder).tokens(["red", "a a"])["input_ids"].tolist() == [
        [1, 0],
        [2, 2],
    ]
