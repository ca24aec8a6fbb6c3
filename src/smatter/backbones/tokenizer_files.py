"""A stranger's tokenizer files, looked at before a library reads them, and copied to where it sees nothing else.

What could name code, a path or a repository is left behind: of tokenizer_config.json and special_tokens_map.json only
known keys are copied, of config.json only the model type. Free of torch.
"""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from smatter.errors import CannotWrite, IncompatibleSource
from smatter.files.reading import read_small_json, safe_path

VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model")
COPIED = (*VOCABULARIES, "merges.txt")
SETTINGS = ("tokenizer_config.json", "special_tokens_map.json")
ADDED = "added_tokens.json"

MAX_BYTES = 64_000_000
"""Of one file; the largest public vocabularies take 35 MB."""

MAX_MODEL_BYTES = 16_000_000
"""Of a SentencePiece or tiktoken file, which is converted in Python; the largest public ones take 5 MB."""

MAX_PIECE_BYTES = 300

MAX_STEPS = 32
"""Normalisers, pre-tokenizers, processors or decoders in a chain; known tokenizers have up to ten."""

MAX_GROWTH = 32
"""How many times longer all normalisers together may make a text."""

MAX_ADDED_TOKENS = 10_000
MAX_TOKEN_CHARACTERS = 2_000
MAX_PATTERN_CHARACTERS = 2_000
MAX_TEMPLATE = 32
MAX_PADDING = 100_000
MAX_WORD_CHARACTERS = 1_000
"""Characters of a word that WordPiece looks up; the time grows with their square."""

_STEPS = {
    "normalizer": (
        "BertNormalizer", "ByteLevel", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled", "Prepend",
        "Replace", "Sequence", "Strip", "StripAccents",
    ),
    "pre_tokenizer": (
        "BertPreTokenizer", "ByteLevel", "CharDelimiterSplit", "Digits", "FixedLength", "Metaspace", "Punctuation",
        "Sequence", "Split", "UnicodeScripts", "Whitespace", "WhitespaceSplit",
    ),
    "post_processor": ("BertProcessing", "ByteLevel", "RobertaProcessing", "Sequence", "TemplateProcessing"),
    "decoder": (
        "BPEDecoder", "ByteFallback", "ByteLevel", "CTC", "Fuse", "Metaspace", "Replace", "Sequence", "Strip",
        "WordPiece",
    ),
}  # fmt: skip
"""Parts of a tokenizer.json and what each may be made of."""

_MODELS = ("BPE", "Unigram", "WordLevel", "WordPiece")

_CLASSES = frozenset({
    "AlbertTokenizer", "BartTokenizer", "BertTokenizer", "CamembertTokenizer", "CodeLlamaTokenizer", "CohereTokenizer",
    "DebertaTokenizer", "DebertaV2Tokenizer", "DistilBertTokenizer", "ElectraTokenizer", "GPT2Tokenizer",
    "GPTNeoXTokenizer", "GemmaTokenizer", "LlamaTokenizer", "MPNetTokenizer", "PreTrainedTokenizer", "Qwen2Tokenizer",
    "RobertaTokenizer", "T5Tokenizer", "TokenizersBackend", "XLMRobertaTokenizer",
})  # fmt: skip
"""Tokenizers of transformers that work on the files above, without `Fast` at the end."""

_KEYS = frozenset({
    "add_bos_token", "add_eos_token", "add_prefix_space", "added_tokens_decoder", "additional_special_tokens",
    "clean_up_tokenization_spaces", "do_lower_case", "errors", "extra_special_tokens", "fix_mistral_regex", "legacy",
    "model_max_length", "padding_side", "split_by_punct", "split_special_tokens", "strip_accents",
    "tokenize_chinese_chars", "tokenizer_class", "trim_offsets", "truncation_side", "vocab_type",
})  # fmt: skip
"""Keys of tokenizer_config.json that are copied, beside those of single tokens, which end in `_token`."""


_TOKEN = frozenset({"__type", "content", "id", "lstrip", "normalized", "rstrip", "single_word", "special"})
"""What a token may be described by."""


@contextmanager
def checked_copy(folder: Path, model_type: str) -> Iterator[Path]:
    """A folder for as long as it is needed that holds a checkpoint's tokenizer, if nothing about it is absurd.

    Args:
        folder: of the checkpoint.
        model_type: of its config.
    """
    present = {name: safe_path(folder, name) for name in (*COPIED, *SETTINGS, ADDED) if (folder / name).is_file()}
    if not present.keys() & set(VOCABULARIES):
        raise IncompatibleSource(
            f"{folder} has no tokenizer ({', '.join(VOCABULARIES)}): copy the base's tokenizer files there"
        )
    for name, path in present.items():
        limit = MAX_MODEL_BYTES if name.endswith(".model") else MAX_BYTES
        if (size := path.stat().st_size) > limit:
            raise IncompatibleSource(f"{path} has {size} bytes, above {limit}: copy the base's tokenizer again")
        if name.endswith(".model"):
            _check_pieces(path)
    if "tokenizer.json" in present:
        _check_tokenizer(present["tokenizer.json"])
    with _temporary_folder() as copy:
        for name in present.keys() & set(COPIED):
            Path(copy, name).symlink_to(present[name].resolve())
        for name in present.keys() & set(SETTINGS):
            Path(copy, name).write_text(json.dumps(_known_settings(present[name])))
        if ADDED in present:
            Path(copy, ADDED).write_text(json.dumps(_added_tokens(present[ADDED])))
        Path(copy, "config.json").write_text(json.dumps({"model_type": model_type, **_known_config(folder)}))
        yield Path(copy)


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix="smatter-tokenizer-")
    except OSError as error:
        raise CannotWrite(f"no temporary folder can be made ({error}): set TMPDIR to one that has room") from None


