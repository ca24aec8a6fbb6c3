"""Libraries of tiny random networks, and a BERT whose specialists know which words mean the same."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from small_suites import text_suite
from transformers import BertConfig, BertModel, PreTrainedModel, ViTConfig, ViTForImageClassification

from smatter.library.edit import add_source, init_library
from smatter.library.library import Library
from smatter.tasks.stores import Texts
from smatter.tasks.suite import Suite
from smatter.tasks.support import Support

LAYERS = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
TOPICS = ("law", "food")
N_CLASSES, N_SYNONYMS, N_FILLERS = 4, 6, 10
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = SPECIAL + [f"filler{n}" for n in range(N_FILLERS)] + [
    f"{topic}{label}{chr(97 + n)}" for topic in TOPICS for label in range(N_CLASSES) for n in range(N_SYNONYMS)
]  # fmt: skip


def tiny_vit() -> ViTForImageClassification:
    return ViTForImageClassification(ViTConfig(**LAYERS, image_size=8, patch_size=4, num_labels=3))


def tiny_bert() -> BertModel:
    return BertModel(BertConfig(**LAYERS, vocab_size=len(WORDS), max_position_embeddings=32))


def random_library(
    folder: Path, model: PreTrainedModel, n_sources: int = 3, dtype: torch.dtype = torch.float32, spread: float = 0.3
) -> Library:
    """A base and perturbations of it, all tensors random, `source-0` and so on."""
    generator = torch.Generator().manual_seed(0)
    base = {name: 0.5 * torch.randn(t.shape, generator=generator) for name, t in model.state_dict().items()}
    for name in ("base", *(f"source-{number}" for number in range(n_sources - 1))):
        tensors = base if name == "base" else {
            key: tensor + spread * torch.randn(tensor.shape, generator=generator) for key, tensor in base.items()
        }  # fmt: skip
        model.config.save_pretrained(folder / name)
        stored = {key: tensor.to(dtype).contiguous() for key, tensor in tensors.items()}
        save_file(stored, folder / name / "model.safetensors", metadata={"format": "pt"})
        (folder / name / "vocab.txt").write_text("\n".join(WORDS))
    library = init_library(folder / "library", folder / "base")
    for number in range(n_sources - 1):
        library, _ = add_source(folder / "library", folder / f"source-{number}")
    return library


def pixels_support(n_shot: int = 3, n_way: int = 3, seed: int = 1) -> Support:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n_way).repeat_interleave(n_shot)
    means = torch.randn(n_way, 3, 8, 8, generator=generator)
    return Support.of(0.5 * means[labels] + torch.randn(len(labels), 3, 8, 8, generator=generator), labels)


def texts_support(topic: str, n_shot: int = 4, seed: int = 1) -> Support:
    """Each text has two words of its class among fillers."""
    generator = torch.Generator().manual_seed(seed)

    def number(limit: int) -> int:
        return int(torch.randint(limit, (1,), generator=generator))

    texts, labels = [], []
    for label in range(N_CLASSES):
        for _ in range(n_shot):
            words = [f"filler{number(N_FILLERS)}" for _ in range(4)]
            for _ in range(2):
                words.insert(number(5), f"{topic}{label}{chr(97 + number(N_SYNONYMS))}")
            texts.append(" ".join(words))
            labels.append(f"{topic}-{label}")
    return Support.of(texts, labels)


def topic_library(folder: Path) -> Library:
    """A random BERT, and per topic one whose embeddings of the topic's synonyms are alike."""
    generator = torch.Generator().manual_seed(3)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = tiny_bert()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    words = torch.randn(len(WORDS), 16, generator=generator)
    for name in ("base", *TOPICS):
        table = words.clone()
        for label in range(N_CLASSES):
            meaning = torch.randn(16, generator=generator)
            for n in range(N_SYNONYMS):
                if name in TOPICS:
                    table[WORDS.index(f"{name}{label}{chr(97 + n)}")] = meaning
        state["embeddings.word_embeddings.weight"] = table
        model.load_state_dict(state)
        model.save_pretrained(folder / name)
        (folder / name / "vocab.txt").write_text("\n".join(WORDS))
    library = init_library(folder / "library", folder / "base")
    for topic in TOPICS:
        library, _ = add_source(folder / "library", folder / topic)
    return library


def topic_suite() -> Suite:
    """A domain of each topic; a text has two words of its class's three, and two of any."""
    plain = text_suite({topic: ("id", [f"{topic}{number}" for number in range(40)]) for topic in TOPICS})
    generator, domains = np.random.default_rng(0), []
    for domain in plain.domains:
        vocabulary, texts = [word for word in WORDS if word.startswith(domain.name)], list[str]()
        for each in domain.classes:
            own = generator.choice(vocabulary, 3, replace=False)
            texts += [" ".join([*generator.choice(own, 2), *generator.choice(WORDS[5:], 2)]) for _ in range(len(each))]
        domains.append(replace(domain, store=Texts(texts)))
    return replace(plain, domains=tuple(domains))
