"""Multiply-accumulates by module, against counts by hand and against the whole."""

import json
from pathlib import Path

import pytest
import torch
from small_runtimes import FAMILIES, PECULIAR, inputs_of, make_library
from tiny_models import save, tiny_model
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import smatter
from smatter.backbones.arithmetic import module_shares, multiply_accumulates
from smatter.backbones.branch import passes_of, tail_modules
from smatter.backbones.modules import partition
from smatter.backbones.network import Network
from smatter.errors import IncompatibleSource
from smatter.records import Partition


def live(architecture: str, folder: Path) -> tuple[Network, Partition]:
    checkpoint = save(tiny_model(architecture), folder)
    network = Network(json.loads((folder / "config.json").read_text()))
    return network, partition(checkpoint.tensors, network.config["model_type"])


def test_a_convnext_counted_by_hand(tmp_path: Path) -> None:
    network, modules = live("convnext", tmp_path)
    counts = multiply_accumulates(network, modules)

    def layer(channels: int, pixels: int) -> int:
        return pixels * channels * (7 * 7 + 2 * 4 * channels)

    assert list(counts.items()) == [
        ("embeddings", 16 * 8 * 3 * 2 * 2),
        ("convnext.encoder.stages.0.layers.0", layer(8, 16)),
        ("convnext.encoder.stages.1.downsampling_layer", 4 * 12 * 8 * 2 * 2),
        ("convnext.encoder.stages.1.layers.0", layer(12, 4)),
        ("convnext.encoder.stages.1.layers.1", layer(12, 4)),
        ("final_norm", 0),
        ("head", 0),
    ]


def test_a_bert_counted_by_hand(tmp_path: Path) -> None:
    network, modules = live("bert", tmp_path)
    n_rows, n_tokens, width = 3, 7, 16
    counts = multiply_accumulates(network, modules, network.random_inputs(n_rows, n_tokens))
    attention = n_rows * (4 * n_tokens * width * width + 2 * n_tokens * n_tokens * width)
    mlp = n_rows * n_tokens * 2 * width * 24
    layers = {f"bert.encoder.layer.{layer}": (attention, mlp) for layer in range(2)}
    expected = {
        f"{name}.{part}": n for name, each in layers.items() for part, n in zip(("attention", "mlp"), each, strict=True)
    }
    assert counts == {"embeddings": 0, **expected, "pooler": n_rows * width * width, "head": 0}


@pytest.mark.filterwarnings("ignore:`torch.jit.script`")  # said by transformers' DeBERTa
@pytest.mark.parametrize("family", [*FAMILIES, *PECULIAR])
def test_modules_make_up_the_whole_and_nothing_is_left_behind(family: str, tmp_path: Path) -> None:
    library = make_library(family, tmp_path)
    network, inputs = Network(library.base.config, library.specs), inputs_of(library, 3)
    counts = multiply_accumulates(network, library.partition, inputs)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as whole:
        network.features(inputs)
    assert 2 * sum(counts.values()) == whole.get_total_flops()
    shares = module_shares(network, library.partition)
    assert sum(shares.values()) == pytest.approx(1) and shares.keys() == set(library.partition.modules)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in network.model.modules())


@pytest.mark.parametrize("architecture", ["gpt2", "gpt_neox", "roberta"])
def test_the_order_is_that_of_a_pass_and_not_of_names(architecture: str, tmp_path: Path) -> None:
    network, modules = live(architecture, tmp_path)
    found = list(module_shares(network, modules))
    assert found != list(modules.modules) and found[0] == "embeddings"
    assert [name for name in found if "." in name] == [name for name in modules.modules if "." in name]
    assert found[5:] == [name for name in ("final_norm", "head") if name in modules.modules]


def test_a_pooler_that_no_checkpoint_has_counts_for_what_is_before_it(tmp_path: Path) -> None:
    network, modules = live("bert-masked", tmp_path)
    counts = multiply_accumulates(network, modules)
    last, first = (counts[f"bert.encoder.layer.{layer}.mlp"] for layer in (1, 0))
    assert "pooler" not in counts and last == first + 16 * 16


def test_a_network_that_multiplies_nothing_has_no_shares(tmp_path: Path) -> None:
    network, modules = live("bert", tmp_path)
    network.features = network.model.embeddings.word_embeddings.forward
    with pytest.raises(IncompatibleSource, match="multiplies nothing"):
        module_shares(network, modules, torch.tensor([[1, 2]]))


def test_the_last_stage_of_signs_is_about_a_third() -> None:
    library = smatter.open_library(Path(smatter.__file__).parent / "shipped" / "signs-library")
    shares = module_shares(Network(library.base.config, library.specs), library.partition)
    tail = tail_modules(shares, "encoder.stages.2")
    assert 0.3 < sum(shares[module] for module in tail) < 0.36
    assert 1.9 < passes_of(shares, [tail] * 4) < 2.1
