"""Weights, recipes and merges that ask for the impossible, and places that cannot be written to."""

import json
import os
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from hostile_shelf import OUTPUT, POSITION_IDS, QUERY, Cases, Shelf, Tensors, decode_tensors, encode

CASES = Cases()

WEIGHTS = {
    "weights_above_the_simplex": ("base=.7,law=.7", "1.4", "divide them by their sum"),
    "weights_below_the_simplex": ("base=.2,law=.2", "0.4", "divide them by their sum"),
    "weights_negative": ("base=1.5,law=-.5", "-0.5", "task arithmetic"),
    "weights_nan": ("base=nan,law=1", "nan", "finite numbers"),
    "weights_infinite": ("base=inf,law=1", "inf", "finite numbers"),
    "weights_beyond_floats": ("base=1e400,law=1", "inf", "finite numbers"),
    "weights_of_an_unknown_source": ("base=.5,ghost=.5", "'ghost'", "the library has"),
    "weights_with_a_source_twice": ("base=.5,base=.5", "'base=.5'", "write A=.7,B=.3"),
    "weights_empty": ("", "''", "write A=.7,B=.3"),
    "weights_without_a_number": ("base", "'base'", "write A=.7,B=.3"),
    "weights_with_a_word_for_a_number": ("base=half", "'base=half'", "write A=.7,B=.3"),
    "weights_with_a_comma_too_many": ("base=.5,law=.5,", "''", "write A=.7,B=.3"),
    "weights_without_a_name": ("=1", "'=1'", "write A=.7,B=.3"),
    "weights_with_a_screen_to_clear": ("\x1b[2J=1", r"\x1b[2J", "the library has"),
}


def _weights(name: str, text: str, naming: str, remedy: str) -> None:
    CASES.register(name, lambda shelf: shelf.compose(text), naming, remedy)


for name, (text, naming, remedy) in WEIGHTS.items():
    _weights(name, text, naming, remedy)

WEIGHT_FILES = {
    "weight_file_cut_short": ('{"base": 1', "save it again"),
    "weight_file_a_list": ("[1]", "write it so"),
    "weight_file_empty": ("{}", "write it so"),
    "weight_file_with_a_word": ('{"base": "1"}', "write it so"),
    "weight_file_with_a_boolean": ('{"base": true}', "write it so"),
    "weight_file_of_mixed_kinds": ('{"base": 1, "embeddings": {"base": 1}}', "write it so"),
    "weight_file_with_an_empty_module": ('{"embeddings": {}}', "write it so"),
    "weight_file_with_a_key_twice": ('{"base": 0, "base": 1}', "save it again"),
    "weight_file_with_not_a_number": ('{"base": NaN}', "save it again"),
    "weight_file_beyond_floats": ('{"base": 1e400}', "save it again"),
    "weight_file_with_an_integer_beyond_floats": (f'{{"base": {10**400}}}', "save it again"),
}


def _weight_file(name: str, text: str, remedy: str, naming: str = "weights.json") -> None:
    def lay_out(shelf: Shelf) -> list[str]:
        (shelf.root / "weights.json").write_text(text)
        return shelf.compose(str(shelf.root / "weights.json"))

    CASES.register(name, lay_out, naming, remedy)


for name, (text, remedy) in WEIGHT_FILES.items():
    _weight_file(name, text, remedy)
_weight_file("weight_file_of_an_unknown_module", '{"ghost": {"base": 1}}', "library list --modules", "'ghost'")
_weight_file("weight_file_of_one_module", '{"embeddings": {"base": 1}}', "give every module a row", "encoder.layer.0")


@CASES.refused("weights.json", "check the path")
def weight_file_missing(shelf: Shelf) -> list[str]:
    return shelf.compose(str(shelf.root / "weights.json"))


TASK_ARITHMETIC = {
    "task_vectors_nan": (["law=nan"], "nan", "finite numbers"),
    "task_vectors_that_cancel_at_infinity": (["law=inf,code=-inf"], "inf", "finite numbers"),
    "task_vectors_that_overflow": (["law=1e308,code=1e308"], "1e+308", "finite numbers"),
    "task_vectors_scaled_to_infinity": (["law=1e300,code=-1e300", "--scale", "1e300"], "inf", "finite numbers"),
    "task_vectors_of_an_unknown_source": (["ghost=1"], "'ghost'", "the library has"),
    "task_scale_a_word": (["law=1", "--scale", "big"], "--scale", "--help"),
}


