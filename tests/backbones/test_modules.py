"""The partition to modules, on the names that save_pretrained really writes."""

import random
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tiny_models import HEAD_MODELS, save, tiny_model

from smatter.backbones.modules import partition
from smatter.errors import UnknownModule

BOTH_KINDS = [(architecture, bare) for architecture in HEAD_MODELS for bare in (False, True)]
WITH_ATTENTION = [(architecture, bare) for architecture, bare in BOTH_KINDS if architecture != "convnext"]


@cache
def names_and_type(architecture: str, bare: bool) -> tuple[list[str], str]:
    with TemporaryDirectory() as folder:
        checkpoint = save(tiny_model(architecture, bare=bare), Path(folder))
        return list(checkpoint.tensors), checkpoint.model.config.model_type


@pytest.mark.parametrize(("architecture", "bare"), BOTH_KINDS)
def test_every_tensor_is_in_exactly_one_module(architecture, bare):
    names, model_type = names_and_type(architecture, bare)
    modules = partition(names, model_type).modules
    assert sorted(name for members in modules.values() for name in members) == sorted(names)


@pytest.mark.parametrize(("architecture", "bare"), WITH_ATTENTION)
def test_layers_are_apart_and_each_has_two_modules(architecture, bare):
    names, model_type = names_and_type(architecture, bare)
    layers_of_module = {
        module: {found[1] for name in members if (found := re.search(r"\.?(?:layers?|h)\.(\d+)\.", name))}
        for module, members in partition(names, model_type).modules.items()
    }
    assert all(len(layers) <= 1 for layers in layers_of_module.values()), layers_of_module
    modules_of_layer = {
        layer: [module for module, layers in layers_of_module.items() if layers == {layer}] for layer in "01"
    }
    assert {layer: len(modules) for layer, modules in modules_of_layer.items()} == {"0": 2, "1": 2}


@pytest.mark.parametrize(("architecture", "bare"), BOTH_KINDS)
def test_outside_the_layers_only_four_modules_are_left(architecture, bare):
    names, model_type = names_and_type(architecture, bare)
    outside = {module for module in partition(names, model_type).modules if not re.search(r"\d", module)}
    assert "embeddings" in outside
    assert outside <= {"embeddings", "final_norm", "pooler", "head"}


@pytest.mark.parametrize(("architecture", "bare"), BOTH_KINDS)
def test_order_of_the_names_does_not_matter(architecture, bare):
    names, model_type = names_and_type(architecture, bare)
    shuffled = random.Random(0).sample(names, len(names))
    for chosen in (model_type, None):
        ours, theirs = partition(names, chosen), partition(shuffled, chosen)
        assert list(ours.modules.items()) == list(theirs.modules.items())


def short(members: tuple[str, ...], module: str) -> set[str]:
    """What is left of names after the layer's own, without `.weight` and `.bias`."""
    layer = module.rpartition(".")[0] + "."
    return {re.sub(r"\.(weight|bias)$", "", name.removeprefix(layer)) for name in members}


