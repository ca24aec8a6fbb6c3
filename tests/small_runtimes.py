"""Small libraries of every family, inputs for them, and residuals of random groups."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor
from transformers import PreTrainedModel

from smatter.compose.head import ClassHead
from smatter.compose.residual import Residual
from smatter.library.banks import Bank, PlacedBank
from smatter.library.edit import add_source, init_library
from smatter.library.library import Library, open_library
from smatter.runtime.shared import SharedRuntime
from smatter.settings.training import UnitKind
from smatter.units.numbering import find_matrices

LAYERS = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 40}
TEXT = {"vocab_size": 30, "max_position_embeddings": 32}


def make(model: str, config: str, **settings: object) -> Callable[[], PreTrainedModel]:
    return lambda: getattr(transformers, model)(getattr(transformers, config)(**settings))


FAMILIES: dict[str, Callable[[], PreTrainedModel]] = {
    "vit": make("ViTModel", "ViTConfig", **LAYERS, image_size=8, patch_size=4),
    "bert": make("BertModel", "BertConfig", **LAYERS, **TEXT),
    "convnext": make("ConvNextModel", "ConvNextConfig", hidden_sizes=[8, 12], depths=[1, 2], num_stages=2,
                     image_size=8, patch_size=2, layer_scale_init_value=0.5),
    "llama": make("LlamaModel", "LlamaConfig", **LAYERS, **TEXT, num_key_value_heads=1),
    "gpt2": make("GPT2Model", "GPT2Config", vocab_size=30, n_positions=32, n_embd=16, n_layer=2, n_head=2),
}  # fmt: skip


PECULIAR: dict[str, Callable[[], PreTrainedModel]] = {
    "deberta-v2": make("DebertaV2Model", "DebertaV2Config", **LAYERS, **TEXT, relative_attention=True,
                       position_buckets=8, pos_att_type=["p2c", "c2p"], norm_rel_ebd="layer_norm"),
    "beit": make("BeitModel", "BeitConfig", **LAYERS, image_size=8, patch_size=4, layer_scale_init_value=0.5,
                 use_relative_position_bias=True),
    "bit": make("BitModel", "BitConfig", embedding_size=8, hidden_sizes=[16, 16], depths=[1, 1], num_groups=2,
                image_size=32),
    "dinov2": make("Dinov2Model", "Dinov2Config", **{**LAYERS, "intermediate_size": None}, image_size=8, patch_size=4),
    "nemotron": make("NemotronModel", "NemotronConfig", **LAYERS, **TEXT, num_key_value_heads=1, head_dim=8),
    "olmo2": make("Olmo2Model", "Olmo2Config", **LAYERS, **TEXT),
    "opt": make("OPTModel", "OPTConfig", **TEXT, hidden_size=16, num_hidden_layers=2, ffn_dim=40,
                num_attention_heads=2, word_embed_proj_dim=16),
    "swin": make("SwinModel", "SwinConfig", image_size=16, patch_size=2, embed_dim=8, depths=[1, 1], num_heads=[2, 2],
                 window_size=4),
}  # fmt: skip
"""Where rows of a batch are not always side by side, or parameters are used in other ways than they seem."""


def make_library(family: str, folder: Path) -> Library:
    """A base and another source near it; no two tensors are alike."""
    with torch.random.fork_rng(devices=[]):
        for number in range(2):
            torch.manual_seed(0)
            model = (FAMILIES | PECULIAR)[family]()
            with torch.no_grad():
                for scale in (0.1, 0.05):
                    for parameter in model.parameters():
                        parameter.add_(scale * torch.randn_like(parameter))
                    torch.manual_seed(number)
            model.save_pretrained(folder / f"s{number}")
    init_library(folder, folder / "s0")
    add_source(folder, folder / "s1")
    return open_library(folder)


def inputs_of(library: Library, n_rows: int) -> dict[str, Tensor]:
    """Random pictures, or texts of different lengths."""
    generator = torch.Generator().manual_seed(1)
    if "image_size" in library.base.config:
        side = library.base.config["image_size"]
        return {"pixel_values": torch.randn(n_rows, 3, side, side, generator=generator)}
    lengths = torch.randint(3, 9, (n_rows, 1), generator=generator)
    tokens = torch.randint(1, 30, (n_rows, 8), generator=generator)
    return {"input_ids": tokens, "attention_mask": (torch.arange(8) < lengths).long()}


def random_residual(runtime: SharedRuntime, seed: int, share: float) -> Residual:
    """Noise in a random share of all units: groups, and what lies outside of them in a module."""
    generator = torch.Generator().manual_seed(seed)
    dense: dict[str, np.ndarray] = {}
    for parts in units(runtime):
        if float(torch.rand((), generator=generator)) < share:
            for tensor, index in parts:
                values = dense.setdefault(tensor, np.zeros(runtime.specs[tensor].shape, np.float32))
                values[index] += 0.1 * torch.randn(values[index].shape, generator=generator).numpy()
    return Residual(dense=dense)


def units(runtime: SharedRuntime) -> list[list[tuple[str, Any]]]:
    """Slices of all units, in order: the groups of a module, then the rest of it as far as tasks may correct it."""
    places = next(iter(runtime.bases.values())).places
    found = []
    for module, tensors in runtime.library.partition.modules.items():
        outside = {name: np.ones(runtime.specs[name].shape, bool) for name in tensors if name in places}
        if module not in runtime.numbering.units:  # the network does not use it
            continue
        for group in runtime.numbering.units[module].groups:
            found.append([(part.tensor, part.index) for part in group.slices])
            for part in group.slices:
                outside[part.tensor][part.index] = False
        if runtime.numbering.units[module].n_units > len(runtime.numbering.units[module].groups):
            found.append([(name, mask) for name, mask in outside.items() if mask.any()])
    return found


def random_bank(runtime: SharedRuntime, kind: UnitKind, seed: int = 0, placed_only: bool = True) -> Bank:
    """Three experts of random units, lent to the library; what the runtime has no place for stays closed."""
    library, numbering, generator = runtime.library, runtime.numbering, np.random.default_rng(seed)
    empty = Bank(
        np.zeros(0, np.float16),
        np.zeros((3, 0), bool),
        kind,
        2,
        base=library.manifest.digests[library.manifest.base],
        partition=library.partition.digest,
        tensors=tuple(numbering.tensors),
    )
    unit_of = PlacedBank(empty, numbering).unit_of
    masks = generator.random((3, int(unit_of.max()) + 1)) < (0.1 if kind == "elements" else 0.5)
    values = generator.normal(0, 0.1, len(unit_of)).astype(np.float16)
    places = next(iter(runtime.bases.values())).places
    if placed_only and kind == "components":
        for number, matrix in enumerate(find_matrices(numbering, rank=2)):
            masks[:, 2 * number : 2 * number + 2] &= matrix.tensor in places
    elif placed_only:
        for name, where in numbering.tensors.items():
            values[where] *= name in places
    bank = replace(empty, values=values[masks.any(axis=0)[unit_of]], masks=masks, digest="")
    library.lend(bank)
    return bank


def random_head(runtime: SharedRuntime, seed: int, n_classes: int = 5) -> ClassHead:
    """A head whose classes stand in another order than its rows."""
    generator = np.random.default_rng(seed)
    n_features = next(iter(runtime.bases.values())).resident.network.n_features
    weight = 5 * generator.standard_normal((n_classes, n_features)).astype(np.float32)
    classes = {f"class {seed} {row}": int(row) for row in generator.permutation(n_classes)}
    bias = generator.standard_normal(n_classes).astype(np.float32) if seed % 2 else None
    return ClassHead("ridge", classes, weight, bias, temperature=1 + seed % 3)