def _task_arithmetic(name: str, words: list[str], naming: str, remedy: str) -> None:
    def lay_out(shelf: Shelf) -> list[str]:
        return ["compose", str(shelf.library), "-o", str(shelf.output), "--task-arithmetic", *words]

    CASES.register(name, lay_out, naming, remedy)


for name, (words, naming, remedy) in TASK_ARITHMETIC.items():
    _task_arithmetic(name, words, naming, remedy)


@CASES.refused("--weights", "say one of")
def nothing_asked_for(shelf: Shelf) -> list[str]:
    return ["compose", str(shelf.library), "-o", str(shelf.output)]


@CASES.refused("--task-arithmetic", "say one of")
def two_things_asked_for(shelf: Shelf) -> list[str]:
    return shelf.compose("base=1", "--task-arithmetic", "law=1")


@CASES.refused("--threads", "--help")
def no_threads(shelf: Shelf) -> list[str]:
    return shelf.compose("base=1", "--threads", "0")


@CASES.refused("--bogus", "--help")
def unknown_option(shelf: Shelf) -> list[str]:
    return shelf.compose("base=1", "--bogus")


Spoil = Callable[[dict[str, Any], Tensors], Any]


def recipe(naming: str = "recipe.safetensors", remedy: str = "make it again") -> Callable[[Spoil], None]:
    """A case that changes the description and the tensors of a sound recipe: half base, half law, residual on one."""

    def register(spoil: Spoil) -> None:
        def lay_out(shelf: Shelf) -> list[str]:
            file = shelf.root / "recipe.safetensors"
            tensors, metadata = decode_tensors((shelf.export / "recipe.safetensors").read_bytes())
            described = json.loads(metadata["smatter_recipe"])
            described.pop("pins", None)
            described["sources"] = [["base", shelf.source("base")["digest"]], ["law", shelf.source("law")["digest"]]]
            tensors["mixture"] = ("F64", np.array([[0.5, 0.5]]))
            tensors[f"elements:{QUERY}:indices"] = ("I64", np.array([0, 3, 63]))
            tensors[f"elements:{QUERY}:values"] = ("F32", np.array([1, 2, 3], np.float32))
            described = spoil(described, tensors) or described
            file.write_bytes(encode(tensors, {"smatter_recipe": json.dumps(described)}))
            return shelf.compose_recipe(file)

        CASES.register(spoil.__name__, lay_out, naming, remedy)

    return register


@recipe()
def recipe_of_another_schema(described: dict[str, Any], _tensors: Tensors) -> None:
    described["schema"] = 3


@recipe("schema 1")
def recipe_of_the_first_schema(described: dict[str, Any], _tensors: Tensors) -> None:
    described["schema"] = 1


@recipe("colour")
def recipe_with_an_unknown_field(described: dict[str, Any], _tensors: Tensors) -> None:
    described["colour"] = "red"


@recipe()
def recipe_described_by_a_list(_described: dict[str, Any], _tensors: Tensors) -> list[int]:
    return [1]


@recipe("sources.1")
def recipe_with_a_bad_digest(described: dict[str, Any], _tensors: Tensors) -> None:
    described["sources"][1][1] = "xyz"


@recipe("'law'", "restore it, or fit again without it")
def recipe_of_other_contents(described: dict[str, Any], _tensors: Tensors) -> None:
    described["sources"][1][1] = "0" * 64


@recipe("'elsewhere'", "restore it, or fit again without it")
def recipe_of_a_source_that_is_gone(described: dict[str, Any], _tensors: Tensors) -> None:
    described["sources"][1] = ["elsewhere", "0" * 64]


@recipe("named twice")
def recipe_with_a_source_twice(described: dict[str, Any], _tensors: Tensors) -> None:
    described["sources"][1] = described["sources"][0]


@recipe()
def recipe_with_one_source_too_few(described: dict[str, Any], _tensors: Tensors) -> None:
    described["sources"].pop()


