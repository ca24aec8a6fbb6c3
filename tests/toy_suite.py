"""Three synthetic image domains, a tiny ViT for all and a specialist of each, trained in seconds.

A picture is the pattern of its class, at random strength, over patterns of its domain that mean nothing but are
stronger. A network that has learnt which patterns of a domain mean nothing recognises classes from few examples;
it does so for classes that it was not trained on.
"""

import copy
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import ViTConfig, ViTForImageClassification

from smatter.library.edit import add_source, init_library
from smatter.library.library import Library, open_library
from smatter.tasks.support import Support

DOMAINS = ("red", "green", "blue")
SIZE = 12
N_CLASSES = 30
N_SIGNALS = 8
N_NUISANCES = 8
N_TRAINED = 20
"""The other ten classes of each domain make tasks."""


@dataclass(frozen=True)
class Domain:
    """Class patterns are mixtures of the signals; nuisances are drawn anew for every picture."""

    codes: Tensor
    signals: Tensor
    nuisances: Tensor

    def draw(self, labels: Tensor, generator: torch.Generator) -> Tensor:
        strength = 1.5 * torch.randn(len(labels), N_NUISANCES, generator=generator)
        noise = 0.3 * torch.randn(len(labels), self.signals.shape[1], generator=generator)
        pictures = self.codes[labels] @ self.signals + strength @ self.nuisances + noise
        return pictures.reshape(-1, 3, SIZE, SIZE)


def make_domains(seed: int = 0) -> dict[str, Domain]:
    generator = torch.Generator().manual_seed(seed)
    # One domain's signals are another's nuisances, so that no network can serve all equally well.
    patterns = torch.linalg.qr(torch.randn(3 * SIZE * SIZE, 3 * N_SIGNALS, generator=generator)).Q.T * SIZE
    parts = patterns.split(N_SIGNALS)
    return {
        name: Domain(
            torch.randn(N_CLASSES, N_SIGNALS, generator=generator) / N_SIGNALS**0.5 * 2, parts[k], parts[(k + 1) % 3]
        )
        for k, name in enumerate(DOMAINS)
    }


def _train(
    model: ViTForImageClassification,
    domains: list[Domain],
    heads: list[int],
    steps: int,
    rate: float,
    generator: torch.Generator,
) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    for step in range(steps):
        domain, head = domains[step % len(domains)], heads[step % len(domains)]
        labels = torch.randint(N_TRAINED, (64,), generator=generator)
        logits = model(pixel_values=domain.draw(labels, generator)).logits
        loss = torch.nn.functional.cross_entropy(logits, labels + head * N_TRAINED)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


def make_checkpoints(folder: Path, base_steps: int = 240, steps: int = 90, seed: int = 0) -> dict[str, Domain]:
    """Train and save a base and a specialist of each domain."""
    domains, generator = make_domains(seed), torch.Generator().manual_seed(seed + 1)
    config = ViTConfig(
        image_size=SIZE, patch_size=4, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, num_labels=3 * N_TRAINED,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        base = ViTForImageClassification(config)
    _train(base, list(domains.values()), [0, 1, 2], base_steps, 4e-3, generator)
    base.save_pretrained(folder / "base")
    for head, (name, domain) in enumerate(domains.items()):
        specialist = copy.deepcopy(base)
        _train(specialist, [domain], [head], steps, 1e-3, generator)
        specialist.save_pretrained(folder / name)
    return domains


def make_library(folder: Path) -> Library:
    """A library of the four checkpoints in a folder."""
    library = init_library(folder / "library", folder / "base", exclude=["classifier.*"])
    for name in DOMAINS:
        library, _ = add_source(folder / "library", folder / name)
    return library


def add_noise_sources(library: Library, folder: Path, n_sources: int, scale: float = 0.5) -> Library:
    """Add random perturbations of the base in folders here, each tensor by a share of its own spread."""
    from safetensors.torch import load_file, save_file

    generator = torch.Generator().manual_seed(7)
    base = library.base.folder
    tensors = load_file(base / "model.safetensors")
    for number in range(n_sources):
        place = folder / f"noise-{number}"
        place.mkdir()
        noisy = {
            name: tensor + scale * tensor.std(correction=0) * torch.randn(tensor.shape, generator=generator)
            if tensor.is_floating_point()
            else tensor
            for name, tensor in tensors.items()
        }
        save_file(noisy, place / "model.safetensors", metadata={"format": "pt"})
        (place / "config.json").write_bytes((base / "config.json").read_bytes())
        library, _ = add_source(library.folder, place)
    return open_library(library.folder)


@dataclass(frozen=True)
class Episode:
    domain: str
    support: Support
    queries: Tensor
    labels: Tensor


def draw_episode(
    domains: dict[str, Domain], names: str, seed: int, n_way: int = 5, n_shot: int = 5, n_query: int = 40
) -> Episode:
    """A task of classes that no network has seen, from one domain or in turn from several (`red+green`)."""
    generator = torch.Generator().manual_seed(seed)
    chosen = [domains[name] for name in names.split("+")]
    orders = [N_TRAINED + torch.randperm(N_CLASSES - N_TRAINED, generator=generator) for _ in chosen]

    def draw(n_each: int) -> Tensor:
        parts = []
        for number in range(n_way):
            which = number % len(chosen)
            parts.append(chosen[which].draw(orders[which][number].expand(n_each), generator))
        return torch.cat(parts)

    support = Support.of(draw(n_shot), torch.arange(n_way).repeat_interleave(n_shot))
    return Episode(names, support, draw(n_query), torch.arange(n_way).repeat_interleave(n_query))
