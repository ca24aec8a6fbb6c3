"""Candidates that do not mix with the base, and libraries that were damaged or tampered with."""

import json
import os
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from hostile_shelf import (
    CONFIG,
    OUTPUT,
    POSITION_IDS,
    POSITIONS,
    QUERY,
    VOCABULARY,
    WORDS,
    Cases,
    Shelf,
    Tensors,
    decode_tensors,
    encode,
    sound_tensors,
)

from smatter.cli.main import main

CASES = Cases()


def zeros(*shape: int) -> tuple[str, np.ndarray]:
    return "F32", np.zeros(shape, np.float32)


def candidate(naming: str, remedy: str) -> Callable[[Callable[[Tensors, dict[str, Any]], Any]], None]:
    """A case that changes tensors and config of a sound candidate in place; it may return another vocabulary."""

    def register(spoil: Callable[[Tensors, dict[str, Any]], Any]) -> None:
        def lay_out(shelf: Shelf) -> list[str]:
            tensors, config = sound_tensors(7), dict(CONFIG)
            vocabulary = spoil(tensors, config) or VOCABULARY
            return shelf.add(shelf.candidate(tensors=tensors, config=config, vocabulary=vocabulary))

        CASES.register(spoil.__name__, lay_out, naming, remedy)

    return register


@candidate("is a gpt2, the base a bert", "a library holds one architecture")
def another_architecture(_tensors: Tensors, config: dict[str, Any]) -> None:
    config["model_type"] = "gpt2"


@candidate("num_attention_heads is 4, the base's 2", "the weights mean another network")
def another_number_of_heads(_tensors: Tensors, config: dict[str, Any]) -> None:
    config["num_attention_heads"] = 4


@candidate(WORDS, "resize_token_embeddings")
def another_vocabulary_size(tensors: Tensors, config: dict[str, Any]) -> None:
    tensors[WORDS], config["vocab_size"] = zeros(7, 8), 7


@candidate("vocab_size", "use one tokenizer for all")
def another_vocabulary_size_in_the_config_alone(_tensors: Tensors, config: dict[str, Any]) -> None:
    config["vocab_size"] = 7


@candidate("'code'", "use one tokenizer for all")
def two_tokens_exchanged(_tensors: Tensors, _config: dict[str, Any]) -> tuple[str, ...]:
    return ("[PAD]", "[UNK]", "code", "law", "news", "poem")


@candidate("qkv", "save both with the same version")
def projections_fused(tensors: Tensors, _config: dict[str, Any]) -> None:
    del tensors[QUERY], tensors[QUERY.replace("query", "key")]
    tensors[QUERY.replace("query", "qkv")] = zeros(16, 8)


@candidate("tie_word_embeddings is false, the base's true", "save both alike")
def output_layer_untied_in_the_config_alone(_tensors: Tensors, config: dict[str, Any]) -> None:
    config["tie_word_embeddings"] = False


@candidate(POSITION_IDS, "they cannot be mixed")
def integers_that_differ(tensors: Tensors, _config: dict[str, Any]) -> None:
    tensors[POSITION_IDS] = ("I64", np.arange(5)[None] + 1)


@candidate(POSITION_IDS, "save it as the base's")
def integers_of_another_kind(tensors: Tensors, _config: dict[str, Any]) -> None:
    tensors[POSITION_IDS] = ("I32", np.arange(5, dtype=np.int32)[None])


@candidate(OUTPUT, f"--accept {OUTPUT}")
def tensor_missing(tensors: Tensors, _config: dict[str, Any]) -> None:
    del tensors[OUTPUT]


@candidate("adapter.weight", "--accept adapter.weight")
def tensor_too_many(tensors: Tensors, _config: dict[str, Any]) -> None:
    tensors["adapter.weight"] = zeros(8, 8)


@candidate(OUTPUT, "--exclude")
def another_shape(tensors: Tensors, _config: dict[str, Any]) -> None:
    tensors[OUTPUT] = zeros(8, 9)


@candidate(OUTPUT, "--exclude")
def transposed_shape_of_equal_size(tensors: Tensors, _config: dict[str, Any]) -> None:
    tensors[OUTPUT] = zeros(4, 16)