@recipe("sum to 1.2")
def recipe_off_the_simplex(_described: dict[str, Any], tensors: Tensors) -> None:
    tensors["mixture"] = ("F64", np.array([[0.6, 0.6]]))


@recipe("nan")
def recipe_with_a_weight_of_nan(_described: dict[str, Any], tensors: Tensors) -> None:
    tensors["mixture"] = ("F64", np.array([[0.5, np.nan]]))


@recipe("its mixture is [2]")
def recipe_with_a_flat_mixture(_described: dict[str, Any], tensors: Tensors) -> None:
    tensors["mixture"] = ("F64", np.array([0.5, 0.5]))


@recipe("'mixture'")
def recipe_with_a_mixture_of_float32(_described: dict[str, Any], tensors: Tensors) -> None:
    tensors["mixture"] = ("F32", np.array([[0.5, 0.5]], np.float32))


@recipe("'mixture'")
def recipe_without_a_mixture(_described: dict[str, Any], tensors: Tensors) -> None:
    del tensors["mixture"]


@recipe("its mixture is [0, 2]")
def recipe_without_rows(_described: dict[str, Any], tensors: Tensors) -> None:
    tensors["mixture"] = ("F64", np.zeros((0, 2)))


@recipe("another partition", "make it again")
def recipe_of_another_partition(described: dict[str, Any], _tensors: Tensors) -> None:
    described["modules"], described["partition"] = ["embeddings"], "0" * 64


@recipe("'ghost'", "library list --modules")
def recipe_with_an_unknown_module(described: dict[str, Any], _tensors: Tensors) -> None:
    described["modules"] = ["ghost"]


@recipe("module is named twice")
def recipe_with_a_module_twice(described: dict[str, Any], tensors: Tensors) -> None:
    described["modules"] = ["embeddings", "embeddings"]
    tensors["mixture"] = ("F64", np.full((2, 2), 0.5))


def indices(*values: int) -> tuple[str, np.ndarray]:
    return "I64", np.array(values)


@recipe("negative")
def residual_before_the_tensor(_described: dict[str, Any], tensors: Tensors) -> None:
    tensors[f"elements:{QUERY}:indices"] = indices(-1, 3, 63)


@recipe("increase strictly")
def residual_unsorted(_described: dict[str, Any], tensors: Tensors) -> None:
    tensors[f"elements:{QUERY}:indices"] = indices(3, 0, 63)


@recipe("increase strictly")
def residual_with_an_index_twice(_described: dict[str, Any], tensors: Tensors) -> None:
    tensors[f"elements:{QUERY}:indices"] = indices(3, 3, 63)


@recipe("increase strictly")
def residual_whose_differences_wrap_around(_described: dict[str, Any], tensors: Tensors) -> None:
    """From 10 to the smallest integer is a step forward in arithmetic that wraps around."""
    tensors[f"elements:{QUERY}:indices"] = indices(10, -(2**63), -1)


@recipe(QUERY, "make the recipe again")
def residual_beyond_the_tensor(_described: dict[str, Any], tensors: Tensors) -> None:
    tensors[f"elements:{QUERY}:indices"] = indices(0, 3, 64)


@recipe("NaN")
def residual_with_nan(_described: dict[str, Any], tensors: Tensors) -> None:
    tensors[f"elements:{QUERY}:values"] = ("F32", np.array([1, np.nan, 3], np.float32))


@recipe("indices")
def residual_with_a_value_too_few(_described: dict[str, Any], tensors: Tensors) -> None:
    tensors[f"elements:{QUERY}:values"] = ("F32", np.array([1, 2], np.float32))


@recipe(f"elements:{QUERY}:values")
def residual_without_values(_described: dict[str, Any], tensors: Tensors) -> None:
    del tensors[f"elements:{QUERY}:values"]


@recipe(f"elements:{QUERY}:indices")
def residual_without_indices(_described: dict[str, Any], tensors: Tensors) -> None:
    del tensors[f"elements:{QUERY}:indices"]


@recipe(f"elements:{QUERY}'")
def residual_with_a_tensor_too_many(_described: dict[str, Any], tensors: Tensors) -> None:
    tensors[f"elements:{QUERY}"] = indices(1)


