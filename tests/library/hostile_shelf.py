"""A small library with sound checkpoints beside it, and the tools to spoil them byte by byte."""

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from smatter.cli.main import main

Tensors = dict[str, tuple[str, np.ndarray]]
"""Name to safetensors dtype and values; bfloat16 as its bits."""

CONFIG = {
    "model_type": "bert", "architectures": ["BertModel"], "num_attention_heads": 2, "vocab_size": 6,
    "hidden_size": 8, "tie_word_embeddings": True,
}  # fmt: skip
VOCABULARY = ("[PAD]", "[UNK]", "law", "code", "news", "poem")
QUERY = "encoder.layer.0.attention.self.query.weight"
OUTPUT = "encoder.layer.0.output.dense.weight"
WORDS = "embeddings.word_embeddings.weight"
POSITIONS = "embeddings.position_embeddings.weight"
POSITION_IDS = "embeddings.position_ids"
SEAL = ".smatter-seal.json"


def sound_tensors(seed: int) -> Tensors:
    """A tiny BERT; every seed is a fine-tune of the same one."""
    start, change = np.random.default_rng(0), np.random.default_rng(seed)
    shapes = {
        WORDS: (6, 8), POSITIONS: (5, 8), QUERY: (8, 8), QUERY.replace("query", "key"): (8, 8),
        OUTPUT: (8, 8), OUTPUT.replace("weight", "bias"): (8,),
    }  # fmt: skip
    tensors: Tensors = {
        name: ("F32", (start.normal(size=shape) + 0.01 * seed * change.normal(size=shape)).astype(np.float32))
        for name, shape in shapes.items()
    }
    return tensors | {POSITION_IDS: ("I64", np.arange(5)[None])}


def framed(header: bytes, data: bytes = b"") -> bytes:
    """A safetensors file with this header, whatever it says."""
    return len(header).to_bytes(8, "little") + header + data


