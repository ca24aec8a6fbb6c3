"""Checkpoint folders that are damaged or dangerous to read."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from hostile_shelf import QUERY, VOCABULARY, WORDS, Cases, Shelf, decode, encode, framed, sound_tensors

CASES = Cases()
WEIGHTS = "candidate/model.safetensors"
INDEX = "candidate/model.safetensors.index.json"


def weights(remedy: str, naming: str = WEIGHTS) -> Callable[[Callable[[bytes], bytes]], None]:
    """A case that turns the bytes of a sound weights file into others."""

    def register(spoil: Callable[[bytes], bytes]) -> None:
        def lay_out(shelf: Shelf) -> list[str]:
            file = shelf.candidate() / "model.safetensors"
            file.write_bytes(spoil(file.read_bytes()))
            return shelf.add(file.parent)

        CASES.register(spoil.__name__, lay_out, naming, remedy)

    return register


def header(remedy: str, naming: str = QUERY) -> Callable[[Callable[[dict[str, Any]], Any]], None]:
    """A case that changes the header of a sound weights file in place."""

    def register(spoil: Callable[[dict[str, Any]], Any]) -> None:
        def changed(file: bytes) -> bytes:
            entries, data = decode(file)
            spoil(entries)
            return framed(json.dumps(entries).encode(), data)

        changed.__name__ = spoil.__name__
        weights(remedy, naming)(changed)

    return register


@weights("copy it again")
def weights_cut_short(file: bytes) -> bytes:
    return file[:-5]


@weights("copy it again")
def weights_cut_in_the_header(file: bytes) -> bytes:
    return file[:100]


@weights("copy it again")
def weights_of_no_bytes(_file: bytes) -> bytes:
    return b""


@weights("copy it again")
def weights_of_seven_bytes(file: bytes) -> bytes:
    return file[:7]


@weights("copy it again")
def header_length_of_exabytes(file: bytes) -> bytes:
    return b"\xff" * 8 + file[8:]


@weights("copy it again")
def header_length_beyond_the_file(file: bytes) -> bytes:
    return (len(file) - 7).to_bytes(8, "little") + file[8:]


@weights("save it in shards")
def header_of_five_megabytes(_file: bytes) -> bytes:
    return framed(b"{" + b" " * 5_000_000 + b"}")


@weights("save it again")
def header_of_no_bytes(_file: bytes) -> bytes:
    return framed(b"")


@weights("save it again")
def header_not_json(_file: bytes) -> bytes:
    return framed(b"{'single': 'quotes'}")


@weights("save it again")
def header_not_utf8(file: bytes) -> bytes:
    entries, data = decode(file)
    return framed(json.dumps(entries).encode().replace(b"query", b"\xff\xfe\xfd\xfc\xfb"), data)


@weights("save it again")
def header_in_utf16(file: bytes) -> bytes:
    entries, data = decode(file)
    return framed(json.dumps(entries).encode("utf-16"), data)


@weights("not a safetensors file")
def header_a_list(_file: bytes) -> bytes:
    return framed(b"[]")


@weights("save it again")
def header_nested_a_million_deep(_file: bytes) -> bytes:
    return framed(b"[" * 1_000_000 + b"]" * 1_000_000)


@weights("save it again")
def header_nested_two_hundred_deep(_file: bytes) -> bytes:
    return framed(b'{"a":' * 200 + b"1" + b"}" * 200)


@weights("save it again")
def header_with_a_key_twice(file: bytes) -> bytes:
    entries, data = decode(file)
    twice = json.dumps({QUERY: entries[QUERY]})[1:-1]
    return framed(b"{" + twice.encode() + b"," + json.dumps(entries).encode()[1:], data)


@weights("save it again")
def header_of_many_keys_the_last_twice(_file: bytes) -> bytes:
    keys = [f"{number:x}" for number in range(300_000)]
    return framed(("{" + ",".join(f'"{key}":1' for key in [*keys, keys[-1]]) + "}").encode())


@weights("save it again")
def header_with_not_a_number(file: bytes) -> bytes:
    entries, data = decode(file)
    return framed(json.dumps(entries | {"x": float("nan")}).encode(), data)


@weights("save it again")
def header_with_a_number_of_ten_thousand_digits(file: bytes) -> bytes:
    entries, data = decode(file)
    return framed(json.dumps(entries).encode()[:-1] + b',"x":' + b"9" * 10_000 + b"}", data)


@weights("save it again")
def header_with_half_a_character(_file: bytes) -> bytes:
    return framed(b'{"__metadata__":{"a":"\\ud800"}}')


@header("save the checkpoint again")
def overlapping_tensors(entries: dict[str, Any]) -> None:
    entries[QUERY.replace("query", "key")]["data_offsets"] = entries[QUERY]["data_offsets"]


@weights("save the checkpoint again", naming=WORDS)
def hole_before_the_first_tensor(file: bytes) -> bytes:
    entries, data = decode(file)
    for name in set(entries) - {"__metadata__"}:
        entries[name]["data_offsets"] = [offset + 8 for offset in entries[name]["data_offsets"]]
    return framed(json.dumps(entries).encode(), bytes(8) + data)


@header("copy it again", naming=WEIGHTS)
def tensor_beyond_the_end(entries: dict[str, Any]) -> None:
    last = max(end for name in set(entries) - {"__metadata__"} for end in entries[name]["data_offsets"])
    entries["x"] = {"dtype": "F32", "shape": [4], "data_offsets": [last, last + 16]}


@weights("copy it again")
def bytes_after_the_last_tensor(file: bytes) -> bytes:
    return file + b"\0"


@header("save the checkpoint again")
def offsets_that_decrease(entries: dict[str, Any]) -> None:
    entries[QUERY]["data_offsets"].reverse()


@header("save the checkpoint again")
def three_offsets(entries: dict[str, Any]) -> None:
    entries[QUERY]["data_offsets"].append(9)


@header("save the checkpoint again")
def offsets_of_the_wrong_span(entries: dict[str, Any]) -> None:
    entries[QUERY]["shape"] = [8, 9]


@header("save the checkpoint again")
def negative_side(entries: dict[str, Any]) -> None:
    entries[QUERY]["shape"] = [-8, -8]


@header("save the checkpoint again")
def boolean_side(entries: dict[str, Any]) -> None:
    entries[QUERY]["shape"] = [True, 64]


@header("save the checkpoint again")
def fractional_side(entries: dict[str, Any]) -> None:
    entries[QUERY]["shape"] = [8.0, 8]


@header("save the checkpoint again")
def side_beyond_64_bits(entries: dict[str, Any]) -> None:
    entries[QUERY]["shape"] = [2**70]


@header("save the checkpoint again")
def shape_whose_product_wraps_around(entries: dict[str, Any]) -> None:
    entries[QUERY]["shape"] = [2**52, 2**12 + 64]


@header("save the checkpoint again")
def shape_of_many_dimensions(entries: dict[str, Any]) -> None:
    entries[QUERY]["shape"] = [8, 8, *[1] * 60]


@header("save the checkpoint again")
def shape_a_number(entries: dict[str, Any]) -> None:
    entries[QUERY]["shape"] = 64


@header("save the checkpoint again")
def dtype_of_eight_bits(entries: dict[str, Any]) -> None:
    entries[QUERY]["dtype"] = "F8_E4M3"


@header("save the checkpoint again")
def dtype_of_four_bits(entries: dict[str, Any]) -> None:
    entries[QUERY]["dtype"] = "I4"


@header("save the checkpoint again")
def dtype_a_list(entries: dict[str, Any]) -> None:
    entries[QUERY]["dtype"] = ["F32"]


@header("save the checkpoint again")
def tensor_described_by_a_word(entries: dict[str, Any]) -> None:
    entries[QUERY] = "weights"


@header("save the checkpoint again")
def tensor_with_an_unknown_field(entries: dict[str, Any]) -> None:
    entries[QUERY]["compression"] = "zip"


@header("save it again", naming=WEIGHTS)
def metadata_with_a_number(entries: dict[str, Any]) -> None:
    entries["__metadata__"] = {"epoch": 3}


@header("save it in shards", naming=WEIGHTS)
def sixty_thousand_tensors(entries: dict[str, Any]) -> None:
    entries |= {f"{number:x}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for number in range(60_000)}


@header("save the checkpoint again", naming=r"\x1b[2J")
def name_that_clears_the_screen(entries: dict[str, Any]) -> None:
    entries["\x1b[2J"] = entries.pop(QUERY)


@header("save the checkpoint again", naming=WEIGHTS)
def name_of_a_thousand_characters(entries: dict[str, Any]) -> None:
    entries["n" * 1000] = entries.pop(QUERY)


@weights("copy the checkpoint again", naming="candidate")
def no_tensors_at_all(_file: bytes) -> bytes:
    return framed(b"{}")


def shards(remedy: str, naming: str = INDEX) -> Callable[[Callable[[dict[str, Any]], Any]], None]:
    """A case that changes the index of a sound sharded checkpoint."""

    def register(spoil: Callable[[dict[str, Any]], Any]) -> None:
        def lay_out(shelf: Shelf) -> list[str]:
            folder = shelf.sharded()
            (shelf.root / "outside.safetensors").write_bytes((folder / "one.safetensors").read_bytes())
            shelf.change_json(folder / "model.safetensors.index.json", spoil)
            return shelf.add(folder)

        CASES.register(spoil.__name__, lay_out, naming, remedy)

    return register


@shards("a shard is a plain *.safetensors file name")
def shard_above_the_folder(index: dict[str, Any]) -> None:
    index["weight_map"][QUERY] = "../outside.safetensors"


@shards("a shard is a plain *.safetensors file name")
def shard_at_an_absolute_path(index: dict[str, Any]) -> None:
    index["weight_map"][QUERY] = "/etc/passwd"


@shards("a shard is a plain *.safetensors file name")
def shard_with_a_backslash(index: dict[str, Any]) -> None:
    index["weight_map"][QUERY] = "..\\outside.safetensors"


@shards("a shard is a plain *.safetensors file name")
def shard_with_a_nul(index: dict[str, Any]) -> None:
    index["weight_map"][QUERY] = "one\0.safetensors"


@shards("a shard is a plain *.safetensors file name")
def shard_of_pickles(index: dict[str, Any]) -> None:
    index["weight_map"][QUERY] = "pytorch_model.bin"


@shards("a shard is a plain *.safetensors file name")
def shard_a_number(index: dict[str, Any]) -> None:
    index["weight_map"][QUERY] = 7


@shards("copy the checkpoint again", naming="candidate/three.safetensors")
def shard_missing(index: dict[str, Any]) -> None:
    index["weight_map"][QUERY] = "three.safetensors"


@shards("save it again", naming="candidate/")
def tensor_in_another_shard(index: dict[str, Any]) -> None:
    index["weight_map"] |= dict.fromkeys(index["weight_map"], "one.safetensors")
    index["weight_map"][QUERY] = "two.safetensors"


@shards("save it again", naming=QUERY)
def tensor_not_in_the_index(index: dict[str, Any]) -> None:
    del index["weight_map"][QUERY]


@shards("copy it again", naming="'ghost'")
def tensor_missing_from_its_shard(index: dict[str, Any]) -> None:
    index["weight_map"]["ghost"] = "one.safetensors"


@shards("copy the checkpoint again")
def index_without_weights(index: dict[str, Any]) -> None:
    index["weight_map"].clear()


@shards("copy the checkpoint again")
def index_a_list(_index: dict[str, Any]) -> list[int]:
    return [1]


@shards("give")
def index_of_five_megabytes(index: dict[str, Any]) -> None:
    index["padding"] = " " * 5_000_000


@shards("save it in fewer")
def index_of_two_thousand_shards(index: dict[str, Any]) -> None:
    index["weight_map"] |= {f"t{number}": f"{number}.safetensors" for number in range(2000)}


@CASES.refused(INDEX, "save it again")
def index_cut_short(shelf: Shelf) -> list[str]:
    index = shelf.sharded() / "model.safetensors.index.json"
    index.write_bytes(index.read_bytes()[:-3])
    return shelf.add(index.parent)


@CASES.refused(WEIGHTS, "copy the file into the folder")
def weights_linked_from_outside(shelf: Shelf) -> list[str]:
    file = shelf.candidate() / "model.safetensors"
    file.rename(shelf.root / "elsewhere")
    file.symlink_to(shelf.root / "elsewhere")
    return shelf.add(file.parent)


@CASES.refused("candidate/config.json", "copy the file into the folder")
def config_linked_from_outside(shelf: Shelf) -> list[str]:
    file = shelf.candidate() / "config.json"
    file.rename(shelf.root / "elsewhere")
    file.symlink_to(shelf.root / "elsewhere")
    return shelf.add(file.parent)


@CASES.refused("candidate/config.json", "copy the file into the folder")
def config_linked_to_a_secret(shelf: Shelf) -> list[str]:
    file = shelf.candidate() / "config.json"
    file.unlink()
    file.symlink_to("/etc/passwd")
    return shelf.add(file.parent)


@CASES.refused("model.safetensors", "copy the file into the folder")
def cache_whose_blobs_lie_elsewhere(shelf: Shelf) -> list[str]:
    snapshot = shelf.root / "models--x" / "snapshots" / "0123"
    snapshot.parent.mkdir(parents=True)
    shelf.candidate().rename(snapshot)
    (shelf.root / "elsewhere").mkdir()
    (snapshot / "model.safetensors").rename(shelf.root / "elsewhere" / "abc")
    (shelf.root / "models--x" / "blobs").symlink_to(shelf.root / "elsewhere")
    (snapshot / "model.safetensors").symlink_to("../../blobs/abc")
    return shelf.add(snapshot)


@CASES.refused(WEIGHTS, "copy the checkpoint again")
def weights_linked_to_nothing(shelf: Shelf) -> list[str]:
    file = shelf.candidate() / "model.safetensors"
    file.unlink()
    file.symlink_to("gone")
    return shelf.add(file.parent)


@CASES.refused(WEIGHTS, "check the path")
def weights_linked_in_a_circle(shelf: Shelf) -> list[str]:
    file = shelf.candidate() / "model.safetensors"
    file.unlink()
    file.symlink_to("model.safetensors")
    return shelf.add(file.parent)


def not_a_file(name: str, make: Callable[[Path], None], what: str) -> None:
    """A case where a file of the checkpoint is something else, on which a careless reader hangs."""

    def lay_out(shelf: Shelf) -> list[str]:
        file = shelf.candidate() / what
        file.unlink()
        make(file)
        return shelf.add(file.parent)

    CASES.register(name, lay_out, f"candidate/{what}", "give a file")


not_a_file("weights_a_pipe", os.mkfifo, "model.safetensors")
not_a_file("weights_a_folder", os.mkdir, "model.safetensors")
not_a_file("weights_a_device", lambda path: path.symlink_to("/dev/zero"), "model.safetensors")
not_a_file("config_a_pipe", os.mkfifo, "config.json")
not_a_file("vocabulary_a_pipe", os.mkfifo, "vocab.txt")


@CASES.refused("candidate", "save them with save_pretrained")
def pickled_weights(shelf: Shelf) -> list[str]:
    folder = shelf.candidate()
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    return shelf.add(folder)


@CASES.refused("candidate", "merge_and_unload")
def adapter(shelf: Shelf) -> list[str]:
    folder = shelf.candidate()
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text("{}")
    return shelf.add(folder)


@CASES.refused("nowhere", "give a Hugging Face checkpoint folder")
def folder_missing(shelf: Shelf) -> list[str]:
    return shelf.add(shelf.root / "nowhere")


@CASES.refused(WEIGHTS, "give a Hugging Face checkpoint folder")
def file_for_a_folder(shelf: Shelf) -> list[str]:
    return shelf.add(shelf.candidate() / "model.safetensors")


@CASES.refused("candidate", "give a Hugging Face checkpoint folder")
def folder_without_weights(shelf: Shelf) -> list[str]:
    folder = shelf.candidate()
    (folder / "model.safetensors").unlink()
    return shelf.add(folder)


BAD_VALUES = {
    "nan_in_float32": ("F32", np.float32("nan")),
    "infinity_in_float32": ("F32", np.float32("inf")),
    "nan_in_bfloat16": ("BF16", np.uint16(0x7FC1)),
    "negative_infinity_in_bfloat16": ("BF16", np.uint16(0xFF80)),
    "nan_in_float16": ("F16", np.float16("nan")),
    "infinity_in_float16": ("F16", np.float16("inf")),
    "nan_in_float64": ("F64", np.float64("nan")),
}


def _bad_value(name: str, dtype: str, value: np.generic) -> None:
    def lay_out(shelf: Shelf) -> list[str]:
        spoiled = np.full((8, 8), value.dtype.type(0))
        spoiled[3, 5] = value
        return shelf.add(shelf.candidate(tensors=sound_tensors(7) | {QUERY: (dtype, spoiled)}))

    CASES.register(name, lay_out, QUERY, "leave it out")


for name, (dtype, value) in BAD_VALUES.items():
    _bad_value(name, dtype, value)


@CASES.refused(QUERY, "leave it out")
def nan_in_the_base(shelf: Shelf) -> list[str]:
    spoiled = np.full((8, 8), np.float32("nan"))
    return shelf.init(shelf.candidate(tensors=sound_tensors(0) | {QUERY: ("F32", spoiled)}))


@CASES.refused(QUERY, "leave it out")
def nan_to_be_stored_as_a_delta(shelf: Shelf) -> list[str]:
    spoiled = np.full((8, 8), np.float32("nan"))
    folder = shelf.candidate(tensors=sound_tensors(7) | {QUERY: ("F32", spoiled)})
    return shelf.add(folder, "--store", "delta")


def config(remedy: str, naming: str = "candidate/config.json") -> Callable[[Callable[[str], str]], None]:
    """A case that changes the text of config.json."""

    def register(spoil: Callable[[str], str]) -> None:
        def lay_out(shelf: Shelf) -> list[str]:
            file = shelf.candidate() / "config.json"
            file.write_text(spoil(file.read_text()))
            return shelf.add(file.parent)

        CASES.register(spoil.__name__, lay_out, naming, remedy)

    return register


@config("save it again")
def config_cut_short(text: str) -> str:
    return text[:-4]


@config("copy the checkpoint again")
def config_a_list(text: str) -> str:
    return f"[{text}]"


@config("save it again")
def config_with_a_key_twice(text: str) -> str:
    return '{"model_type": "bert",' + text[1:]


@config("save it again")
def config_with_infinity(text: str) -> str:
    return '{"scale": Infinity,' + text[1:]


@config("save it again")
def config_with_a_number_beyond_floats(text: str) -> str:
    return '{"scale": 1e999,' + text[1:]


@config("give")
def config_of_five_megabytes(text: str) -> str:
    return text + " " * 5_000_000


@config("save it again")
def config_nested_nine_hundred_deep(text: str) -> str:
    return '{"deep": ' + "[" * 900 + "]" * 900 + "," + text[1:]


@CASES.refused("candidate/config.json", "save it again")
def base_with_a_model_type_of_a_page(shelf: Shelf) -> list[str]:
    return shelf.init(shelf.candidate(config={"model_type": "bert" * 1000}))


@CASES.refused("candidate/config.json", "save it again")
def base_with_an_architecture_that_clears_the_screen(shelf: Shelf) -> list[str]:
    return shelf.init(shelf.candidate(config={"model_type": "bert", "architectures": ["\x1b[2J"]}))


def tokenizer(remedy: str, naming: str = "candidate/tokenizer.json") -> Callable[[Callable[[], Any]], None]:
    """A case with a tokenizer.json, in a library whose base has one too."""

    def register(content: Callable[[], Any]) -> None:
        def lay_out(shelf: Shelf) -> list[str]:
            vocabulary = {token: number for number, token in enumerate(VOCABULARY)}
            base = shelf.library / "checkpoints/base/tokenizer.json"
            base.write_text(json.dumps({"model": {"vocab": vocabulary}}))
            shelf.restore_hash("base", base)
            folder = shelf.candidate()
            (folder / "tokenizer.json").write_text(json.dumps(content()))
            return shelf.add(folder)

        CASES.register(content.__name__, lay_out, naming, remedy)

    return register


@tokenizer("copy the checkpoint again")
def tokenizer_a_list() -> Any:
    return []


@tokenizer("copy the checkpoint again")
def tokenizer_whose_vocabulary_is_a_word() -> Any:
    return {"model": {"vocab": "abc"}}


@tokenizer("copy the checkpoint again")
def tokenizer_with_an_empty_pair() -> Any:
    return {"model": {"vocab": [[]]}}


@tokenizer("copy the checkpoint again", naming="tokenizer.json")
def tokenizer_with_added_tokens_of_mixed_kinds() -> Any:
    return {"model": {"vocab": {"a": 1}}, "added_tokens": [{"content": 5, "id": 1}, {"content": "b", "id": 2}]}


@tokenizer("use one tokenizer for all", naming="'law'")
def tokenizer_with_a_token_moved() -> Any:
    vocabulary = {token: number for number, token in enumerate(VOCABULARY)}
    return {"model": {"vocab": vocabulary | {"law": 9}}}


@weights("save the checkpoint again", naming=WORDS)
def sound_file_with_a_longer_tail_than_said(file: bytes) -> bytes:
    tensors = {WORDS: ("F32", np.zeros((6, 8), np.float32))}
    entries, data = decode(encode(tensors))
    entries[WORDS]["shape"] = [6, 7]
    return framed(json.dumps(entries).encode(), data)