@candidate(POSITIONS, "resize one first")
def more_positions(tensors: Tensors, _config: dict[str, Any]) -> None:
    tensors[POSITIONS] = zeros(9, 8)


def integers_that_differ_in_form(form: str) -> None:
    def lay_out(shelf: Shelf) -> list[str]:
        tensors = sound_tensors(7) | {POSITION_IDS: ("I64", np.arange(5)[None] + 1)}
        return shelf.add(shelf.candidate(tensors=tensors), "--store", form)

    CASES.register(f"integers_that_differ_stored_as_{form}", lay_out, POSITION_IDS, "they cannot be mixed")


for form in ("delta", "bf16-delta", "low-rank", "int8"):
    integers_that_differ_in_form(form)


def pair(shelf: Shelf, extra: str, shape: tuple[int, ...], **configs: dict[str, Any]) -> list[str]:
    """A library of its own whose base has one tensor more, and the command that adds a candidate to it."""
    for seed, (name, config) in enumerate(configs.items()):
        tensors = sound_tensors(seed) | {extra: zeros(*shape)}
        shelf.candidate(tensors=tensors, config=CONFIG | config).rename(shelf.root / name)
    assert main(["library", "init", str(shelf.root / "new"), str(shelf.root / "first")]) == 0
    return ["library", "add", str(shelf.root / "new"), str(shelf.root / "second")]


@CASES.refused("classifier.weight", "--exclude 'classifier.*'")
def head_for_other_labels(shelf: Shelf) -> list[str]:
    return pair(shelf, "classifier.weight", (2, 8), first={"id2label": {"0": "no"}}, second={"id2label": {"0": "yes"}})


@CASES.refused("norm.running_mean", "use a network with layer norm")
def batch_normalisation(shelf: Shelf) -> list[str]:
    return pair(shelf, "norm.running_mean", (8,), first={}, second={})


@CASES.refused("exclude.0", "smatter library init")
def exclusion_of_a_page(shelf: Shelf) -> list[str]:
    return [*shelf.init(shelf.candidate()), "--exclude", "x" * 1000]


@CASES.refused("has no tensor to mix", "exclude less")
def everything_excluded(shelf: Shelf) -> list[str]:
    return [*shelf.init(shelf.candidate()), "--exclude", "*"]


def manifest(naming: str, remedy: str = "smatter library init") -> Callable[[Callable[[dict[str, Any]], Any]], None]:
    """A case that changes library.json in place or replaces it."""

    def register(spoil: Callable[[dict[str, Any]], Any]) -> None:
        def lay_out(shelf: Shelf) -> list[str]:
            shelf.change_json(shelf.library / "library.json", spoil)
            return shelf.compose()

        CASES.register(spoil.__name__, lay_out, naming, remedy)

    return register


@manifest("library.json")
def manifest_of_another_schema(content: dict[str, Any]) -> None:
    content["schema"] = 2


@manifest("library.json")
def manifest_without_a_schema(content: dict[str, Any]) -> None:
    del content["schema"]


@manifest("library.json")
def manifest_a_list(_content: dict[str, Any]) -> Any:
    return []


@manifest("colour")
def manifest_with_an_unknown_field(content: dict[str, Any]) -> None:
    content["colour"] = "red"


@manifest("sources.0.colour")
def manifest_with_an_unknown_field_of_a_source(content: dict[str, Any]) -> None:
    content["sources"][0]["colour"] = "red"


@manifest("sources.1.digest")
def manifest_with_a_short_digest(content: dict[str, Any]) -> None:
    content["sources"][1]["digest"] = "abc"


@manifest("sha256")
def manifest_with_a_digest_in_capitals(content: dict[str, Any]) -> None:
    content["sources"][1]["files"]["model.safetensors"]["sha256"] = "A" * 64


@manifest("'ghost'")
def manifest_whose_base_is_missing(content: dict[str, Any]) -> None:
    content["base"] = "ghost"


@manifest("'code'")
def manifest_whose_base_is_stored_in_parts(content: dict[str, Any]) -> None:
    content["base"] = "code"