def encode(tensors: Tensors, metadata: dict[str, str] | None = None) -> bytes:
    """A sound safetensors file, written without Smatter."""
    entries: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    data = b""
    for name, (dtype, values) in tensors.items():
        raw = values.tobytes()
        entries[name] = {
            "dtype": dtype,
            "shape": list(values.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    return framed(json.dumps(entries).encode(), data)


def decode(file: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a sound file, and its data."""
    length = int.from_bytes(file[:8], "little")
    return json.loads(file[8 : 8 + length]), file[8 + length :]


def decode_tensors(file: bytes) -> tuple[Tensors, dict[str, str]]:
    """Undo `encode`."""
    kinds = {"F64": "f8", "F32": "f4", "F16": "f2", "BF16": "u2", "I64": "i8", "I8": "i1", "U8": "u1"}
    header, data = decode(file)
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        values = np.frombuffer(data[begin:end], kinds[entry["dtype"]]).reshape(entry["shape"])
        tensors[name] = (entry["dtype"], values)
    return tensors, metadata


def write_checkpoint(
    folder: Path,
    tensors: Tensors,
    config: dict[str, Any] | None = None,
    vocabulary: tuple[str, ...] | None = VOCABULARY,
    shards: dict[str, Tensors] | None = None,
) -> Path:
    """A Hugging Face folder; `shards` are further files, listed in an index with the first tensors left out."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG if config is None else config))
    if vocabulary is not None:
        (folder / "vocab.txt").write_text("\n".join(vocabulary))
    if shards is None:
        (folder / "model.safetensors").write_bytes(encode(tensors, {"format": "pt"}))
        return folder
    for file, part in shards.items():
        (folder / file).write_bytes(encode(part))
    weight_map = {name: file for file, part in shards.items() for name in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


FORMS = {"code": "delta", "news": "int8", "poem": "low-rank", "soft": "bf16-delta"}


def build(root: Path) -> None:
    """A library whose sources lie inside it, so that all of it can be copied: one source in every form."""
    library = root / "library"
    for seed, name in enumerate(("base", "law", *FORMS)):
        write_checkpoint(library / "checkpoints" / name, sound_tensors(seed))
    assert main(["library", "init", str(library), str(library / "checkpoints/base")]) == 0
    assert main(["library", "add", str(library), str(library / "checkpoints/law")]) == 0
    for name, form in FORMS.items():
        rank = ["--rank", "1"] if form == "low-rank" else []
        words = ["library", "add", str(library), str(library / "checkpoints" / name), "--store", form, *rank]
        assert main(words) == 0
    assert main(["compose", str(library), "--weights", "base=1", "-o", str(root / "export")]) == 0
    (library / SEAL).unlink(missing_ok=True)


@dataclass
class Shelf:
    """One test's own copy of the library and a sound candidate to spoil."""

    root: Path

    @property
    def library(self) -> Path:
        return self.root / "library"

    @property
    def export(self) -> Path:
        """An existing export."""
        return self.root / "export"

    @property
    def output(self) -> Path:
        """Where composing would write; nothing is there."""
        return self.root / "out"

    def candidate(self, name: str = "candidate", **changes: Any) -> Path:
        """A checkpoint folder beside the library; sound but for the changes."""
        return write_checkpoint(self.root / name, **({"tensors": sound_tensors(7)} | changes))

    def sharded(self, name: str = "candidate") -> Path:
        """A candidate in two sound shards, `one.safetensors` and `two.safetensors`."""
        tensors = sound_tensors(7)
        names = sorted(tensors)
        parts = {
            "one.safetensors": {name: tensors[name] for name in names[::2]},
            "two.safetensors": {name: tensors[name] for name in names[1::2]},
        }
        return self.candidate(name, shards=parts)

    def change_json(self, path: Path, change: Callable[[Any], Any]) -> None:
        """Load, change in place or replace, save."""
        data = json.loads(path.read_text())
        result = change(data)
        path.write_text(json.dumps(data if result is None else result))

    def source(self, name: str) -> dict[str, Any]:
        """A source's entry in library.json."""
        manifest = json.loads((self.library / "library.json").read_text())
        return next(source for source in manifest["sources"] if source["name"] == name)

    def stored(self, name: str) -> Path:
        """The file of a stored source."""
        return self.library / self.source(name)["path"] / "stored.safetensors"

    def change_source(self, name: str, change: Callable[[dict[str, Any]], Any]) -> None:
        """Change a source's entry in library.json in place."""

        def apply(manifest: Any) -> None:
            change(next(source for source in manifest["sources"] if source["name"] == name))

        self.change_json(self.library / "library.json", apply)

    def restore_hash(self, name: str, path: Path) -> None:
        """Make library.json agree with a file that was changed."""
        entry = {"size": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        self.change_source(name, lambda source: source["files"].update({path.name: entry}))

    def init(self, base: Path) -> list[str]:
        return ["library", "init", str(self.root / "new"), str(base)]

    def add(self, candidate: Path, *options: str) -> list[str]:
        return ["library", "add", str(self.library), str(candidate), *options]

    def compose(self, weights: str = "base=.5,law=.5", *options: str) -> list[str]:
        return ["compose", str(self.library), "--weights", weights, "-o", str(self.output), *options]

    def compose_recipe(self, recipe: Path) -> list[str]:
        return ["compose", str(self.library), "--recipe", str(recipe), "-o", str(self.output)]


def snapshot(root: Path) -> dict[str, tuple[object, ...]]:
    """Everything under a folder: kind, permissions, size and hash or target; the seal, a convenience, apart."""
    state: dict[str, tuple[object, ...]] = {}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            status = path.lstat()
            content: object = None
            if stat.S_ISREG(status.st_mode):
                content = status.st_size, hashlib.sha256(path.read_bytes()).hexdigest()
            elif stat.S_ISLNK(status.st_mode):
                content = str(path.readlink())
            if name != SEAL:
                state[str(path.relative_to(root))] = (status.st_mode, content)
    return state


def copy_shelf(template: Path, root: Path) -> Shelf:
    """A copy that shares nothing with the template."""
    shutil.copytree(template, root)
    return Shelf(root)


@dataclass(frozen=True)
class Case:
    """One hostile input: how to lay it out, and what the refusal must say."""

    name: str
    lay_out: Callable[[Shelf], list[str]]
    """Spoils something on the shelf and returns the command line that must refuse it."""
    naming: str
    """The file, or the name, at fault."""
    remedy: str


class Cases(dict[str, Case]):
    """A table of cases, filled by decorating one function per case."""

    def refused(self, naming: str, remedy: str) -> Callable[[Callable[[Shelf], list[str]]], None]:
        """Register a function that spoils the shelf and returns a command line."""

        def register(lay_out: Callable[[Shelf], list[str]]) -> None:
            self.register(lay_out.__name__, lay_out, naming, remedy)

        return register

    def register(self, name: str, lay_out: Callable[[Shelf], list[str]], naming: str, remedy: str) -> None:
        assert name not in self, f"two cases are called {name}"
        self[name] = Case(name, lay_out, naming, remedy)
