"""Which row of the word embeddings is which token: the tokenizer files of two checkpoints, compared."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from smatter.errors import UnsafeFile
from smatter.files.reading import parse_json, read_small_file
from smatter.library.checkpoint import MAX_JSON_BYTES
from smatter.library.configs import Difference

_SPARE = re.compile(r"[\[<(]?[|\s]*(?:unused|reserved|extra_id|dummy|pad_to)\w*[|\s_-]*\d*[|\s]*[\])>]?", re.IGNORECASE)
"""Names of rows that nobody has trained, such as `[unused7]` or `<|reserved_special_token_3|>`."""


def vocabulary_differences(base: Path, candidate: Path) -> Iterator[Difference]:
    """How the tokenizers in two folders differ.

    Rows of different tokens must not be mixed. A token that only one of the two names, in a row to which the other
    gives no name or a spare one, does no harm.
    """
    ours, theirs = read_vocabulary(base), read_vocabulary(candidate)
    if ours is None or theirs is None:
        if (ours is None) != (theirs is None):
            who = "it" if theirs is None else "the base"
            message = f"{who} has no tokenizer files, so vocabularies cannot be compared; the export takes the base's"
            yield Difference("warning", message)
        return
    rows = {number: token for token, number in ours.items() if not _SPARE.fullmatch(token)}
    own_rows = {number: token for token, number in theirs.items() if not _SPARE.fullmatch(token)}
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


def read_vocabulary(folder: Path) -> dict[str, int] | None:
    """Token to number, from whichever tokenizer file there is; None when there is none that can be read."""
    for name, parse in VOCABULARIES.items():
        path = folder / name
        if path.exists():
            try:
                return parse(read_small_file(path, MAX_JSON_BYTES), path)
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
    return {token: number for number, token in enumerate(text.decode().splitlines())}


def _checked(tokens: dict[str, int]) -> dict[str, int]:
    if not all(isinstance(token, str) and type(number) is int for token, number in tokens.items()):
        raise TypeError("a vocabulary maps tokens to numbers")
    return tokens


VOCABULARIES: dict[str, Callable[[bytes, Path], dict[str, int]]] = {
    "tokenizer.json": _tokenizer_json,
    "vocab.json": _vocab_json,
    "vocab.txt": _vocab_txt,
}