def _refuse(path: Path, what: str) -> NoReturn:
    raise IncompatibleSource(f"{path} {what}: copy the tokenizer that belongs to the base")


def _object(path: Path) -> dict[str, Any]:
    content = read_small_json(path, MAX_BYTES)
    if not isinstance(content, dict):
        _refuse(path, "does not hold a JSON object")
    return content


def _known_settings(path: Path) -> dict[str, Any]:
    """What is copied of tokenizer_config.json or special_tokens_map.json."""
    content = _object(path)
    settings = {key: value for key, value in content.items() if key in _KEYS or key.endswith("_token")}
    _check_class(path, settings.get("tokenizer_class"))
    for key, value in settings.items():
        if len(value) > MAX_ADDED_TOKENS if isinstance(value, list | dict) else len(str(value)) > MAX_TOKEN_CHARACTERS:
            _refuse(path, f"has an overlong {key[:60]!r}")
        tokens = value.values() if key == "added_tokens_decoder" and isinstance(value, dict) else [value]
        if any(isinstance(token, dict) and not _is_token(token) for token in tokens if key != "extra_special_tokens"):
            _refuse(path, f"describes a token in {key[:60]!r} that is overlong, or says what no token says")
    return settings


def _known_config(folder: Path) -> dict[str, str]:
    """What is copied of config.json: the tokenizer's class, which older checkpoints name there, and who wrote it."""
    path = folder / "config.json"
    content = _object(safe_path(folder, path.name)) if path.is_file() else {}
    _check_class(path, content.get("tokenizer_class"))
    keys = ("tokenizer_class", "transformers_version")
    return {key: content[key] for key in keys if isinstance(content.get(key), str) and len(content[key]) < 100}


def _check_class(path: Path, name: Any) -> None:
    if name is not None and (not isinstance(name, str) or name.removesuffix("Fast") not in _CLASSES):
        _refuse(path, f"names the tokenizer_class {str(name)[:60]!r}, which is not supported")


def _added_tokens(path: Path) -> dict[str, int]:
    content = _object(path)
    if len(content) > MAX_ADDED_TOKENS:
        _refuse(path, f"adds {len(content)} tokens, above {MAX_ADDED_TOKENS}")
    for token, number in content.items():
        if len(token) > MAX_TOKEN_CHARACTERS or not isinstance(number, int):
            _refuse(path, f"adds the token {token[:60]!r}, which is overlong or has no number")
    return content


def _check_tokenizer(path: Path) -> None:
    content = _object(path)
    for part, known in _STEPS.items():
        _check_chain(path, part, list(_chain(path, content.get(part))), known)
    model = content.get("model")
    if not isinstance(model, dict) or model.get("type", "BPE") not in _MODELS:
        _refuse(path, f"has a model that is none of {', '.join(_MODELS)}")
    _check_model(path, model)
    added = content.get("added_tokens") or []
    if not isinstance(added, list) or len(added) > MAX_ADDED_TOKENS:
        _refuse(path, f"adds more than {MAX_ADDED_TOKENS} tokens")
    for token in added:
        if not _is_token(token):
            _refuse(path, "adds a token that is overlong, or says what no token says")
    padding = content.get("padding")
    strategy = padding.get("strategy") if isinstance(padding, dict) else None
    length = strategy.get("Fixed") if isinstance(strategy, dict) else 0
    if not isinstance(length, int) or length > MAX_PADDING:
        _refuse(path, "pads texts beyond all bounds")


def _is_token(token: Any) -> bool:
    """Whether this describes a token; what the library does not know of it, it would print as it is."""
    return isinstance(token, dict) and token.keys() <= _TOKEN and len(str(token.get("content"))) <= MAX_TOKEN_CHARACTERS


def _chain(path: Path, step: Any, depth: int = 4) -> Iterator[dict[str, Any]]:
    """The steps of a part one after another, sequences unfolded."""
    if step is None:
        return
    if not isinstance(step, dict) or not depth:
        _refuse(path, "has a step that is no object, or nested too deep")
    yield step
    for key in ("normalizers", "pretokenizers", "processors", "decoders"):
        inner = step.get(key, [])
        for each in inner if isinstance(inner, list) else [inner]:
            yield from _chain(path, each, depth - 1)


