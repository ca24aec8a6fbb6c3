"""Train a router for Words: python tools/words/router.py --suite FOLDER --library FOLDER -o ROUTER [--seed N].

It has no experts: there is nothing that texts of all domains have in common and no source knows. A network of texts
takes long, so tasks are drawn from some texts of each class, and a mixture's features are taken to be the mean of its
sources' (see averaging.py). Goes on where it was stopped.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "common"))

import torch
from averaging import Averaging
from few import few_texts

from smatter.backbones.gate import quiet_transformers
from smatter.cli.output import progress_bar
from smatter.library.library import open_library
from smatter.route.probe import draw_probe
from smatter.route.store import write_router
from smatter.settings.training import MetaSettings
from smatter.tasks.open import open_suite
from smatter.train.curriculum import make_curriculum
from smatter.train.meta import meta_train
from smatter.train.trainee import MetaStep, Trainee, Validation

N_TEXTS = 24
"""Of a class: each is passed through every source, and so are the views of those that are alone in a task."""

N_VALIDATION = 24
"""Validation tasks of each kind: sources differ by a few points, which few tasks do not show."""

N_STEPS = 1500


def train(library: Path, suite: Path, output: Path, settings: MetaSettings) -> None:
    """Train a router, or go on; nothing to do where it is there.

    Args:
        library: folder of the sources.
        suite: folder of the built suite.
        output: the router's folder.
        settings: how.
    """
    if output.exists():
        return
    torch.set_num_threads(1)
    quiet_transformers()
    begin, texts = time.perf_counter(), few_texts(open_suite(suite), N_TEXTS)
    trainee = Trainee(Averaging(open_library(library)), draw_probe(texts), settings)
    curriculum = make_curriculum(texts, n_validation=N_VALIDATION, seed=settings.seed)
    with progress_bar("training", settings.n_steps, "steps") as progress:

        def watch(told: MetaStep | Validation) -> None:
            if isinstance(told, MetaStep):
                progress(1, f"loss {told.loss:.3f}, entropy {told.entropy:.2f}")

        outcome = meta_train(trainee, curriculum, output.with_name(f"{output.name}.work"), watch=watch)
    record = {
        "suite": texts.name,
        "suite_digest": texts.digest,
        "steps": outcome.n_steps,
        "settings": settings.to_dict(),
        "validation": vars(outcome.validation),
        "seconds": round(time.perf_counter() - begin, 1),
    }
    write_router(output, trainee.finish(record))


def main() -> None:
    """One router."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", type=Path, required=True, help="folder that build.py wrote")
    parser.add_argument("--library", type=Path, required=True, help="folder that sources.py wrote")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder of the router")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    train(options.library, options.suite, options.out, MetaSettings(n_steps=N_STEPS, seed=options.seed))


if __name__ == "__main__":
    main()