ATTENTION_AND_MLP = {
    "bert": (
        "bert.encoder.layer.1.attention",
        {
            "attention.self.query", "attention.self.key", "attention.self.value",
            "attention.output.dense", "attention.output.LayerNorm",
        },
        "bert.encoder.layer.1.mlp",
        {"intermediate.dense", "output.dense", "output.LayerNorm"},
    ),
    "distilbert": (
        "distilbert.transformer.layer.1.attention",
        {"attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin", "sa_layer_norm"},
        "distilbert.transformer.layer.1.mlp",
        {"ffn.lin1", "ffn.lin2", "output_layer_norm"},
    ),
    "vit": (
        "vit.encoder.layer.1.attention",
        {
            "attention.attention.query", "attention.attention.key", "attention.attention.value",
            "attention.output.dense", "layernorm_before",
        },
        "vit.encoder.layer.1.mlp",
        {"intermediate.dense", "output.dense", "layernorm_after"},
    ),
    "llama": (
        "model.layers.1.self_attn",
        {
            "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
            "input_layernorm",
        },
        "model.layers.1.mlp",
        {"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "post_attention_layernorm"},
    ),
    "gemma2": (
        "model.layers.1.self_attn",
        {
            "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
            "input_layernorm", "post_attention_layernorm",
        },
        "model.layers.1.mlp",
        {
            "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
            "pre_feedforward_layernorm", "post_feedforward_layernorm",
        },
    ),
    "gpt2": (
        "transformer.h.1.attn",
        {"attn.c_attn", "attn.c_proj", "ln_1"},
        "transformer.h.1.mlp",
        {"mlp.c_fc", "mlp.c_proj", "ln_2"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("architecture", ATTENTION_AND_MLP)
def test_norms_go_with_the_projections_they_serve(architecture):
    modules = partition(*names_and_type(architecture, bare=False)).modules
    attention, attention_members, mlp, mlp_members = ATTENTION_AND_MLP[architecture]
    assert short(modules[attention], attention) == attention_members
    assert short(modules[mlp], mlp) == mlp_members


def test_convnext_has_a_module_per_block_and_per_downsampling():
    modules = partition(*names_and_type("convnext", bare=False)).modules
    assert {module: len(members) for module, members in modules.items()} == {
        "head": 2,
        "embeddings": 4,
        "convnext.encoder.stages.0.layers.0": 9,
        "convnext.encoder.stages.1.downsampling_layer": 4,
        "convnext.encoder.stages.1.layers.0": 9,
        "convnext.encoder.stages.1.layers.1": 9,
        "final_norm": 2,
    }


def test_layer_ten_comes_after_layer_nine():
    names = [f"model.layers.{layer}.{part}.weight" for layer in range(12) for part in ("self_attn.q_proj", "mlp.up")]
    modules = list(partition(names, "llama").modules)
    assert [int(module.split(".")[2]) for module in modules] == sorted([*range(12), *range(12)])


def test_unknown_network_is_cut_after_the_first_number():
    names = ["patch_embed.proj.weight", "blocks.3.attn.qkv.weight", "blocks.3.mlp.fc1.0.weight", "0.weight", "scale.1"]
    assert dict(partition(names, "convmixer").modules) == {
        "0": ("0.weight",),
        "blocks.3": ("blocks.3.attn.qkv.weight", "blocks.3.mlp.fc1.0.weight"),
        "patch_embed": ("patch_embed.proj.weight",),
        "scale": ("scale.1",),
    }


def test_pattern_names_the_modules_and_the_rest_is_other():
    names = ["trunk.blocks.10.attn.q", "trunk.blocks.2.attn.q", "trunk.blocks.2.norm", "stem"]
    modules = partition(names, "bert", r"(blocks\.\d+(?:\.attn)?)\.").modules
    assert list(modules) == ["other", "blocks.2.attn", "blocks.2", "blocks.10.attn"]
    assert modules["other"] == ("stem",)


@pytest.mark.parametrize(
    ("pattern", "remedy"),
    [
        ("(blocks", "correct it"),
        ("(a){999999999999999999999}", "correct it"),
        ("(?:" * 160 + ")" * 2, "correct it"),
        (r"blocks\.\d+", "exactly one"),
        (r"(blocks)\.(\d+)", "exactly one"),
        ("(a)" + "b" * 500, "shorter"),
    ],
)
def test_bad_pattern_is_refused_in_one_line_that_says_what_to_do(pattern, remedy):
    with pytest.raises(UnknownModule, match=remedy) as refusal:
        partition(["a.b"], None, pattern)
    assert "\n" not in str(refusal.value)


def test_importing_this_folder_loads_neither_torch_nor_transformers():
    code = (
        "import sys, smatter.backbones.modules, smatter.backbones.network\n"
        "print({'torch', 'transformers'} & {*sys.modules})"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"
