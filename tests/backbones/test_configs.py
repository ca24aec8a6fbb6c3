"""What of a stranger's config.json reaches transformers, and that the rest costs neither time nor memory."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tiny_models import HEAD_MODELS, first_output, save, tiny_model
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from smatter.backbones.configs import KEYS, MODEL_TYPES, checked_settings, supported_type
from smatter.backbones.network import Network, load_tensors
from smatter.errors import IncompatibleSource
from smatter.library.checkpoint import open_checkpoint
from smatter.library.edit import init_library
from smatter.records import TensorSpec

WITHOUT_EFFECT = {
    "architectures", "chunk_size_feed_forward", "deterministic_flash_attn", "dtype", "label2id", "output_hidden_states",
    "problem_type", "return_dict", "transformers_version", "_out_features", "_out_indices",
}  # fmt: skip
"""Declared settings that change nothing about the features of a network, or only how they are handed over."""


@pytest.mark.parametrize("model_type", sorted(MODEL_TYPES))
def test_no_setting_of_a_supported_network_is_lost(model_type: str) -> None:
    declared = {field.name for field in dataclasses.fields(CONFIG_MAPPING[model_type])}
    assert not declared - KEYS - WITHOUT_EFFECT
    assert not set(CONFIG_MAPPING[model_type].attribute_map) - KEYS


def buffers(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {**model.state_dict(), **dict(model.named_buffers())}


@pytest.mark.parametrize("architecture", HEAD_MODELS)
def test_networks_have_the_bits_of_plain_construction(architecture: str, tmp_path: Path) -> None:
    tensors = save(tiny_model(architecture), tmp_path).tensors
    checkpoint = open_checkpoint(tmp_path)
    network = Network(checkpoint.config, checkpoint.tensors)

    ignored = {"model_type", "auto_map", "torch_dtype", "dtype", "quantization_config", "architectures"}
    settings = {key: value for key, value in checkpoint.config.items() if key not in ignored}
    config = transformers.AutoConfig.for_model(checkpoint.config["model_type"], **settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        plain = transformers.AutoModel.from_config(config, dtype=torch.float32).eval()
    assert network.model.config._attn_implementation == plain.config._attn_implementation
    ours, theirs = buffers(network.model), buffers(plain)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    for model in (network.model, plain):
        load_tensors(model, tensors)
    assert torch.equal(first_output(network.model), first_output(plain))


def test_keys_that_reach_elsewhere_are_dropped() -> None:
    config = tiny_model("bert").config.to_dict()
    reaching = {
        "auto_map": {"AutoModel": "evil.Model"}, "backbone": "someone/x", "use_timm_backbone": True,
        "backbone_kwargs": {"a": 1}, "attn_implementation": "kernels-community/x", "experts_implementation": "x",
        "_attn_implementation": "kernels-community/x", "quantization_config": {"quant_method": "gptq"},
        "_name_or_path": "someone/x", "name_or_path": "someone/x", "unsloth_version": "1", "return_dict": False,
        "per_layer_config": [{}],
    }  # fmt: skip
    assert checked_settings(config | reaching) == checked_settings(config)
    assert Network(config | reaching).model.config._attn_implementation == "sdpa"


BOMBS: dict[str, tuple[str, dict[str, Any]]] = {
    "labels": ("bert", {"num_labels": 200_000_000}),
    "vocabulary": ("bert", {"vocab_size": 50_000_000}),
    "positions": ("bert", {"max_position_embeddings": 50_000_000}),
    "layers": ("bert", {"num_hidden_layers": 20_000}),
    "a few layers too many": ("bert", {"num_hidden_layers": 400}),
    "layers of GPT-2": ("gpt2", {"n_layer": 20_000}),
    "stages": ("convnext", {"depths": [1, 1_000_000]}),
    "pooler": ("vit", {"pooler_output_size": 2_000_000_000}),
    "pixels": ("vit", {"image_size": 1_000_000}),
    "rotary part": ("gpt_neox", {"rotary_pct": 1_000_000}),
    "rotary part inside": ("llama", {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 1e9}}),
    "long number": ("bert", {"hidden_size": 10**300}),
    "long list": ("deberta-v2", {"pos_att_type": ["p2c"] * 1_000_000}),
    "object": ("bert", {"hidden_act": {"a": 1}}),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_absurd_sizes_are_refused_in_one_line(bomb: str, tmp_path: Path) -> None:
    architecture, settings = BOMBS[bomb]
    save(tiny_model(architecture), tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    with pytest.raises(IncompatibleSource) as caught:
        Network(checkpoint.config | settings, checkpoint.tensors)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500 and ": " in str(caught.value)


def test_a_list_of_layers_that_unfolds_is_counted() -> None:
    with pytest.raises(IncompatibleSource, match="attention_types"):
        Network({"model_type": "gpt_neo", "attention_types": [[["global"], 10**9]]})


def test_absurd_sizes_take_neither_time_nor_memory(tmp_path: Path) -> None:
    """All of them in one process of its own, which has little memory to spare beyond the imported libraries."""
    cases = []
    for number, (architecture, settings) in enumerate(BOMBS.values()):
        save(tiny_model(architecture), tmp_path / str(number))
        cases.append((str(tmp_path / str(number)), settings))
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    program = Path(__file__).with_name("bomb_program.py")
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path / "cases.json")], capture_output=True, text=True, check=True
    )
    told = json.loads(done.stdout)
    assert told["refused"] == len(BOMBS)
    assert max(told["seconds"]) < 5
    assert told["megabytes"] < 100


def test_a_network_may_not_outgrow_its_checkpoint(tmp_path: Path) -> None:
    """GPT-Neo keeps a mask of the square of its positions in each layer, which no tensor on disk shows."""
    n_positions = 30_000
    sizes = {"hidden_size": 2, "num_layers": 1, "num_heads": 1, "vocab_size": 5, "attention_types": [[["global"], 1]]}
    config = {"model_type": "gpt_neo", **sizes, "max_position_embeddings": n_positions}
    small = Network({**config, "max_position_embeddings": 8}).model.state_dict()
    tensors = {name: TensorSpec("F32", tuple(tensor.shape)) for name, tensor in small.items()}
    tensors["wpe.weight"] = TensorSpec("F32", (n_positions, 2))
    with pytest.raises(IncompatibleSource, match="MB of memory"):
        Network(config, tensors)


@pytest.mark.parametrize("change", [{"intermediate_size": 32}, {"type_vocab_size": 3}])
def test_a_config_that_does_not_fit_the_tensors_names_one(change: dict[str, int], tmp_path: Path) -> None:
    save(tiny_model("bert"), tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    with pytest.raises(IncompatibleSource, match=r"has shape \[.*but BertModel has"):
        Network(checkpoint.config | change, checkpoint.tensors)


def test_settings_that_do_not_go_together_end_in_one_line(tmp_path: Path) -> None:
    config = tiny_model("llama").config.to_dict()
    factors = {"short_factor": [1.0] * 4, "long_factor": [1.0] * 3, "original_max_position_embeddings": 2}
    network = Network(config | {"rope_parameters": {"rope_type": "longrope", "rope_theta": 1.0, **factors}})
    with pytest.raises(IncompatibleSource, match="does not run") as caught:
        network.features(network.random_inputs(2, 4))
    assert "\n" not in str(caught.value)


def test_other_types_of_networks_are_composed_but_not_run(tmp_path: Path) -> None:
    save(tiny_model("bert"), tmp_path / "base")
    config = tmp_path / "base" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"model_type": "detr"}))
    library = init_library(tmp_path / "library", tmp_path / "base")
    with pytest.raises(IncompatibleSource, match="'detr' can be composed but not run here"):
        supported_type(library.base.config)
