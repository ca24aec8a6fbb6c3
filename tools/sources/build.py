"""Train the sources of Signs and make their library: python tools/sources/build.py --work DIR -o LIBRARY.

A base learns from all domains that are not held out; specialists go on from it, each on its own domains, two at a time.
What is done is kept in DIR, so that a build that was stopped goes on where it was.
"""

import argparse
import json
import shutil
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path

import torch
from plan import BASE, BASE_EVERY, CONFIG, PREPROCESSOR, SPECIALISTS, TUNING, Job
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from safetensors.torch import load_file

from smatter.backbones.network import Network
from smatter.library.edit import add_source, init_library
from smatter.library.writing import new_folder, write_file
from smatter.tasks.open import open_suite
from smatter.train.pictures import Pictures, domain_shares
from smatter.train.supervised import Step, train_backbone


def train(job: Job, work: Path, told: "Queue[tuple[str, Step]] | None" = None) -> Path:
    """Train one source, or go on, and save it as a checkpoint in half precision; nothing to do where it is there."""
    folder = work / job.name
    if folder.exists():
        return folder
    torch.set_num_threads(1)
    pictures = Pictures.of(open_suite("signs"), "source", domain_shares(job.domains), job.every)
    network = Network(CONFIG)
    if job.start:
        network.use(load_file(work / job.start / "model.safetensors"))
        network.model.float()
    state = work / f"{job.name}.state.safetensors"
    train_backbone(network, pictures, job.settings, state, progress=lambda step: told and told.put((job.name, step)))
    with new_folder(folder) as partial:
        network.model.half().save_pretrained(partial)
        (partial / "model.safetensors").chmod(0o644)
        write_file(partial / "preprocessor_config.json", json.dumps(PREPROCESSOR, indent=1).encode())
    return folder


def train_all(jobs: list[Job], work: Path, workers: int) -> None:
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


def inside() -> tuple[str, ...]:
    """The domains that are not held out."""
    return tuple(domain.name for domain in open_suite("signs").domains if domain.role == "id")


def main() -> None:
    """Base, specialists, library."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="folder for states and checkpoints")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder of the library")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    train_all([Job("base", inside(), BASE, every=BASE_EVERY)], options.work, 1)
    train_all([Job(name, own, TUNING, "base") for name, own in SPECIALISTS.items()], options.work, 2)
    with new_folder(options.out, replace=True) as folder:
        for name in ("base", *SPECIALISTS):
            shutil.copytree(options.work / name, folder / name)
        init_library(folder, folder / "base")
        for name in SPECIALISTS:
            add_source(folder, folder / name)


if __name__ == "__main__":
    main()