@recipe(f"elements:{QUERY}:indices")
def residual_with_indices_of_floats(_described: dict[str, Any], tensors: Tensors) -> None:
    tensors[f"elements:{QUERY}:indices"] = ("F64", np.array([0.0, 3.0, 63.0]))


@recipe("'payload'")
def recipe_with_a_stowaway(_described: dict[str, Any], tensors: Tensors) -> None:
    tensors["payload"] = ("U8", np.zeros(4, np.uint8))


@recipe("'ghost'", "make the recipe again")
def residual_of_an_unknown_tensor(_described: dict[str, Any], tensors: Tensors) -> None:
    tensors["dense:ghost"] = ("F32", np.zeros((8, 8), np.float32))


@recipe(OUTPUT, "make the recipe again")
def dense_residual_of_another_shape(_described: dict[str, Any], tensors: Tensors) -> None:
    tensors[f"dense:{OUTPUT}"] = ("F32", np.zeros((4, 16), np.float32))


@recipe(OUTPUT)
def dense_residual_with_infinity(_described: dict[str, Any], tensors: Tensors) -> None:
    tensors[f"dense:{OUTPUT}"] = ("F32", np.full((8, 8), np.inf, np.float32))


@recipe(QUERY, "keep one")
def residual_both_dense_and_sparse(_described: dict[str, Any], tensors: Tensors) -> None:
    tensors[f"dense:{QUERY}"] = ("F32", np.zeros((8, 8), np.float32))


@recipe(POSITION_IDS, "make the recipe again")
def residual_of_integers(_described: dict[str, Any], tensors: Tensors) -> None:
    tensors[f"dense:{POSITION_IDS}"] = ("F32", np.zeros((1, 5), np.float32))


@CASES.refused("recipe.safetensors", "copy it again")
def recipe_cut_short(shelf: Shelf) -> list[str]:
    file = shelf.export / "recipe.safetensors"
    file.write_bytes(file.read_bytes()[:-9])
    return shelf.compose_recipe(file)


@CASES.refused("notes.safetensors", "copy it again")
def recipe_of_plain_text(shelf: Shelf) -> list[str]:
    (shelf.root / "notes.safetensors").write_text("half base, half law")
    return shelf.compose_recipe(shelf.root / "notes.safetensors")


@CASES.refused("base/model.safetensors", "--as recipe")
def checkpoint_for_a_recipe(shelf: Shelf) -> list[str]:
    return shelf.compose_recipe(shelf.library / "checkpoints/base/model.safetensors")


@CASES.refused("checkpoints/base", "give a")
def folder_for_a_recipe(shelf: Shelf) -> list[str]:
    return shelf.compose_recipe(shelf.library / "checkpoints/base")


@CASES.refused("recipe.safetensors", "check the path")
def recipe_missing(shelf: Shelf) -> list[str]:
    return shelf.compose_recipe(shelf.root / "recipe.safetensors")


@CASES.refused("recipe.safetensors", "give a")
def recipe_a_pipe(shelf: Shelf) -> list[str]:
    os.mkfifo(shelf.root / "recipe.safetensors")
    return shelf.compose_recipe(shelf.root / "recipe.safetensors")


HALF = """
merge_method: linear
models:
- {model: base, parameters: {weight: 0.5}}
- {model: law, parameters: {weight: LAW}}
"""
"""A sound merge once LAW is a number."""


def half(law: str = "0.5", rest: str = "") -> str:
    return HALF.replace("LAW", law) + rest


def nines(letters: str = "abcdefghi") -> str:
    """Lists of nine aliases each: nine characters of text that stand for nine to the ninth."""
    lines = [f"{letters[0]}: &{letters[0]} [x, x, x, x, x, x, x, x, x]"]
    for before, letter in pairwise(letters):
        lines.append(f"{letter}: &{letter} [{', '.join([f'*{before}'] * 9)}]")
    return "\n".join(lines) + "\n"


BOMB = "{filter: {" + ", ".join(nines().splitlines()) + "}, value: 1}, {filter: '*', value: *i}"
MANY_KEYS = "{" + ", ".join(f"k{number}: 1" for number in [*range(20_000), 19_999]) + "}"
ALONE = "merge_method: linear\nmodels: "
RUN_MERGEKIT = "run it with mergekit itself"