@manifest("named twice")
def manifest_with_a_source_twice(content: dict[str, Any]) -> None:
    content["sources"].append(content["sources"][0])


@manifest("sources.1.path")
def manifest_with_a_nul_in_a_path(content: dict[str, Any]) -> None:
    content["sources"][1]["path"] = "check\0points"


@manifest("sources.1.name")
def manifest_with_a_name_that_climbs(content: dict[str, Any]) -> None:
    content["sources"][1]["name"] = "../law"


@manifest("sources.1.files")
def manifest_with_a_file_outside(content: dict[str, Any]) -> None:
    files = content["sources"][1]["files"]
    files["../base/model.safetensors"] = files["model.safetensors"]


@manifest("sources.1.form")
def manifest_with_an_unknown_form(content: dict[str, Any]) -> None:
    content["sources"][1]["form"] = "pickle"


@manifest("of_weights")
def manifest_with_a_negative_loss(content: dict[str, Any]) -> None:
    content["sources"][1]["loss"] = {"of_weights": -1, "of_delta": None}


@manifest("is in two modules")
def manifest_with_a_tensor_in_two_modules(content: dict[str, Any]) -> None:
    content["modules"]["again"] = [QUERY]


@manifest(QUERY, "restore the base")
def manifest_without_a_tensor(content: dict[str, Any]) -> None:
    content["modules"] = {
        module: [tensor for tensor in tensors if tensor != QUERY] for module, tensors in content["modules"].items()
    }


@manifest("'ghost'", "restore the base")
def manifest_with_a_tensor_too_many(content: dict[str, Any]) -> None:
    content["modules"]["ghosts"] = ["ghost"]


@manifest("sources")
def manifest_of_two_thousand_sources(content: dict[str, Any]) -> None:
    content["sources"] += [content["sources"][1] | {"name": f"s{number}"} for number in range(2000)]


@manifest("[2J", "restore it, or remove the source")
def manifest_with_a_path_that_clears_the_screen(content: dict[str, Any]) -> None:
    content["sources"][1]["path"] = "\x1b[2J\r\n"


@CASES.refused("library.json", "save it again")
def manifest_cut_short(shelf: Shelf) -> list[str]:
    file = shelf.library / "library.json"
    file.write_bytes(file.read_bytes()[:-20])
    return shelf.compose()


@CASES.refused("library.json", "save it again")
def manifest_of_no_bytes(shelf: Shelf) -> list[str]:
    (shelf.library / "library.json").write_bytes(b"")
    return ["library", "list", str(shelf.library)]


@CASES.refused("'base'", "save it again")
def manifest_with_a_key_twice(shelf: Shelf) -> list[str]:
    file = shelf.library / "library.json"
    file.write_text('{"base": "law",' + file.read_text()[1:])
    return ["library", "check", str(shelf.library)]


@CASES.refused("library.json", "give a")
def manifest_a_pipe(shelf: Shelf) -> list[str]:
    (shelf.library / "library.json").unlink()
    os.mkfifo(shelf.library / "library.json")
    return ["library", "remove", str(shelf.library), "law"]


@CASES.refused("library.json", "smatter library init")
def no_library(shelf: Shelf) -> list[str]:
    return ["compose", str(shelf.root), "--weights", "base=1", "-o", str(shelf.output)]


@CASES.refused("nowhere", "smatter library init")
def library_missing(shelf: Shelf) -> list[str]:
    return ["library", "add", str(shelf.root / "nowhere"), str(shelf.candidate())]


@CASES.refused("library", "smatter library add")
def library_made_twice(shelf: Shelf) -> list[str]:
    return ["library", "init", str(shelf.library), str(shelf.candidate())]


@CASES.refused("'law'", "remove that one first")
def source_added_twice(shelf: Shelf) -> list[str]:
    return shelf.add(shelf.candidate(), "--name", "law")


@CASES.refused("'ghost'", "the library has")
def unknown_source_removed(shelf: Shelf) -> list[str]:
    return ["library", "remove", str(shelf.library), "ghost"]


@CASES.refused("'base'", "another base")
def base_removed(shelf: Shelf) -> list[str]:
    return ["library", "remove", str(shelf.library), "base"]


