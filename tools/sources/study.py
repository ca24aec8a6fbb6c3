"""Train networks that do not ship, to study those that do: python tools/sources/study.py --work DIR -o LIBRARY.

Takes base, trunk and specialists from DIR, where `build.py` left them. LIBRARY holds all sixteen sources. The base that
went on, and what one would train instead of specialists, stay in DIR, for the benchmarks.
"""

from pathlib import Path

import torch
from build import arguments, train_all, write_checkpoint
from libraries import write_library
from plan import BASE_JOB, CONFIG, LONGER_JOB, PEER_JOBS, SPECIALIST_JOBS, STUDY_JOBS
from safetensors.torch import load_file

from smatter.backbones.network import Network, load_tensors
from smatter.library.edit import mark_safe


def write_noise(base: Path, folder: Path) -> None:
    """A checkpoint whose every tensor is noise of the base tensor's mean and spread: it knows nothing at all."""
    if folder.exists():
        return
    generator = torch.Generator().manual_seed(0)
    noise = {}
    for name, tensor in load_file(base / "model.safetensors").items():
        values = tensor.float()
        spread = values.std(correction=0)
        noise[name] = values.mean() + spread * torch.randn(values.shape, generator=generator)
    network = Network(CONFIG)
    load_tensors(network.model, noise)
    write_checkpoint(network, folder)


def main() -> None:
    """The base that goes on, the rest of the sixteen, their library."""
    options = arguments(__doc__)
    train_all([LONGER_JOB, *PEER_JOBS, *STUDY_JOBS], options.work, 2)
    write_noise(options.work / BASE_JOB.name, options.work / "noise")
    names = [job.name for job in (BASE_JOB, *SPECIALIST_JOBS, *STUDY_JOBS)]
    write_library(options.work, [*names, "noise"], options.out)
    mark_safe(options.out, "guard")


if __name__ == "__main__":
    main()
