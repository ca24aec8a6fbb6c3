"""What a measurement depends on: the processor, the software, the setting and the network."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from smatter.library.library import Library

Label = Field(min_length=1, max_length=200)

MATRIX_INSTRUCTIONS = ("amx", "bf16", "fp16", "i8mm", "sve", "vnni")
"""Parts of the names of such instructions."""


class Fingerprint(BaseModel):
    """A device and what runs on it.

    Args:
        device: the processor's name.
        cores: processors that this process may use.
        capability: the instructions that torch uses, and those for products of matrices that the processor has.
        torch, transformers: their versions.
        threads: that torch uses.
        batch: rows of a forward pass.
        dtype: of weights and computing.
        length: tokens of a text, or the side of a picture.
        rank: of each operator's delta, where rank components are the units; else none, and groups are.
        network: digest of config and modules.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    device: str = Label
    cores: int = Field(ge=1)
    capability: str = Label
    torch: str = Label
    transformers: str = Label
    threads: int = Field(ge=1)
    batch: int = Field(ge=1)
    dtype: str = Label
    length: int = Field(ge=1)
    rank: int | None = Field(default=None, ge=1)
    network: str = Field(pattern="^[0-9a-f]{64}$")

    def differences(self, other: Fingerprint) -> list[str]:
        """What is not the same, in words."""
        ours, theirs = self.model_dump(), other.model_dump()
        return [f"{name} {ours[name]}, not {theirs[name]}" for name in ours if ours[name] != theirs[name]]


def fingerprint(
    library: Library, threads: int, batch: int, dtype: str, length: int, rank: int | None = None
) -> Fingerprint:
    """Of this machine, in a setting."""
    import torch

    config = {key: value for key, value in library.base.config.items() if not key.startswith("_")}
    network = json.dumps([config, library.partition.digest], sort_keys=True, default=str)
    return Fingerprint(
        device=processor(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        capability=" ".join([torch.backends.cpu.get_cpu_capability(), *matrix_instructions()]),
        torch=torch.__version__,
        transformers=version("transformers"),
        threads=threads,
        batch=batch,
        dtype=dtype,
        length=length,
        rank=rank,
        network=hashlib.sha256(network.encode()).hexdigest(),
    )


def processor() -> str:
    """Its name."""
    return _told("model name") or platform.processor() or platform.machine()


def matrix_instructions() -> list[str]:
    """Those that the processor has; of one name they can differ, and then bf16 takes several times as long."""
    found = (_told("flags") or _told("Features")).split()  # the latter on Arm
    return sorted(flag for flag in found if any(kind in flag for kind in MATRIX_INSTRUCTIONS))


def _told(name: str) -> str:
    """What the system tells of its first processor under a name, if it does."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == name), "")
