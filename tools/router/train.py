"""Train the router of Signs: python tools/router/train.py -o ROUTER [--seed N] [--without RENDERING].

Its experts learn the renderings that no source has seen; one can be left out, to see what they are worth on it. A fifth
of their shared change is open for every task (benchmarks/common_study.py says why). Goes on where it was stopped.
"""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "common"))

import torch
from renderings import RENDERINGS, WEAR

from smatter.backbones.gate import quiet_transformers
from smatter.cli.output import progress_bar
from smatter.route.store import write_router
from smatter.settings.training import MetaSettings, RouterSettings
from smatter.tasks.open import SHIPPED
from smatter.train.router import train_router

LIBRARY = SHIPPED / "signs-library"
N_STEPS = 1300
COMMON_SHARE = 0.2


def settings(seed: int = 0, n_steps: int = N_STEPS) -> MetaSettings:
    """How the shipped router is trained: an expert for each rendering, none with room for everything."""
    made_of = RouterSettings(n_experts=len(RENDERINGS), common_share=COMMON_SHARE)
    return MetaSettings(made_of, n_steps=n_steps, delta_rate=1.5e-3, expert_share=0.1, seed=seed)


def train(output: Path, seed: int = 0, without: str = "", n_steps: int = N_STEPS) -> None:
    """Train a router, or go on; nothing to do where it is there.

    Args:
        output: its folder.
        seed: of everything.
        without: a rendering that it never sees.
        n_steps: of the training.
    """
    if output.exists():
        return
    torch.set_num_threads(1)
    quiet_transformers()
    how, begin = settings(seed, n_steps), time.perf_counter()
    variants = [rendering for name, rendering in RENDERINGS.items() if name != without]
    work = output.with_name(f"{output.name}.work")
    with progress_bar("training", how.n_steps, "steps") as progress:
        trained = train_router(
            LIBRARY, "signs", how, shifts=(WEAR,), variants=variants, work=work, workers=1, progress=progress
        )
    seconds = {"seconds": round(time.perf_counter() - begin, 1)}
    write_router(output, replace(trained, record={**trained.record, **seconds}))


def main() -> None:
    """One router."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder of the router")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without", choices=list(RENDERINGS), default="", help="leave out this rendering")
    options = parser.parse_args()
    train(options.out, options.seed, options.without)


if __name__ == "__main__":
    main()
