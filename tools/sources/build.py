"""Train the sources of Signs and make their library: python tools/sources/build.py --work DIR -o LIBRARY.

A base learns from all domains that are not held out, from some of their classes. It goes on for a while on all of
them, and from there specialists part, each on its own domains, two at a time.
What is done is kept in DIR, so that a build that was stopped goes on where it was.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "common"))

import numpy as np
import torch
from libraries import write_library
from plan import BASE_JOB, CONFIG, PREPROCESSOR, SPECIALIST_JOBS, TRUNK_JOB, Job
from renderings import RENDERINGS
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from safetensors.torch import load_file
from torch import Tensor

from smatter.backbones.network import Network, load_tensors
from smatter.files.writing import new_folder, write_file
from smatter.tasks.open import open_suite
from smatter.train.examples import domain_shares
from smatter.train.pictures import TrainingPictures
from smatter.train.supervised import TrainingStep, train_backbone


def train(job: Job, work: Path, told: "Queue[tuple[str, TrainingStep]] | None" = None) -> Path:
    """Train one source, or go on, and save it as a checkpoint in half precision; nothing to do where it is there."""
    folder = work / job.name
    if folder.exists():
        return folder
    torch.set_num_threads(1)
    pictures = TrainingPictures.of(open_suite("signs"), "source", domain_shares(job.domains), job.every)
    if job.forbidden:
        pictures = merged(pictures, job.domains.index(job.forbidden))
    if job.objective != "classes":
        pictures = {"turns": Turns, "renderings": Rendered}[job.objective](**vars(pictures))
    network = Network(CONFIG)
    if job.start:
        load_tensors(network.model, load_file(work / job.start / "model.safetensors"))
        network.model.float()
    else:
        draw_weights(network, job.weights_seed)
    state = work / f"{job.name}.state.safetensors"
    train_backbone(network, pictures, job.settings, state, watch=lambda step: told and told.put((job.name, step)))
    write_checkpoint(network, folder)
    return folder


def write_checkpoint(network: Network, folder: Path) -> None:
    """A folder as `from_pretrained` reads it, in half precision."""
    with new_folder(folder) as partial:
        network.model.half().save_pretrained(partial)
        (partial / "model.safetensors").chmod(0o644)
        write_file(partial / "preprocessor_config.json", json.dumps(PREPROCESSOR, indent=1).encode())


def draw_weights(network: Network, seed: int) -> None:
    """Draw every matrix anew, as the architecture begins."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=network.config["initializer_range"], generator=generator)


def merged(pictures: TrainingPictures, domain: int) -> TrainingPictures:
    """The same pictures with all classes of one domain as one."""
    own = (pictures.domain_of == domain).nonzero().flatten()
    kept = torch.ones(pictures.n_classes, dtype=torch.bool)
    kept[own[1:]] = False
    first = torch.cat([pictures.first[:-1][kept], pictures.first[-1:]])
    return replace(pictures, first=first, domain_of=pictures.domain_of[kept])


class Turns(TrainingPictures):
    """Pictures turned by quarters; the number of quarters is what is to be told, whatever their class."""

    @property
    def n_classes(self) -> int:
        """One for each turn."""
        return 4

    def draw(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Turned pictures and by how many quarters."""
        pixels, _ = super().draw(n, generator)
        turns = torch.randint(4, (n,), generator=generator)
        return torch.stack([each.rot90(int(turn), (1, 2)) for each, turn in zip(pixels, turns, strict=True)]), turns


class Rendered(TrainingPictures):
    """Pictures of which each is as it is, or in one of the renderings, by the same chance."""

    def draw(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Pictures and their classes."""
        pixels, labels = super().draw(n, generator)
        kinds = torch.randint(len(RENDERINGS) + 1, (n,), generator=generator)
        for kind, rendering in enumerate(RENDERINGS.values()):
            own = (kinds == kind).nonzero().flatten()
            if len(own):
                seed = int(torch.randint(2**31, (), generator=generator))
                pictures = (255 * pixels[own]).round().byte().permute(0, 2, 3, 1).numpy()
                changed = rendering.change(pictures, np.random.default_rng(seed))
                pixels[own] = torch.from_numpy(changed).permute(0, 3, 1, 2).float() / 255
        return pixels, labels


def train_all(jobs: Sequence[Job], work: Path, workers: int) -> None:
    """Train independent sources side by side, with a bar for each."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    context = get_context("spawn")
    with Progress(*columns) as bars, context.Manager() as manager, ProcessPoolExecutor(workers, context) as pool:
        told = manager.Queue()
        lines = {job.name: bars.add_task(job.name, total=job.settings.n_steps) for job in jobs}
        futures = [pool.submit(train, job, work, told) for job in jobs]
        while not all(future.done() for future in futures) or not told.empty():
            try:
                name, step = told.get(timeout=0.5)
            except Exception:  # nothing was told for a while
                continue
            text = f"{name}: loss {step.loss:.2f}, right {step.accuracy:.0%}"
            bars.update(lines[name], completed=step.number, description=text)
        for future in as_completed(futures):
            future.result()


def arguments(description: str | None) -> argparse.Namespace:
    """Where to work and where the library goes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--work", type=Path, required=True, help="folder for states and checkpoints")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder of the library")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    return options


def main() -> None:
    """Base, specialists, library."""
    options = arguments(__doc__)
    train_all([BASE_JOB], options.work, 1)
    train_all([TRUNK_JOB], options.work, 1)
    train_all(SPECIALIST_JOBS, options.work, 2)
    write_library(options.work, [BASE_JOB.name, *(job.name for job in SPECIALIST_JOBS)], options.out)


if __name__ == "__main__":
    main()