def bad_name(case: str, name: str) -> None:
    """A name that would climb out of the library must be refused before anything is deleted."""

    def lay_out(shelf: Shelf) -> list[str]:
        (shelf.root / "precious").mkdir()
        return shelf.add(shelf.candidate(), "--name", name, "--store", "delta")

    CASES.register(case, lay_out, repr(name), "letters")


bad_name("name_that_climbs", "../../precious")
bad_name("name_of_the_library_itself", "..")
bad_name("name_of_the_sources_folder", ".")
bad_name("name_with_a_space", "my source")
bad_name("name_too_long", "n" * 101)


@CASES.refused("'my base'", "letters")
def base_name_with_a_space(shelf: Shelf) -> list[str]:
    return [*shelf.init(shelf.candidate()), "--name", "my base"]


@CASES.refused("rank 0", "from 1 to 4096")
def rank_of_zero(shelf: Shelf) -> list[str]:
    return shelf.add(shelf.candidate(), "--store", "low-rank", "--rank", "0")


@CASES.refused("rank 3", "low-rank")
def rank_without_low_rank(shelf: Shelf) -> list[str]:
    return shelf.add(shelf.candidate(), "--rank", "3")


CHANGED = "restore the file, or remove the source"


@CASES.refused("law/model.safetensors", CHANGED)
def source_with_one_byte_changed(shelf: Shelf) -> list[str]:
    file = shelf.library / "checkpoints/law/model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    return shelf.compose()


@CASES.refused("law/model.safetensors", CHANGED)
def source_with_one_byte_changed_and_its_times_restored(shelf: Shelf) -> list[str]:
    file = shelf.library / "checkpoints/law/model.safetensors"
    status = file.stat()
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    return shelf.compose()


@CASES.refused("law/model.safetensors", CHANGED)
def source_replaced_by_another_of_the_same_size(shelf: Shelf) -> list[str]:
    file = shelf.library / "checkpoints/law/model.safetensors"
    other = shelf.library / "checkpoints/code/model.safetensors"
    assert other.stat().st_size == file.stat().st_size
    other.replace(file)
    return shelf.compose()


@CASES.refused("base/config.json", CHANGED)
def config_of_the_base_changed(shelf: Shelf) -> list[str]:
    shelf.change_json(shelf.library / "checkpoints/base/config.json", lambda config: config | {"hidden_act": "relu"})
    return shelf.compose("law=1")


@CASES.refused("stored.safetensors", CHANGED)
def stored_source_with_one_byte_changed(shelf: Shelf) -> list[str]:
    file = shelf.stored("code")
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    return shelf.compose("code=1")


@CASES.refused("checkpoints/law", "remove the source")
def source_folder_missing(shelf: Shelf) -> list[str]:
    (shelf.library / "checkpoints/law").rename(shelf.root / "moved")
    return shelf.compose()


@CASES.refused("law/model.safetensors", "copy the checkpoint again")
def source_file_missing(shelf: Shelf) -> list[str]:
    (shelf.library / "checkpoints/law/model.safetensors").unlink()
    return shelf.compose()


@CASES.refused("checkpoints/base", "give a Hugging Face checkpoint folder")
def base_folder_missing(shelf: Shelf) -> list[str]:
    (shelf.library / "checkpoints/base").rename(shelf.root / "moved")
    return shelf.compose()


@CASES.refused("candidate/model.safetensors", "remove the source")
def weights_slipped_in_beside_the_shards(shelf: Shelf) -> list[str]:
    """Whoever reads model.safetensors first would use weights that nobody ever hashed."""
    folder = shelf.sharded()
    assert main(shelf.add(folder, "--name", "sharded")) == 0
    (folder / "model.safetensors").write_bytes(encode(sound_tensors(9)))
    return shelf.compose("sharded=1")


@CASES.refused("base/tokenizer.json", "remove the source")
def tokenizer_slipped_in_beside_the_base(shelf: Shelf) -> list[str]:
    """An export copies the side files of the base: only those that were added with it."""
    (shelf.library / "checkpoints/base/tokenizer.json").write_text("{}")
    return shelf.compose()


