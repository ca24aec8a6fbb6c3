"""A Hugging Face checkpoint folder, read-only: which tensors it has, where they lie, what else describes it."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smatter.errors import NotFound, UnsafeFile
from smatter.files.reading import MAX_LABEL_CHARACTERS, Array, MappedFile, Placed, read_small_json, safe_path
from smatter.records import TensorSpec

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
MAX_SHARDS = 1_000
MAX_JSON_BYTES = 64_000_000
"""Tokenizers of large vocabularies take tens of megabytes."""

SIDE_FILES = (
    "config.json", "generation_config.json", "preprocessor_config.json", "processor_config.json",
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.txt", "vocab.json", "merges.txt", "tokenizer.model", "spiece.model", "chat_template.jinja",
    "modules.json", "1_Pooling/config.json", "config_sentence_transformers.json", "sentence_bert_config.json",
)  # fmt: skip
"""What travels with the weights: read for comparison, hashed, and copied to an export: see `library.side_files`."""


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint folder whose headers were read and found sound.

    Args:
        folder: where it is.
        config: its config.json, empty when it has none.
        tensors: what it holds, by name on disk, in sorted order.
        weight_files: its safetensors files, by name.
        files: names of all files that matter, weights and side files.
    """

    folder: Path
    config: dict[str, Any]
    tensors: dict[str, TensorSpec]
    weight_files: Mapping[str, MappedFile]
    files: tuple[str, ...]
    _places: dict[str, MappedFile]

    def read(self, name: str, start: int, stop: int) -> Array:
        """Elements start..stop of a tensor, flat; a view of mapped memory."""
        return self._places[name].read(name, start, stop)

    @property
    def model_type(self) -> str | None:
        """The configuration's model type, such as `bert`."""
        value = self.config.get("model_type")
        return value if isinstance(value, str) else None

    @property
    def architecture(self) -> str:
        """The class that wrote it, such as `BertModel`, as far as its configuration tells."""
        classes = self.config.get("architectures")
        named = classes[0] if isinstance(classes, list) and classes and isinstance(classes[0], str) else None
        return named or self.model_type or "unknown"


def open_checkpoint(folder: Path) -> Checkpoint:
    """Read the headers of a checkpoint folder, single file or sharded; refuse what is damaged or hostile."""
    if not folder.is_dir():
        raise NotFound(f"{folder} is not a folder; {_hint([folder])}")  # perhaps a file of another format
    config = read_config(folder)
    weight_map = _weight_map(folder)
    names = sorted(set(weight_map.values())) if weight_map else [WEIGHTS]
    mapped = {name: MappedFile(safe_path(folder, name)) for name in names}
    places: dict[str, MappedFile] = {}
    tensors: dict[str, Placed] = {}
    for shard, file in mapped.items():
        for name, placed in file.header.tensors.items():
            if weight_map and weight_map.get(name) != shard:
                raise UnsafeFile(f"{file.path} holds {name!r}, which {INDEX} does not place there; save it again")
            places[name], tensors[name] = file, placed
    for name, shard in weight_map.items():
        if name not in tensors:
            raise UnsafeFile(f"{folder / shard} lacks {name!r}, which {INDEX} places there; copy it again")
    if not tensors:
        raise UnsafeFile(f"{folder} has no tensors at all; copy the checkpoint again")
    index = (INDEX,) if weight_map else ()
    side = held(folder, SIDE_FILES)
    for name in side:
        safe_path(folder, name)
    specs = {name: tensors[name].spec for name in sorted(tensors)}
    checkpoint = Checkpoint(folder, config, specs, weight_files=mapped, files=(*names, *index, *side), _places=places)
    classes = config.get("architectures")
    for label in (config.get("model_type"), *(classes[:1] if isinstance(classes, list) else [])):
        if isinstance(label, str) and (len(label) > MAX_LABEL_CHARACTERS or not label.isprintable()):
            raise UnsafeFile(f"{folder / 'config.json'} names an overlong or unprintable architecture; save it again")
    return checkpoint


def read_config(folder: Path, name: str = "config.json") -> dict[str, Any]:
    """The config.json of a folder, or another object of settings; empty when it has none."""
    config = read_small_json(safe_path(folder, name)) if holds(folder, name) else {}
    if not isinstance(config, dict):
        raise UnsafeFile(f"{folder / name} is not a JSON object; copy the checkpoint again")
    return config


def _weight_map(folder: Path) -> dict[str, str]:
    """Which shard holds which tensor; empty for a checkpoint in one file."""
    if holds(folder, WEIGHTS):
        return {}
    if not holds(folder, INDEX):
        raise NotFound(f"{folder} has no {WEIGHTS} and no {INDEX}; {_hint(sorted(folder.iterdir()))}")
    index = read_small_json(safe_path(folder, INDEX))
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise UnsafeFile(f"{folder / INDEX} has no weight_map; copy the checkpoint again")
    shards = set(map(str, weight_map.values()))
    if len(shards) > MAX_SHARDS:
        raise UnsafeFile(
            f"{folder / INDEX} names {len(shards)} shards, above the limit of {MAX_SHARDS}; save it in fewer"
        )
    for shard in weight_map.values():
        plain = isinstance(shard, str) and shard == Path(shard).name and shard.endswith(".safetensors")
        if not plain or shard.startswith(".") or "\\" in shard or not shard.isprintable():
            raise UnsafeFile(f"{folder / INDEX} names {str(shard)[:200]!r}; a shard is a plain *.safetensors file name")
    return weight_map


def holds(folder: Path, name: str) -> bool:
    """Whether a folder has a file of this name, be it a link to nothing."""
    return os.path.lexists(folder / name)


def held(folder: Path, names: Iterable[str]) -> tuple[str, ...]:
    """Those of the names that a folder has, be they links to nothing; asks the disk once."""
    present = {path.name for path in folder.iterdir()}
    return tuple(
        name for name in names if name.partition("/")[0] in present and ("/" not in name or holds(folder, name))
    )


_OTHER_FORMATS = {
    "adapter_config.json": "it is a PEFT adapter: merge it into its base (merge_and_unload) and save the whole model",
    ".gguf": "it is a GGUF file of llama.cpp: load it with from_pretrained(..., gguf_file=...) and save_pretrained",
    ".onnx": "it is an ONNX export: give the checkpoint that it was exported from",
    ".bin": "its weights are pickled, which Smatter never loads: save them with save_pretrained",
    ".pt": "its weights are pickled, which Smatter never loads: save them with save_pretrained",
    ".pth": "its weights are pickled, which Smatter never loads: save them with save_pretrained",
    ".h5": "its weights are for TensorFlow: load it with from_tf=True and save_pretrained",
    ".msgpack": "its weights are for Flax: load it with from_flax=True and save_pretrained",
}
"""What a folder without weights of the known form may be, by the name or the end of the name of one of its files."""


def _hint(paths: list[Path]) -> str:
    for ending, remedy in _OTHER_FORMATS.items():
        if any(path.name.endswith(ending) for path in paths):
            return remedy
    return "give a Hugging Face checkpoint folder"
