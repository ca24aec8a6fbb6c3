"""Solve a task with a library and print the most anonymous memory that took beyond what was there before, in MB."""

import sys
import threading
from pathlib import Path

import numpy as np
import torch

from smatter.backbones.network import Network
from smatter.compose.execute import blend
from smatter.library.library import open_library
from smatter.live.mixture import LiveMixture
from smatter.live.task import Task
from smatter.methods.solver import SolverSettings, solver
from smatter.tasks.support import Support


def anonymous() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith("RssAnon"))


def warm_up(config: dict) -> None:
    """Import and compile what any run needs, so that only the work is measured."""
    small = Network({**config, "hidden_size": 6, "intermediate_size": 8, "num_hidden_layers": 1})
    size = config["image_size"]
    small.features({"pixel_values": torch.zeros(2, 3, size, size)}).sum().backward()
    for n_sources in range(1, 6):
        blend(
            [np.zeros(8, np.float32)] * n_sources,
            ["F32"] * n_sources,
            [1.0] * n_sources,
            np.zeros(8, np.float32),
            "F32",
        )


def main(folder: str) -> None:
    torch.set_num_threads(1)
    library = open_library(folder)
    generator = torch.Generator().manual_seed(0)
    size = library.base.config["image_size"]
    support = Support.of(torch.randn(8, 3, size, size, generator=generator), [0, 0, 0, 0, 1, 1, 1, 1])
    library.verify()
    warm_up(library.base.config)
    before, most, done = anonymous(), 0.0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.002):
            most = max(most, anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    live = LiveMixture(library)
    solver(live, Task.of(live, support), SolverSettings(n_steps=3, start="uniform", tolerance=0.0))
    done.set()
    watcher.join()
    print(most - before)


if __name__ == "__main__":
    main(sys.argv[1])