@CASES.refused("stored.safetensors", "copy it again")
def pipe_for_a_stored_source(shelf: Shelf) -> list[str]:
    file = shelf.stored("code")
    file.unlink()
    os.mkfifo(file)
    return shelf.compose("code=1")


@CASES.refused("law/model.safetensors", CHANGED)
def seal_a_pipe_and_a_source_changed(shelf: Shelf) -> list[str]:
    os.mkfifo(shelf.library / ".smatter-seal.json")
    return CASES["source_with_one_byte_changed"].lay_out(shelf)


Spoil = Callable[[Tensors, dict[str, Any]], Any]


def stored(source: str, remedy: str = "remove the source", naming: str = "") -> Callable[[Spoil], None]:
    """A case that changes the parts or the description of a stored source and makes library.json agree with it."""

    def register(spoil: Spoil) -> None:
        def lay_out(shelf: Shelf) -> list[str]:
            file = shelf.stored(source)
            parts, metadata = decode_tensors(file.read_bytes())
            described = json.loads(metadata["smatter"])
            described = spoil(parts, described) or described
            file.write_bytes(encode(parts, {"smatter": json.dumps(described)}))
            shelf.restore_hash(source, file)
            return shelf.compose(f"{source}=1")

        CASES.register(spoil.__name__, lay_out, naming or "stored.safetensors", remedy)

    return register


def packed(raw: bytes) -> np.ndarray:
    return np.frombuffer(zlib.compress(raw, 9), np.uint8)


@stored("code")
def planes_that_inflate_without_end(parts: Tensors, _described: dict[str, Any]) -> None:
    bomb = packed(bytes(1 << 22))
    parts[f"{QUERY}:planes"] = ("U8", bomb)
    parts[f"{QUERY}:index"] = ("I64", np.array([0, bomb.size, bomb.size, bomb.size, bomb.size]))


@stored("code")
def planes_that_inflate_to_too_little(parts: Tensors, _described: dict[str, Any]) -> None:
    short = packed(bytes(63))
    parts[f"{QUERY}:planes"] = ("U8", short)
    parts[f"{QUERY}:index"] = ("I64", np.array([0, *[short.size] * 4]))


@stored("code")
def planes_that_do_not_inflate(parts: Tensors, _described: dict[str, Any]) -> None:
    parts[f"{QUERY}:planes"] = ("U8", np.full(30, 7, np.uint8))
    parts[f"{QUERY}:index"] = ("I64", np.array([0, *[30] * 4]))


@stored("code")
def planes_of_two_dimensions(parts: Tensors, _described: dict[str, Any]) -> None:
    parts[f"{QUERY}:planes"] = ("U8", np.zeros((256, 2), np.uint8))
    parts[f"{QUERY}:index"] = ("I64", np.array([0, 32, 64, 96, 128]))


@stored("code")
def planes_a_scalar(parts: Tensors, _described: dict[str, Any]) -> None:
    parts[f"{QUERY}:planes"] = ("U8", np.zeros((), np.uint8))


@stored("code")
def index_that_is_negative(parts: Tensors, _described: dict[str, Any]) -> None:
    parts[f"{QUERY}:planes"] = ("U8", np.zeros(400, np.uint8))
    parts[f"{QUERY}:index"] = ("I64", np.array([-320, -256, -192, -128, -64]))


@stored("code")
def index_beyond_the_planes(parts: Tensors, _described: dict[str, Any]) -> None:
    parts[f"{QUERY}:index"] = ("I64", np.array([0, 64, 128, 2**62, 2**63 - 1]))


@stored("code")
def index_that_decreases(parts: Tensors, _described: dict[str, Any]) -> None:
    parts[f"{QUERY}:index"] = ("I64", np.array([128, 64, 0, 64, 128]))


@stored("code")
def index_too_short(parts: Tensors, _described: dict[str, Any]) -> None:
    parts[f"{QUERY}:index"] = ("I64", np.array([0, 64]))


@stored("code")
def part_missing(parts: Tensors, _described: dict[str, Any]) -> None:
    del parts[f"{QUERY}:index"]


@stored("code")
def part_of_an_unlisted_tensor(parts: Tensors, _described: dict[str, Any]) -> None:
    parts["ghost:planes"] = ("U8", np.zeros(4, np.uint8))