MERGES = {
    "merge_of_no_bytes": ("", "the configuration", "write"),
    "merge_not_yaml": ("models: [", "merge.yaml", "correct it"),
    "merge_not_text": ("models: \x00", "merge.yaml", "correct it"),
    "merge_with_a_key_twice": ("merge_method: linear\nmerge_method: ties\n", "'merge_method'", "correct it"),
    "merge_with_many_keys_the_last_twice": (MANY_KEYS, "'k19999'", "correct it"),
    "merge_nested_without_end": ("[" * 20_000, "merge.yaml", "correct it"),
    "merge_that_merges_keys": ("a: &a {x: 1}\nb: {<<: [*a, *a]}\n", "merge.yaml", "correct it"),
    "merge_with_a_python_object": ("!!python/object/apply:os.getcwd []", "merge.yaml", "correct it"),
    "merge_with_a_bad_date": (half(rest="x: !!timestamp never"), "merge.yaml", "correct it"),
    "merge_with_an_empty_integer": (half(rest='x: !!int ""'), "merge.yaml", "correct it"),
    "merge_with_a_bad_boolean": (half(rest="x: !!bool maybe"), "merge.yaml", "correct it"),
    "merge_of_another_method": ("merge_method: ties\nmodels: []\n", "'ties'", RUN_MERGEKIT),
    "merge_of_a_list_of_methods": ("merge_method: [linear]\nmodels: []\n", "merge_method", RUN_MERGEKIT),
    "merge_of_slices": ("merge_method: linear\nslices: []\n", "'slices'", RUN_MERGEKIT),
    "merge_of_tokenizers": (half(rest="tokenizer_source: union"), "'tokenizer_source'", RUN_MERGEKIT),
    "merge_without_models": ("merge_method: linear\n", "models", "write one"),
    "merge_of_a_model_twice": (half(rest="- model: law"), "'law'", "list it once"),
    "merge_of_an_unknown_model": (f"{ALONE}[{{model: ghost}}]", "'ghost'", "library add"),
    "merge_of_a_model_with_a_nul": (f'{ALONE}[{{model: "a\\0b"}}]', r"a\x00b", "library add"),
    "merge_of_a_model_of_nobody": (f"{ALONE}[{{model: ~ghost/m}}]", "~ghost/m", "library add"),
    "merge_of_a_model_in_a_list": (f"{ALONE}[{{model: [base]}}]", "a model", "write one"),
    "merge_of_a_word_for_a_model": (f"{ALONE}[base]", "a model", "write key: value"),
    "merge_that_contains_itself": (f"{ALONE}&m [{{model: base, parameters: *m}}]", "parameters", "write key: value"),
    "merge_with_gradients": (half("[0, 0.5, 1]"), "'law'", "give one per module instead"),
    "merge_with_a_word_for_a_weight": (half("much"), "'much'", "not a number"),
    "merge_with_a_boolean_for_a_weight": (half("true"), "True", "not a number"),
    "merge_with_a_weight_beyond_floats": (half(str(10**400)), "'law'", "not a number"),
    "merge_with_a_weight_of_many_digits": (half("0x" + "F" * 3000), "'law'", "not a number"),
    "merge_with_a_weight_of_many_sixties": (half("1" + ":1" * 400_000), "800001 characters", "correct it"),
    "merge_with_a_name_without_end": (f"{ALONE}[{{model: {'m' * 900_000}}}]", "900000 characters", "correct it"),
    "merge_with_an_infinite_weight": (half(".inf"), "'law'", "not a number"),
    "merge_with_weights_that_overflow": (half("1.0e+308"), "'law'", "not a number"),
    "merge_with_weights_that_multiply": (half(f"[{BOMB}]"), "'law'", "not a number"),
    "merge_with_weights_that_cancel": (half("-0.5"), "sum to zero", "normalize: false"),
    "merge_with_weights_for_some_tensors": (half("[{filter: mlp, value: 1}]"), "'law'", "add an entry"),
    "merge_with_an_unknown_condition": (half("[{layer: 1, value: 1}]"), "'layer'", RUN_MERGEKIT),
    "merge_with_normalize_a_number": (half(rest="parameters: {normalize: 1}"), "normalize", "true and false"),
    "merge_in_another_dtype": (half(rest="dtype: bfloat16"), "'bfloat16'", "drop it"),
    "merge_in_a_dtype_that_multiplies": (
        f"parameters: {{}}\ndtype: {{{', '.join(nines().splitlines())}}}" + half(),
        "dtype",
        "drop it",
    ),
    "merge_by_a_method_that_multiplies": (
        f"merge_method: {{{', '.join(nines().splitlines())}}}",
        "merge_method",
        RUN_MERGEKIT,
    ),
    "merge_with_a_base_in_a_list": (half(rest="base_model: [base]"), "a model", "write one"),
    "merge_of_task_vectors_without_a_base": (half().replace("linear", "task_arithmetic"), "base_model", "add it"),
}


