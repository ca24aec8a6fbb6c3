"""What a training run needs to go on after an interruption as if there had been none: one file, replaced at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from smatter.errors import UnsafeFile
from smatter.files.reading import read_header
from smatter.files.writing import write_file

MOMENTS = ("exp_avg", "exp_avg_sq")


def keep(path: Path, key: str, step: int, trained: Mapping[str, Tensor], optimizer: torch.optim.Optimizer) -> None:
    """Write all that the next step depends on.

    Args:
        path: the file.
        key: tells this run from others.
        step: how many are done.
        trained: what changes from step to step: parameters of the optimizer, and other tensors.
        optimizer: of the Adam kind.
    """
    tensors = {f"value.{name}": tensor.detach().contiguous() for name, tensor in trained.items()}
    for name, tensor in trained.items():
        moments = optimizer.state.get(tensor)
        if moments:  # none where a parameter has had no gradient
            tensors |= {f"{moment}.{name}": moments[moment] for moment in MOMENTS}
    write_file(path, save(tensors, {"step": str(step), "key": key}))


def resume(path: Path, key: str, trained: Mapping[str, Tensor], optimizer: torch.optim.Optimizer) -> int:
    """Take up a state, in place; the number of steps done, 0 where there is none of this run."""
    if not path.exists():
        return 0
    metadata = read_header(path).metadata
    if metadata.get("key") != key:
        return 0
    tensors, step = load_file(path), metadata.get("step", "")
    if not re.fullmatch("[0-9]{1,9}", step):
        raise _damaged(path, "does not say how many steps are done")

    def take(name: str, like: Tensor) -> Tensor:
        found = tensors.get(name)
        if found is None or found.shape != like.shape or found.isnan().any():
            raise _damaged(path, f"lacks {name}, or has another one")
        return found

    with torch.no_grad():
        for name, tensor in trained.items():
            tensor.copy_(take(f"value.{name}", tensor))
            if f"{MOMENTS[0]}.{name}" in tensors:
                moments = {moment: take(f"{moment}.{name}", tensor) for moment in MOMENTS}
                optimizer.state[tensor] = {"step": torch.tensor(float(step)), **moments}
    return int(step)


def _damaged(path: Path, what: str) -> UnsafeFile:
    return UnsafeFile(f"{path} {what}: delete it to train from the start, or restore it")
