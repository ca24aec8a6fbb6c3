"""Networks for the runtime benchmark, tasks of as many parameters for us and for PEFT, and PEFT's own runtime."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import BertConfig, BertModel, PreTrainedModel

from smatter.backbones.network import Inputs
from smatter.compose.mixture import Mixture
from smatter.compose.recipe import Recipe
from smatter.compose.residual import Residual
from smatter.devices.sample import sample_network
from smatter.library.edit import init_library
from smatter.library.library import Library, open_library
from smatter.live.mixture import Resident
from smatter.runtime.shared import SharedRuntime
from smatter.settings.devices import MeasureSettings

SIZES: dict[str, Callable[[], PreTrainedModel]] = {
    "vit": sample_network,
    "minilm": lambda: BertModel(
        BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536),
        add_pooling_layer=False,
    ),
}
MLP = r"mlp\.fc[12]|intermediate\.dense|(?<!attention\.)output\.dense"
TARGETS = {
    "all": r".*layers?\.\d+\.(attention\.[qkvo]_proj|attention\.(attention|self)\.(query|key|value)|"
    rf"attention\.output\.dense|{MLP})",
    "mlp": rf".*layers?\.\d+\.({MLP})",
}
"""Which operators of a layer have adapters: all that are linear, or those of the MLP."""

N_TOKENS = 32
BASE = Mixture.of({"base": 1.0})


def how_much(seconds: float, quantile: float = 0.5) -> MeasureSettings:
    """How a profile is measured: as `smatter profile` does it, or a little of everything where there is no time."""
    if seconds >= 30:
        return MeasureSettings(seconds=seconds, quantile=quantile)
    return MeasureSettings(n_fitted=20, n_calibrated=9, n_tested=5, seconds=seconds, quantile=quantile)


class Network:
    """One size: its library, a runtime with a shared delta, and tasks.

    Args:
        size: its name.
    """

    def __init__(self, size: str) -> None:
        self.size = size
        self._scratch = tempfile.TemporaryDirectory()
        folder = Path(self._scratch.name)
        torch.manual_seed(0)
        self.model = SIZES[size]().eval()
        self.model.save_pretrained(folder / "base")
        init_library(folder, folder / "base")
        self.library: Library = open_library(folder)
        plain = SharedRuntime(self.library, {"base": BASE})
        units, generator = plain.numbering.units, np.random.default_rng(0)
        self.values = {
            disk: (1e-3 * generator.standard_normal(plain.specs[disk].shape)).astype(np.float32)
            for disk in {part.tensor for own in units.values() for group in own.groups for part in group.slices}
        }
        self.runtime = SharedRuntime(self.library, {"base": BASE}, shared=Residual(dense=self.values))
        self.n_units = self.runtime.shared["base"].n_units
        self.plain = Resident(self.library)
        self.groups = [(module, number) for module, own in units.items() for number in range(len(own.groups))]
        self.sizes = [
            sum(self.values[part.tensor][part.index].size for part in units[module].groups[number].slices)
            for module, number in self.groups
        ]

    @property
    def n_bytes(self) -> int:
        """Of a checkpoint."""
        return self.runtime.bases["base"].resident.n_bytes

    @property
    def n_linear(self) -> int:
        """Parameters of all groups."""
        return sum(self.sizes)

    def inputs(self, n_rows: int) -> Inputs:
        generator = torch.Generator().manual_seed(1)
        if self.size == "vit":
            return {"pixel_values": torch.randn(n_rows, 3, 64, 64, generator=generator)}
        tokens = torch.randint(1, 30_000, (n_rows, N_TOKENS), generator=generator)
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}

    def gates(self, n_parameters: int, seed: int) -> dict[str, list[float]]:
        """Random groups of about so many parameters, of heads and of neurons in proportion, as open units."""
        far = {module: [0.0] * n for module, n in self.n_units.items()}
        generator = np.random.default_rng(seed)
        order, units = generator.permutation(len(self.groups)), self.runtime.numbering.units
        is_head = np.array([units[module].groups[number].kind == "head" for module, number in self.groups])
        sizes = np.array(self.sizes)
        room = n_parameters * sizes[is_head].sum() / sizes.sum() + sizes[is_head].mean() * generator.uniform(-0.5, 0.5)
        for kind in (True, False):  # what heads, which are large, leave is for neurons
            for place in order[is_head[order] == kind]:
                if sizes[place] <= room:
                    module, number = self.groups[place]
                    far[module][number] = 1.0
                    room, n_parameters = room - sizes[place], n_parameters - sizes[place]
            room = n_parameters
        return {module: own for module, own in far.items() if any(own)}

    def recipe(self, gates: dict[str, list[float]], seed: int) -> Recipe:
        """A task of its own with noise in these groups."""
        dense: dict[str, np.ndarray] = {}
        generator = np.random.default_rng(seed)
        for module, own in gates.items():
            for far, group in zip(own, self.runtime.numbering.units[module].groups, strict=False):
                if far:
                    for part in group.slices:
                        tensor = dense.setdefault(part.tensor, np.zeros_like(self.values[part.tensor]))
                        shape = tensor[part.index].shape
                        tensor[part.index] = 1e-3 * generator.standard_normal(shape, dtype=np.float32)
        return self.library.recipe(BASE, Residual(dense=dense))


def lora_rank(network: Network, share: float, where: str) -> tuple[int, int]:
    """The rank whose adapter has about this share of the parameters of all groups, and how many it has."""
    per_rank = sum(
        parameter.numel() for name, parameter in _adapted(network, 1, 1, where).named_parameters() if "lora_" in name
    )
    rank = max(1, round(share * network.n_linear / per_rank))
    return rank, rank * per_rank


def _adapted(network: Network, n_adapters: int, rank: int, where: str) -> PeftModel:
    torch.manual_seed(0)
    model = SIZES[network.size]()
    model.load_state_dict(network.model.state_dict())
    config = LoraConfig(r=rank, target_modules=TARGETS[where], init_lora_weights=False)
    adapted = get_peft_model(model, config, adapter_name="task 0")
    for number in range(1, n_adapters):
        adapted.add_adapter(f"task {number}", config)
    return adapted.eval().requires_grad_(False)


class PeftRuntime:
    """PEFT's mixed-adapter batches: LoRA of one rank on every linear operator of a layer, or on its MLP alone."""

    def __init__(self, network: Network, n_tasks: int, rank: int, where: str) -> None:
        self.model = _adapted(network, n_tasks, rank, where)
        found, expected = sum("lora_A" in name for name, _ in self.model.named_parameters()), {"all": 36, "mlp": 12}
        assert found == expected[where] * n_tasks, f"{found / n_tasks} operators have adapters, not {expected[where]}"

    def features(self, inputs: Inputs, tasks: Sequence[str]) -> Any:
        with torch.inference_mode():
            return self.model(**inputs, adapter_names=list(tasks)).last_hidden_state.mean(dim=1)