def _merge(name: str, text: str, naming: str, remedy: str) -> None:
    def lay_out(shelf: Shelf) -> list[str]:
        (shelf.root / "merge.yaml").write_text(text)
        return shelf.compose_recipe(shelf.root / "merge.yaml")

    CASES.register(name, lay_out, naming, remedy)


for name, (text, naming, remedy) in MERGES.items():
    _merge(name, text, naming, remedy)


@CASES.refused("merge.yaml", "give a smaller one")
def merge_of_two_megabytes(shelf: Shelf) -> list[str]:
    (shelf.root / "merge.yaml").write_text("#" * 2_000_000)
    return shelf.compose_recipe(shelf.root / "merge.yaml")


@CASES.refused("export", "choose another name, or say --replace")
def output_exists(shelf: Shelf) -> list[str]:
    return ["compose", str(shelf.library), "--weights", "base=1", "-o", str(shelf.export)]


@CASES.refused("library.json", "choose another name")
def output_a_file(shelf: Shelf) -> list[str]:
    words = ["compose", str(shelf.library), "--weights", "base=1", "--replace"]
    return [*words, "-o", str(shelf.library / "library.json")]


@CASES.refused("nowhere", "create it first")
def output_in_a_missing_folder(shelf: Shelf) -> list[str]:
    return ["compose", str(shelf.library), "--weights", "base=1", "-o", str(shelf.root / "nowhere/out")]


@CASES.refused("nowhere", "create it first")
def recipe_in_a_missing_folder(shelf: Shelf) -> list[str]:
    words = ["compose", str(shelf.library), "--weights", "base=1", "--as", "recipe"]
    return [*words, "-o", str(shelf.root / "nowhere/out.safetensors")]


@CASES.refused("nowhere", "create it first")
def merge_in_a_missing_folder(shelf: Shelf) -> list[str]:
    words = ["compose", str(shelf.library), "--weights", "base=1", "--as", "mergekit"]
    return [*words, "-o", str(shelf.root / "nowhere/out.yaml")]


@CASES.refused("export", "choose another")
def recipe_over_a_folder(shelf: Shelf) -> list[str]:
    return ["compose", str(shelf.library), "--weights", "base=1", "--as", "recipe", "-o", str(shelf.export)]


@CASES.refused("law/model.safetensors", "choose another name")
def recipe_over_a_checkpoint(shelf: Shelf) -> list[str]:
    words = ["compose", str(shelf.library), "--weights", "base=1", "--as", "recipe"]
    return [*words, "-o", str(shelf.library / "checkpoints/law/model.safetensors")]


@CASES.refused("checkpoints/law", "choose another name")
def checkpoint_replaced_by_its_mixture(shelf: Shelf) -> list[str]:
    words = ["compose", str(shelf.library), "--weights", "base=1", "--replace"]
    return [*words, "-o", str(shelf.library / "checkpoints/law")]


@CASES.refused("library", "choose another name")
def library_replaced_by_its_mixture(shelf: Shelf) -> list[str]:
    return ["compose", str(shelf.library), "--weights", "base=1", "--replace", "-o", str(shelf.library)]


@CASES.refused("'news' is stored as int8", "add it whole")
def merge_written_of_a_stored_source(shelf: Shelf) -> list[str]:
    words = ["compose", str(shelf.library), "--weights", "news=1", "--as", "mergekit"]
    return [*words, "-o", str(shelf.root / "out.yaml")]
