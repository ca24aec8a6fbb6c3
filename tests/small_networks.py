"""Small checkpoints made of plain tensors, so that most tests need no transformers."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

Tensors = dict[str, torch.Tensor]
CONFIG = {"model_type": "bert", "architectures": ["BertModel"], "num_attention_heads": 2}


def make_tensors(seed: int, dtype: torch.dtype = torch.float32, near: Tensors | None = None) -> Tensors:
    """A tiny BERT-like network; with `near`, a fine-tune of that one."""
    generator = torch.Generator().manual_seed(seed)
    shapes: dict[str, tuple[int, ...]] = {"embeddings.word_embeddings.weight": (50, 16)}
    for layer in range(2):
        prefix = f"encoder.layer.{layer}"
        shapes |= {
            f"{prefix}.attention.self.query.weight": (16, 16),
            f"{prefix}.attention.self.query.bias": (16,),
            f"{prefix}.intermediate.dense.weight": (64, 16),
            f"{prefix}.output.dense.weight": (16, 64),
            f"{prefix}.output.LayerNorm.weight": (16,),
        }
    tensors = {}
    for name, shape in shapes.items():
        noise = torch.randn(shape, generator=generator)
        tensors[name] = (0.1 * noise if near is None else near[name].float() + 0.01 * noise).to(dtype)
    tensors["embeddings.position_ids"] = torch.arange(12)
    return tensors


def write_checkpoint(folder: Path, tensors: Tensors, config: dict | None = None, shards: int = 1) -> Path:
    """A Hugging Face folder as save_pretrained would write it."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG if config is None else config))
    if shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return folder
    names, weight_map = sorted(tensors), {}
    for index in range(shards):
        file = f"model-{index + 1:05d}-of-{shards:05d}.safetensors"
        part = {name: tensors[name] for name in names[index::shards]}
        save_file(part, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder
