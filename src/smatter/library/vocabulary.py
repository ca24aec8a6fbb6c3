"""Which row of the word embeddings is which token: the tokenizer files of two checkpoints, compared."""

import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from smatter.errors import UnsafeFile
from smatter.files.hashing import file_digest
from smatter.files.reading import parse_json, read_small_file
from smatter.library.checkpoint import MAX_JSON_BYTES
from smatter.library.configs import Difference

_SPARE = re.compile(
    r"\W+(?:unused|reserved|extra|dummy|pad_to|placeholder|control|special)\w*\d\W+|madeupword\d+", re.IGNORECASE
)
"""Names of rows that nobody has trained, such as `[unused7]` or `<|reserved_special_token_3|>`."""

SENTENCEPIECE = ("tokenizer.model", "spiece.model")


def vocabulary_differences(base: Path, candidate: Path) -> Iterator[Difference]:
    """How the tokenizers in two folders differ.

    Rows of different tokens must not be mixed. A token that only one of the two names, in a row to which the other
    gives no name or a spare one, does no harm.
    """
    ours, theirs = read_vocabulary(base), read_vocabulary(candidate)
    if ours is None or theirs is None:
        if (ours is None) != (theirs is None):
            who = "it" if theirs is None else "the base"
            message = f"{who} has no file that lists its tokens, so vocabularies cannot be compared"
            yield Difference("warning", f"{message}: make sure that both have one tokenizer")
        elif any(_differ(base / name, candidate / name) for name in SENTENCEPIECE):
            message = "has another sentencepiece model than the base, and vocabularies cannot be compared"
            yield Difference("warning", f"{message}: save both with tokenizer.json")
        return
    rows = {number: token for token, number in ours.items() if not is_spare(token)}
    own_rows = {number: token for token, number in theirs.items() if not is_spare(token)}
    moved = [
        token
        for token, number in theirs.items()
        if number in own_rows and (ours.get(token, number) != number or rows.get(number, token) != token)
    ]
    if moved:
        message = (
            f"{len(moved)} tokens have another number than in the base's tokenizer ({min(moved, key=str)!r} for one): "
            "embeddings of different tokens would be mixed; use one tokenizer for all"
        )
        yield Difference("error", message, "vocabulary")
        return
    new = [token for token, number in theirs.items() if number in own_rows and token not in ours]
    if new:
        message = f"names {len(new)} tokens that the base leaves unused ({min(new, key=str)!r} for one)"
        yield Difference("warning", f"{message}; the export takes the base's tokenizer, which does not know them")


def is_spare(token: str) -> bool:
    """Whether a token is the name of a row that nobody uses.

    >>> [is_spare(token) for token in ("[unused7]", "<|reserved_special_token_3|>", "reserved", "[MASK]")]
    [True, True, False, False]
    """
    return _SPARE.fullmatch(token) is not None


def _differ(first: Path, second: Path) -> bool:
    return first.exists() and second.exists() and file_digest(first) != file_digest(second)


def read_vocabulary(folder: Path) -> dict[str, int] | None:
    """Token to number, from whichever tokenizer file there is; None when there is none that can be read."""
    for name, parse in VOCABULARIES.items():
        path = folder / name
        if path.exists():
            try:
                tokens = parse(read_small_file(path, MAX_JSON_BYTES), path)
                added = folder / "added_tokens.json"  # tokenizer.json has these itself
                return tokens | (_vocab_json(read_small_file(added, MAX_JSON_BYTES), added) if added.exists() else {})
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                if isinstance(error, UnsafeFile):
                    raise
                raise UnsafeFile(
                    f"{path} is not a tokenizer file of the usual form; copy the checkpoint again"
                ) from None
    return None


def _tokenizer_json(text: bytes, path: Path) -> dict[str, int]:
    content = parse_json(text, path)
    vocabulary = content["model"].get("vocab", {})
    if isinstance(vocabulary, list):  # unigram models list pairs of token and score
        tokens = {str(entry[0]): number for number, entry in enumerate(vocabulary)}
    else:
        tokens = dict(vocabulary)
    return _checked(tokens | {token["content"]: token["id"] for token in content.get("added_tokens", [])})


def _vocab_json(text: bytes, path: Path) -> dict[str, int]:
    return _checked(dict(parse_json(text, path)))


def _vocab_txt(text: bytes, _path: Path) -> dict[str, int]:
    lines = io.StringIO(text.decode(), newline=None)  # ends lines as transformers does: tokens may be other separators
    return {line.rstrip("\n"): number for number, line in enumerate(lines)}


def _checked(tokens: dict[str, int]) -> dict[str, int]:
    if not all(isinstance(token, str) and type(number) is int for token, number in tokens.items()):
        raise TypeError("a vocabulary maps tokens to numbers")
    return tokens


VOCABULARIES: dict[str, Callable[[bytes, Path], dict[str, int]]] = {
    "tokenizer.json": _tokenizer_json,
    "vocab.json": _vocab_json,
    "vocab.txt": _vocab_txt,
}
