"""Random networks of a few thousand parameters, one per architecture, and their checkpoints."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file
from transformers import PreTrainedModel

torch.set_num_threads(1)

LAYERS = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
TEXT = {**LAYERS, "vocab_size": 30, "pad_token_id": 0}
IMAGE = {**LAYERS, "image_size": 8, "patch_size": 4, "num_labels": 3}
DECODER = {**TEXT, "num_key_value_heads": 1, "head_dim": 8}
GPT2 = {"vocab_size": 30, "n_embd": 16, "n_layer": 2, "n_head": 2, "pad_token_id": 0}
DISTILBERT = {"vocab_size": 30, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24}
STAGES = {"hidden_sizes": [8, 12], "depths": [1, 2], "num_stages": 2, "image_size": 8, "patch_size": 2}


def make(model_class: str, config: str, **settings: object) -> Callable[[], PreTrainedModel]:
    return lambda: getattr(transformers, model_class)(getattr(transformers, config)(**settings))


HEAD_MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "bert": make("BertForSequenceClassification", "BertConfig", **TEXT),
    "bert-masked": make("BertForMaskedLM", "BertConfig", **TEXT),
    "roberta": make("RobertaForSequenceClassification", "RobertaConfig", **TEXT),
    "distilbert": make("DistilBertForSequenceClassification", "DistilBertConfig", **DISTILBERT),
    "electra": make("ElectraForSequenceClassification", "ElectraConfig", embedding_size=8, **TEXT),
    "deberta-v2": make("DebertaV2ForSequenceClassification", "DebertaV2Config", relative_attention=True, **TEXT),
    "vit": make("ViTForImageClassification", "ViTConfig", **IMAGE),
    "deit": make("DeiTForImageClassification", "DeiTConfig", **IMAGE),
    "dinov2": make("Dinov2ForImageClassification", "Dinov2Config", **IMAGE),
    "beit": make("BeitForImageClassification", "BeitConfig", **IMAGE),
    "convnext": make("ConvNextForImageClassification", "ConvNextConfig", **STAGES),
    "llama": make("LlamaForCausalLM", "LlamaConfig", tie_word_embeddings=False, **DECODER),
    "llama-tied": make("LlamaForCausalLM", "LlamaConfig", tie_word_embeddings=True, **DECODER),
    "qwen3": make("Qwen3ForCausalLM", "Qwen3Config", tie_word_embeddings=True, **DECODER),
    "gemma2": make("Gemma2ForCausalLM", "Gemma2Config", **DECODER),
    "gpt2": make("GPT2LMHeadModel", "GPT2Config", **GPT2),
    "gpt2-classifier": make("GPT2ForSequenceClassification", "GPT2Config", **GPT2),
    "gpt_neox": make("GPTNeoXForCausalLM", "GPTNeoXConfig", **TEXT),
}


@dataclass(frozen=True)
class Checkpoint:
    model: PreTrainedModel
    folder: Path

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        return load_file(self.folder / "model.safetensors")


def build(maker: Callable[[], PreTrainedModel]) -> PreTrainedModel:
    with warnings.catch_warnings():
        # The code of DeBERTa in transformers decorates functions with torch.jit.script.
        warnings.filterwarnings("ignore", message="`torch.jit.script` is deprecated", category=DeprecationWarning)
        return maker()


def tiny_model(architecture: str, *, bare: bool = False, seed: int = 0) -> PreTrainedModel:
    """A model in which no two tensors are alike, norms included, so that a wrong name cannot go unnoticed."""
    model = build(HEAD_MODELS[architecture])
    if bare:
        model = type(model.base_model)(model.config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=generator)
    return model.eval()


def save(model: PreTrainedModel, folder: Path, **settings: object) -> Checkpoint:
    model.save_pretrained(folder, **settings)
    return Checkpoint(model, folder)


def first_output(model: PreTrainedModel) -> torch.Tensor:
    """Logits or last hidden state for a fixed input."""
    if model.main_input_name == "pixel_values":
        pixels = torch.linspace(-1, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)
        with torch.no_grad():
            return model(pixel_values=pixels)[0]
    with torch.no_grad():
        return model(input_ids=torch.tensor([[1, 5, 9, 2], [3, 3, 8, 29]]))[0]