@stored("code")
def part_of_a_tensor_of_integers(parts: Tensors, _described: dict[str, Any]) -> None:
    parts[f"{POSITION_IDS}:planes"] = ("U8", np.ones(40, np.uint8))
    parts[f"{POSITION_IDS}:index"] = ("I64", np.arange(9) * 5)


@stored("news")
def integers_of_another_shape(parts: Tensors, _described: dict[str, Any]) -> None:
    parts[f"{QUERY}:integers"] = ("I8", np.zeros((4, 16), np.int8))


@stored("news")
def integers_of_another_dtype(parts: Tensors, _described: dict[str, Any]) -> None:
    parts[f"{QUERY}:integers"] = ("U8", np.zeros((8, 8), np.uint8))


@stored("news")
def scale_too_short(parts: Tensors, _described: dict[str, Any]) -> None:
    parts[f"{QUERY}:scale"] = ("F32", np.ones(1, np.float32))


@stored("news")
def quantised_tensor_of_integers(parts: Tensors, _described: dict[str, Any]) -> None:
    parts[f"{POSITION_IDS}:integers"] = ("I8", np.zeros((1, 5), np.int8))
    parts[f"{POSITION_IDS}:scale"] = ("F32", np.ones(1, np.float32))


@stored("poem")
def factors_that_do_not_fit(parts: Tensors, _described: dict[str, Any]) -> None:
    parts[f"{QUERY}:right"] = zeros(2, 8)


@stored("poem")
def left_factor_of_no_columns(parts: Tensors, _described: dict[str, Any]) -> None:
    parts[f"{QUERY}:left"], parts[f"{QUERY}:right"] = zeros(8, 0), zeros(0, 8)


@stored("poem")
def left_factor_a_vector(parts: Tensors, _described: dict[str, Any]) -> None:
    parts[f"{QUERY}:left"] = zeros(8)


@stored("soft")
def delta_of_another_shape(parts: Tensors, _described: dict[str, Any]) -> None:
    parts[f"{QUERY}:delta"] = ("BF16", np.zeros((8, 7), np.uint16))


@stored("soft")
def delta_of_a_tensor_of_integers(parts: Tensors, _described: dict[str, Any]) -> None:
    parts[f"{POSITION_IDS}:delta"] = ("BF16", np.zeros((1, 5), np.uint16))


@stored("code")
def stored_in_another_form(_parts: Tensors, described: dict[str, Any]) -> None:
    described["form"] = "int8"


@stored("code")
def stored_tensor_of_another_shape(_parts: Tensors, described: dict[str, Any]) -> None:
    described["tensors"][QUERY][1] = [8, 9]


@stored("code")
def stored_tensor_of_infinite_shape(_parts: Tensors, described: dict[str, Any]) -> None:
    described["tensors"][QUERY][1] = ["inf"]


@stored("code")
def stored_tensor_of_a_fractional_shape(_parts: Tensors, described: dict[str, Any]) -> None:
    described["tensors"][QUERY][1] = [8.5, 8]


@stored("code")
def stored_tensor_of_an_unknown_dtype(_parts: Tensors, described: dict[str, Any]) -> None:
    described["tensors"][QUERY][0] = "F8"


@stored("code")
def stored_tensor_with_a_negative_side(_parts: Tensors, described: dict[str, Any]) -> None:
    described["tensors"][QUERY][1] = [-8, -8]


@stored("code")
def stored_description_a_list(_parts: Tensors, _described: dict[str, Any]) -> list[int]:
    return [1]


@stored("code", "remove the source", naming=QUERY)
def stored_tensor_not_listed(parts: Tensors, described: dict[str, Any]) -> None:
    del described["tensors"][QUERY], parts[f"{QUERY}:planes"], parts[f"{QUERY}:index"]


@CASES.refused("stored.safetensors", "remove the source")
def stored_without_a_description(shelf: Shelf) -> list[str]:
    file = shelf.stored("code")
    file.write_bytes(encode(decode_tensors(file.read_bytes())[0]))
    shelf.restore_hash("code", file)
    return shelf.compose("code=1")
