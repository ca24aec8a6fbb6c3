"""What travels with the weights into an export: the base's files, and of what the base lacks the heaviest source's."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from smatter.compose.mixture import Mixture
from smatter.errors import SourceChanged
from smatter.files.reading import read_small_json, safe_path
from smatter.files.writing import copy_file
from smatter.library.checkpoint import SIDE_FILES, holds, read_config
from smatter.library.configs import Difference, short
from smatter.library.library import Library
from smatter.library.manifest import SourceEntry

CHAT_TEMPLATE, MODULES, POOLING = "chat_template.jinja", "modules.json", "1_Pooling/config.json"
GROUPS = (
    ("config.json",),
    ("generation_config.json",),
    (CHAT_TEMPLATE,),
    ("preprocessor_config.json", "processor_config.json"),
    (MODULES, POOLING, "config_sentence_transformers.json", "sentence_bert_config.json"),
    (
        "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt",
        "vocab.json", "merges.txt", "tokenizer.model", "spiece.model",
    ),
)  # fmt: skip
"""Files that only make sense together, so that all of a group come from one source."""

PLAIN_MODULES = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": None}
"""Modules of sentence-transformers without weights beside the network's, and the folder where they must be, if any."""


def side_files(library: Library, mixture: Mixture) -> dict[str, str]:
    """Which files an export takes along, and the source of each.

    Args:
        library: the sources.
        mixture: of the export, in the library's names.
    """
    weights = {name: sum(row[column] for row in mixture.rows) for column, name in enumerate(mixture.sources)}
    heaviest = sorted(mixture.active_sources, key=lambda name: (-weights[name], name))
    chosen: dict[str, str] = {}
    for group in GROUPS:
        for name in (library.manifest.base, *heaviest):
            entry = library.manifest.source(name)
            files = [file for file in group if file in entry.files]
            if files and (MODULES not in group or _is_plain(library.path_of(entry))):
                chosen |= dict.fromkeys(files, name)
                break
    return {file: chosen[file] for file in SIDE_FILES if file in chosen}


def copy_side_files(library: Library, files: Mapping[str, str], target: Path) -> None:
    """Copy what `side_files` chose into a new folder; refuses a file that is not the one that was added."""
    for file, name in files.items():
        entry: SourceEntry = library.manifest.source(name)
        if copy_file(library.path_of(entry), file, target) != entry.files[file].sha256:
            raise SourceChanged(f"{file} of source {name!r} has changed since it was added: restore it")


def side_file_differences(base: Path, candidate: Path) -> Iterator[Difference]:
    """What a source's tokenizer says beside its vocabulary, and what files it has that the base lacks."""
    for group in GROUPS[1:]:
        theirs = [file for file in group if holds(candidate, file)]
        if theirs and not any(holds(base, file) for file in group):
            message = (
                f"has {', '.join(theirs)}, which the base lacks: exports in which it is the heaviest take it along"
            )
            yield Difference("note", message)
    ours, theirs_config = (read_config(folder, "tokenizer_config.json") for folder in (base, candidate))
    for key in ("bos_token", "eos_token", "pad_token", "chat_template"):
        mine, other = _token(ours.get(key)), _token(theirs_config.get(key))
        if ours and other is not None and mine != other:
            message = (
                f"tokenizer_config.json: {key} is {short(other)}, the base's {short(mine)}: exports take the base's"
            )
            yield Difference("warning", message)


def _token(value: Any) -> Any:
    """The text of a special token, which some versions write as an object."""
    return value.get("content") if isinstance(value, dict) else value


def _is_plain(folder: Path) -> bool:
    """Whether all that sentence-transformers needs beside the network is in side files."""
    content = read_small_json(safe_path(folder, MODULES)) if holds(folder, MODULES) else []
    if not isinstance(content, list) or not all(isinstance(each, dict) for each in content):
        return False
    places = {f"sentence_transformers.models.{name}": place for name, place in PLAIN_MODULES.items()}
    return all(places.get(str(each.get("type")), "elsewhere") in (None, each.get("path")) for each in content)