def _check_chain(path: Path, part: str, steps: list[dict[str, Any]], known: tuple[str, ...]) -> None:
    if len(steps) > MAX_STEPS:
        _refuse(path, f"has a {part} of {len(steps)} steps, above {MAX_STEPS}")
    growth = 1.0
    for step in steps:
        if step.get("type") not in known:
            _refuse(path, f"has a {part} of type {str(step.get('type'))[:60]!r}, which is not supported")
        for value in _texts(step.get("pattern")):
            if len(value) > MAX_PATTERN_CHARACTERS:
                _refuse(path, f"has a {part} with an overlong pattern")
        if part == "normalizer":
            growth *= _growth(path, step)
        if part == "post_processor":
            _check_template(path, step)
    if growth > MAX_GROWTH:
        _refuse(path, f"has normalisers that make a text more than {MAX_GROWTH} times longer")


def _texts(value: Any) -> list[str]:
    return [str(each) for each in (value.values() if isinstance(value, dict) else [value])]


def _growth(path: Path, step: Mapping[str, Any]) -> float:
    """How many times longer a step can make a text of at least a few characters."""
    if step["type"] == "Precompiled":
        return _check_charsmap(path, step.get("precompiled_charsmap"))
    if step["type"] == "Prepend":
        return 1 + len(str(step.get("prepend"))) / MAX_GROWTH
    if step["type"] != "Replace":
        return 1.0
    pattern, content = step.get("pattern"), str(step.get("content", ""))
    literal = pattern.get("String") if isinstance(pattern, dict) else None
    if isinstance(literal, str) and literal:
        return max(1.0, len(content.encode()) / len(literal.encode()))
    return 1.0 + len(content.encode())  # an expression may match between any two characters


def _check_charsmap(path: Path, text: Any) -> float:
    """SentencePiece's table of replacements, a tree and then texts that end in zeros: no text may be long."""
    try:
        table = base64.b64decode(text or "", validate=True)
    except (TypeError, ValueError):
        _refuse(path, "has a damaged precompiled_charsmap")
    texts = table[4 + int.from_bytes(table[:4], "little") :]
    if max(map(len, texts.split(b"\0"))) > MAX_TOKEN_CHARACTERS // 10:
        _refuse(path, "has a precompiled_charsmap with overlong replacements")
    return 1.0


def _check_template(path: Path, step: Mapping[str, Any]) -> None:
    """Refuse a template that adds many tokens to each text."""
    special = step.get("special_tokens")
    tokens = special.values() if isinstance(special, dict) else ()
    numbers = [token.get("ids") for token in tokens if isinstance(token, dict)]
    for pieces in (step.get("single"), step.get("pair"), *numbers):
        if isinstance(pieces, list) and len(pieces) > MAX_TEMPLATE:
            _refuse(path, f"adds more than {MAX_TEMPLATE} tokens to each text")


def _check_model(path: Path, model: Mapping[str, Any]) -> None:
    """Refuse overlong entries and words, whose lookup takes time in the square of their length."""
    longest = model.get("max_input_chars_per_word", 100)
    if not isinstance(longest, int) or longest > MAX_WORD_CHARACTERS:
        _refuse(path, f"looks up words of more than {MAX_WORD_CHARACTERS} characters")
    vocabulary = model.get("vocab") or {}
    if not isinstance(vocabulary, dict | list):
        _refuse(path, "has a vocabulary that is neither an object nor a list")
    for entry in vocabulary:
        token = entry[0] if isinstance(entry, list) and entry else entry
        if not isinstance(token, str) or len(token) > MAX_TOKEN_CHARACTERS:
            _refuse(path, "has an overlong token, or one that is no text")
    for key in ("unk_token", "continuing_subword_prefix", "end_of_word_suffix"):
        if len(str(model.get(key))) > MAX_TOKEN_CHARACTERS:
            _refuse(path, f"has an overlong {key}")


def _check_pieces(path: Path) -> None:
    """Refuse a SentencePiece or tiktoken file with a long piece: converting it takes time in the square of the length.

    The first is a protocol buffer whose field 1 is a piece; the second has a line for each.
    """
    raw = path.read_bytes()
    lengths = map(len, raw.splitlines()) if raw[:1].isalnum() else _piece_lengths(raw)
    if max(lengths, default=0) > MAX_PIECE_BYTES:
        _refuse(path, f"has a piece of more than {MAX_PIECE_BYTES} bytes")


def _piece_lengths(raw: bytes) -> Iterator[int]:
    position = 0
    while position < len(raw):
        tag, position = _number(raw, position)
        if tag & 7 != 2:  # everything that SentencePiece writes at this level has a length
            return
        length, position = _number(raw, position)
        if tag >> 3 == 1:
            yield length
        position += length


def _number(raw: bytes, position: int) -> tuple[int, int]:
    """A number of a protocol buffer, seven bits a byte, and where it ends."""
    number = shift = 0
    while position < len(raw) and shift < 70:
        byte = raw[position]
        number |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            break
    return number, position
