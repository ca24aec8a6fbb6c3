"""Exports that transformers loads with the task's head."""

import json
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
import yaml
from markdown_it import MarkdownIt
from safetensors.torch import load_file, save_file
from test_banks import make_bank
from test_composing import same_bits
from test_house import imported_modules
from tiny_libraries import pixels_support
from transformers import AutoModel, AutoModelForImageClassification, PreTrainedModel

import smatter
from smatter.backbones.linear_classifiers import LINEAR_CLASSIFIERS, LinearClassifier, pipeline_of, width_of
from smatter.backbones.network import Inputs, Network, load_tensors
from smatter.cli.main import main
from smatter.compose.experts import ExpertMix
from smatter.compose.head import ClassHead
from smatter.compose.mixture import Mixture
from smatter.compose.recipe import Recipe
from smatter.compose.residual import Elements, Residual
from smatter.errors import InvalidRecipe
from smatter.library.card import model_card
from smatter.library.edit import add_source, init_library
from smatter.library.export import export
from smatter.library.library import Library
from smatter.settings import HeadName

PYRAMID = {"hidden_sizes": [8, 12], "depths": [1, 2], "image_size": 16}
WINDOWS = {"image_size": 16, "patch_size": 2, "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4}
LAYERS = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
STAGES = {"num_attention_heads": [1, 2], "sr_ratios": [2, 1], "mlp_ratios": [2, 2]}
CONFIGS: dict[str, dict[str, Any]] = {
    "bit": PYRAMID | {"hidden_sizes": [16, 24], "embedding_size": 8, "num_groups": 2, "image_size": 32},
    "convnext": PYRAMID | {"num_stages": 2, "patch_size": 2, "layer_scale_init_value": 0.5},
    "convnextv2": PYRAMID | {"num_stages": 2, "patch_size": 2},
    "donut-swin": WINDOWS,
    "focalnet": PYRAMID | {"embed_dim": 8, "patch_size": 2, "focal_levels": [1, 1], "focal_windows": [3, 3]},
    "ijepa": LAYERS | {"image_size": 8, "patch_size": 4},
    "pvt_v2": PYRAMID | STAGES | {"num_encoder_blocks": 2, "patch_sizes": [7, 3], "strides": [4, 2]},
    "segformer": PYRAMID | STAGES | {"num_encoder_blocks": 2, "patch_sizes": [7, 3], "strides": [4, 2]},
    "swin": WINDOWS,
    "swinv2": WINDOWS,
    "ultrabert": LAYERS | {"vocab_size": 30, "pad_token_id": 0},
}
NAMES = ("zebra", "ant", "moth", "carp")


def make_model(model_type: str, bare: bool = False, seed: int = 0) -> PreTrainedModel:
    """A network, with a head of seven classes or without; no two tensors are alike, and seeds are near each other."""
    config = transformers.AutoConfig.for_model(model_type, **CONFIGS[model_type], num_labels=7)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        architecture = LINEAR_CLASSIFIERS[model_type].architecture
        model = AutoModel.from_config(config) if bare else getattr(transformers, architecture)(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
            torch.manual_seed(seed)
            for parameter in model.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
    return model.eval()


def make_library(
    folder: Path, model_type: str = "convnext", bare: bool = False, dtype: torch.dtype = torch.float32, **options: Any
) -> Library:
    for number in range(2):
        make_model(model_type, bare, number).to(dtype).save_pretrained(folder / f"s{number}")
    init_library(folder / "library", folder / "s0", **options)
    return add_source(folder / "library", folder / "s1")[0]


def make_head(n_features: int, with_bias: bool = True, names: tuple[str, ...] = NAMES) -> ClassHead:
    """Random coefficients, whose rows have another order than the predictions."""
    generator = np.random.default_rng(1)
    weight = generator.normal(0, 3, (len(names), n_features)).astype(np.float32)
    bias = generator.normal(0, 1, len(names)).astype(np.float32) if with_bias else None
    kind: HeadName = "ridge" if with_bias else "prototype"
    rows = {name: (number + 2) % len(names) for number, name in enumerate(names)}
    return ClassHead(kind, rows, weight, bias, temperature=0.7, length=2.3)


def make_recipe(library: Library, head: ClassHead | None = None) -> Recipe:
    name = next(name for name, spec in library.specs.items() if spec.is_floating)
    residual = Residual({name: Elements(np.array([1, 3]), np.array([0.5, -0.25], np.float32))})
    mixture = Mixture.of({"s0": 0.25, "s1": 0.75})
    return library.recipe(mixture, residual, head=head or make_head(width_of(library.base.config) or 0))


@contextmanager
def warnings_of_transformers() -> Iterator[list[str]]:
    said: list[str] = []
    logger, handler = logging.getLogger("transformers"), logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        yield said
    finally:
        logger.removeHandler(handler)


def load_classifier(folder: Path) -> Any:
    """By its Auto class; nothing may be missing, left over or worth a warning."""
    architecture = json.loads((folder / "config.json").read_text())["architectures"][0]
    found = pipeline_of(architecture)
    assert found
    with warnings_of_transformers() as said:
        model, told = getattr(transformers, found[0]).from_pretrained(folder, output_loading_info=True)
    assert not any(told.values()) and not said
    assert type(model).__name__ == architecture
    return model.eval()


def load_backbone(folder: Path, family: LinearClassifier) -> Any:
    model, told = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert told.pop("unexpected_keys") == set(family.tensors)  # what it says of every checkpoint with a head
    assert not any(told.values())
    return model.eval()


def network_of(library: Library, recipe: Recipe) -> Network:
    network = Network(library.base.config)
    load_tensors(network.model, library.compose(recipe).tensors())
    return network


def some_inputs(network: Network) -> Inputs:
    inputs = network.random_inputs(5, None if network.takes_images else 7)
    if not network.takes_images:
        inputs["attention_mask"][1:3, 4:] = 0
    return inputs


def linear_scores(head: ClassHead, features: torch.Tensor) -> torch.Tensor:
    """What the classifier must give, in the order of predictions."""
    assert head.weight is not None
    bias = torch.zeros(len(head.classes)) if head.bias is None else torch.from_numpy(head.bias)
    scores = features @ torch.from_numpy(head.weight).T / (head.length * head.temperature) + bias / head.temperature
    return scores[:, list(head.classes.values())]


def test_every_family_is_tested() -> None:
    assert CONFIGS.keys() == LINEAR_CLASSIFIERS.keys()
    for model_type, family in LINEAR_CLASSIFIERS.items():
        model = getattr(transformers, family.architecture)
        assert model.config_class.model_type == model_type and pipeline_of(family.architecture)


@pytest.mark.parametrize("bare", [True, False], ids=["bare", "headed"])
@pytest.mark.parametrize("model_type", CONFIGS)
def test_the_loaded_classifier_gives_the_scores_of_the_head(model_type: str, bare: bool, tmp_path: Path) -> None:
    library, family = make_library(tmp_path, model_type, bare), LINEAR_CLASSIFIERS[model_type]
    recipe, out = make_recipe(library), tmp_path / "out"
    assert recipe.head
    smatter.write_recipe(tmp_path / "task", recipe)
    assert main(["compose", str(library.folder), "--recipe", str(tmp_path / "task"), "-o", str(out)]) == 0

    network = network_of(library, recipe)
    inputs = some_inputs(network)
    classifier, backbone = load_classifier(out), load_backbone(out, family)
    with torch.no_grad():
        features = network.features(inputs)
        scores = classifier(**inputs).logits
        assert torch.equal(network.model(**inputs)[0], backbone(**inputs)[0])
    torch.testing.assert_close(scores, linear_scores(recipe.head, features), rtol=1e-5, atol=1e-5)
    assert scores.std(dim=0).min() > 1e-3  # inputs that all score alike would show nothing
    config = classifier.config
    assert config.num_labels == len(NAMES) and tuple(config.id2label.values()) == NAMES
    assert config.label2id == {name: number for number, name in config.id2label.items()}

    export(library, replace(recipe, head=None), tmp_path / "plain")
    found, plain = (load_file(tmp_path / name / "model.safetensors") for name in ("out", "plain"))
    for name in family.tensors:
        found.pop(name), plain.pop(name, None)
    assert all(name.startswith(f"{family.prefix}.") for name in found)
    assert same_bits(found, {f"{family.prefix}.{name}" if bare else name: each for name, each in plain.items()})
    again = smatter.read_recipe(out / "recipe.safetensors")
    assert again.head and recipe.head.weight is not None
    assert again.head.classes == recipe.head.classes and np.array_equal(again.head.weight, recipe.head.weight)
    card, pipeline = (out / "README.md").read_text(), pipeline_of(family.architecture)
    assert pipeline and f"pipeline_tag: {pipeline[1]}\n" in card and f"import {pipeline[0]}\n" in card
    assert (f"begin with `{family.prefix}.`" in card) == bare


@pytest.mark.parametrize("model_type", ["vit", "bert"])
def test_a_family_whose_classifier_takes_other_features_gets_none(
    model_type: str, vit_library: Library, bert_library: Library, tmp_path: Path
) -> None:
    library = vit_library if model_type == "vit" else bert_library
    recipe = library.recipe(Mixture.of({"base": 1.0}), head=make_head(16))
    for name, what in (("out", recipe), ("plain", replace(recipe, head=None))):
        export(library, what, tmp_path / name)
    for file in ("model.safetensors", "config.json"):
        assert (tmp_path / "out" / file).read_bytes() == (tmp_path / "plain" / file).read_bytes()
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"no classifier of `{model_type}` checkpoints" in card and "Name classes with `smatter predict`" in card
    assert "pipeline_tag" not in card and "## Classes" not in (tmp_path / "plain" / "README.md").read_text()


@pytest.mark.parametrize("head", ["prototype", "ridge", "logistic"])
def test_an_export_names_the_classes_that_predictions_name(head: HeadName, tmp_path: Path) -> None:
    library = make_library(tmp_path)
    adapted = smatter.adapt(library, pixels_support(), head=head)
    export(library, adapted.recipe, tmp_path / "out")
    told, model = adapted.recipe.head, load_classifier(tmp_path / "out")
    assert told
    network = network_of(library, adapted.recipe)
    pixels = torch.randn(300, 3, 8, 8, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        found = model(pixel_values=pixels).logits
        features = network.features({"pixel_values": pixels})
    named = [model.config.id2label[number] for number in found.argmax(dim=1).tolist()]
    expected = adapted.predict(pixels)
    assert len(set(expected.names)) > 1
    same = sum(map(str.__eq__, named, expected.names))
    assert same == 300 if told.bias is None else same > 270
    # Where features have the length that stands for all, scores are those of predictions.
    unit = told.length * torch.nn.functional.normalize(features)
    probabilities = linear_scores(told, unit).softmax(dim=1)
    torch.testing.assert_close(probabilities, expected.probabilities, rtol=1e-4, atol=1e-5)
    card = (tmp_path / "out" / "README.md").read_text()
    assert ("both name the same class" in card) == (told.bias is None) == (head == "prototype")
    assert f"the task's {head} head" in card


@pytest.mark.parametrize("bare", [True, False], ids=["bare", "headed"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_the_classifier_has_the_dtype_of_the_network_and_is_rounded_once(
    dtype: torch.dtype, bare: bool, tmp_path: Path
) -> None:
    library = make_library(tmp_path, bare=bare, dtype=dtype)
    recipe = make_recipe(library)
    export(library, recipe, tmp_path / "out")
    head, found = recipe.head, load_file(tmp_path / "out" / "model.safetensors")
    assert head and head.weight is not None and head.bias is not None
    rows = list(head.classes.values())
    weight, bias = (torch.from_numpy(each[rows]).double() / head.temperature for each in (head.weight, head.bias))
    assert torch.equal(found["classifier.weight"], (weight / head.length).to(dtype))
    assert torch.equal(found["classifier.bias"], bias.to(dtype))
    assert load_classifier(tmp_path / "out").dtype == dtype


def test_a_classifier_that_was_left_out_of_the_library_gives_way_too(tmp_path: Path) -> None:
    library = make_library(tmp_path, exclude=("classifier.*",))
    assert not any(name.startswith("classifier") for name in library.specs)
    export(library, make_recipe(library), tmp_path / "out")
    assert load_classifier(tmp_path / "out").config.num_labels == len(NAMES)


def respell(library: Library, names: Mapping[str, str]) -> Library:
    """A library of the same sources with other names, and a tensor of another head."""
    folder = library.folder.parent
    for name in ("s0", "s1"):
        tensors = load_file(folder / name / "model.safetensors")
        changed = {names.get(key, key): tensor for key, tensor in tensors.items()}
        (folder / "other" / name).mkdir(parents=True)
        (folder / "other" / name / "config.json").write_bytes((folder / name / "config.json").read_bytes())
        extra = {"decoder.0.weight": torch.ones(3)}
        save_file(changed | extra, folder / "other" / name / "model.safetensors", metadata={"format": "pt"})
    init_library(folder / "other" / "library", folder / "other" / "s0")
    return add_source(folder / "other" / "library", folder / "other" / "s1")[0]


def test_tensors_of_another_head_are_left_out(tmp_path: Path) -> None:
    library = respell(make_library(tmp_path), {})
    assert "decoder.0.weight" in library.specs
    export(library, make_recipe(library), tmp_path / "out")
    load_classifier(tmp_path / "out")
    assert "Left out of the mixture: `decoder.*`." in (tmp_path / "out" / "README.md").read_text()


def test_names_of_no_model_are_left_as_they_are(tmp_path: Path) -> None:
    library = respell(make_library(tmp_path), {"convnext.layernorm.weight": "layernorm.weight"})
    export(library, make_recipe(library), tmp_path / "out")
    assert load_file(tmp_path / "out" / "model.safetensors").keys() == library.specs.keys()
    assert "in `recipe.safetensors` alone" in (tmp_path / "out" / "README.md").read_text()
    assert LINEAR_CLASSIFIERS["swin"].backbone_names(["model.layers.0.weight", "classifier.weight"]) is None


def test_the_sources_own_classifier_stays(tmp_path: Path) -> None:
    library = make_library(tmp_path)
    recipe = make_recipe(library, ClassHead("linear", {"LABEL_2": 0, "LABEL_0": 1}))
    for name, what in (("out", recipe), ("plain", replace(recipe, head=None))):
        export(library, what, tmp_path / name)
    for file in ("model.safetensors", "config.json"):
        assert (tmp_path / "out" / file).read_bytes() == (tmp_path / "plain" / file).read_bytes()
    assert load_classifier(tmp_path / "out").config.num_labels == 7
    card = (tmp_path / "out" / "README.md").read_text()
    assert "pipeline_tag: image-classification\n" in card and "the mixture of the sources' own" in card
    assert "    0  LABEL_2\n    1  LABEL_0\n" in card and f"import {AutoModelForImageClassification.__name__}" in card


HOSTILE = ("---", "# Title", "a | b", "`code`", "<script>x</script>", "[a](http://b)", "![](http://c/d)", "- item",
           "```", "&lt;", "\\", "    indented", "pipeline_tag: other", "'quote\"", "{% raw %}", "\u00a0x")  # fmt: skip


def test_names_of_classes_are_only_names_in_a_card(tmp_path: Path) -> None:
    library = make_library(tmp_path)
    cards, plain = [], tuple(f"class {number}" for number in range(len(HOSTILE)))
    for names in (HOSTILE, plain):
        out = tmp_path / f"out-{len(cards)}"
        export(library, make_recipe(library, make_head(12, names=names)), out)
        assert tuple(load_classifier(out).config.id2label.values()) == names
        cards.append((out / "README.md").read_text(encoding="utf-8"))
    parsed = []
    for card, names in zip(cards, (HOSTILE, plain), strict=True):
        start, header, body = re.split(r"^---$", card, maxsplit=2, flags=re.M)
        tokens = MarkdownIt("commonmark").enable("table").parse(body)
        assert tokens[-1].type == "code_block"
        assert tokens[-1].content == "".join(f"{number}  {name}\n" for number, name in enumerate(names))
        parsed.append((start, yaml.safe_load(header), [(token.type, token.content) for token in tokens[:-1]]))
    assert parsed[0] == parsed[1]
    assert parsed[0][1]["pipeline_tag"] == "image-classification"


def test_a_long_list_of_classes_is_cut_short(tmp_path: Path) -> None:
    library = make_library(tmp_path)
    names = tuple(f"class {number}" for number in range(130))
    card = model_card(library, make_recipe(library, make_head(12, names=names)))
    assert "    99  class 99\n\nand 30 more.\n" in card and "class 100" not in card


def test_a_card_says_what_experts_change(tmp_path: Path) -> None:
    library = make_library(tmp_path)
    bank = make_bank(library)
    library.lend(bank)
    plain = make_recipe(library)
    recipe = replace(plain, experts=ExpertMix(bank.digest, (0.5, 0.0, 0.5)))
    opened = library.correction(replace(recipe, residual=None))
    assert opened and recipe.residual and opened.n_nonzero > recipe.residual.n_nonzero
    card = model_card(library, recipe)
    assert f"Experts of bank `{bank.digest}`: {opened.n_nonzero} corrected parameters in" in card
    assert f"Residual: {recipe.residual.n_nonzero} corrected parameters in 1 of" in card
    assert "Experts" not in model_card(library, plain)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"weight": np.ones((4, 13), np.float32)}, "for 13 features and the network has 12"),
        ({"length": 1e-300}, "leaves the range of F32"),
        ({"length": 1e300}, "leaves the range of F32"),
    ],
)
def test_a_head_that_cannot_be_a_classifier_is_refused(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    library = make_library(tmp_path)
    with pytest.raises(InvalidRecipe, match=words) as refusal:
        export(library, make_recipe(library, replace(make_head(12), **change)), tmp_path / "out")
    assert "\n" not in str(refusal.value) and not (tmp_path / "out").exists()


def test_a_head_is_exported_without_torch(tmp_path: Path) -> None:
    library = make_library(tmp_path, dtype=torch.bfloat16)
    smatter.write_recipe(tmp_path / "task", make_recipe(library))
    words = ["compose", str(library.folder), "--recipe", str(tmp_path / "task"), "-o", str(tmp_path / "out")]
    loaded = imported_modules(f"from smatter.cli.main import main; assert main({words!r}) == 0")
    assert "numba" in loaded and not loaded & {"torch", "transformers"}
    load_classifier(tmp_path / "out")
