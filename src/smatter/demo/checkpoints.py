"""A base trained on every style, and a specialist of each, as Hugging Face folders."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from smatter.demo.shapes import SHAPES, SIZE, STYLES, draw

BATCH = 64
BASE_STEPS = 400
SPECIALIST_STEPS = 120


def make_checkpoints(folder: Path, generator: torch.Generator, progress: Callable[[int], None]) -> Any:
    """Train and save `base`, `chalk`, `ink` and `wire`; returns a model of the same class to load mixtures into.

    Args:
        folder: where the four folders go.
        generator: source of randomness for pictures; weights start from its first number.
        progress: told each step.
    """
    from transformers import ConvNextConfig, ConvNextForImageClassification

    torch.manual_seed(int(torch.randint(2**31, (1,), generator=generator)))  # transformers takes no generator
    labels = dict(enumerate(SHAPES))
    config = ConvNextConfig(
        hidden_sizes=[16, 32, 64],
        depths=[1, 1, 1],
        num_stages=3,
        patch_size=2,
        image_size=SIZE,
        layer_scale_init_value=1.0,  # the default, 1e-6, starts too slowly for a few hundred steps
        id2label=labels,
        label2id={name: number for number, name in labels.items()},
    )
    base = ConvNextForImageClassification(config)
    _train(base, STYLES, BASE_STEPS, 1e-2, generator, progress)
    base.save_pretrained(folder / "base")
    for style in STYLES:
        specialist = copy.deepcopy(base)
        _train(specialist, (style,), SPECIALIST_STEPS, 3e-3, generator, progress)
        specialist.save_pretrained(folder / style)
    return base.eval()


def _train(
    model: Any,
    styles: tuple[str, ...],
    steps: int,
    rate: float,
    generator: torch.Generator,
    progress: Callable[[int], None],
) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    model.train()
    for step in range(steps):
        pictures, labels = draw(styles[step % len(styles)], BATCH, generator)
        loss = torch.nn.functional.cross_entropy(model(pixel_values=pictures).logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        progress(1)


@torch.no_grad()
def accuracy(model: Any, pictures: Tensor, labels: Tensor) -> float:
    """Share of pictures whose shape is named."""
    return float((model(pixel_values=pictures).logits.argmax(dim=-1) == labels).float().mean())
