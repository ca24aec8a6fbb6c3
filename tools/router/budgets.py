"""Train the shipped router's experts for budgets: python tools/router/budgets.py -o ROUTER [--from ROUTER].

Units are priced by multiply-accumulates, and 1 % of the base for each active module. Weights of sources and experts,
and which units an expert may open, stay as they are. Goes on where it was stopped.
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
from smatter.devices.unmeasured import product_profile
from smatter.library.library import open_library
from smatter.live.mixture import LiveMixture
from smatter.route.store import read_router, write_router
from smatter.settings.budgets import BudgetTraining
from smatter.tasks.open import SHIPPED, open_suite
from smatter.train.budgets import train_budgets


def main() -> None:
    """One router."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder of the router")
    parser.add_argument("--from", dest="existing", type=Path, default=SHIPPED / "signs-router", help="where to begin")
    parser.add_argument("--steps", type=int, default=BudgetTraining.n_steps)
    parser.add_argument("--workers", type=int, default=1, help="processes that prepare tasks meanwhile")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.out.exists():
        return
    torch.set_num_threads(1)
    quiet_transformers()
    library, begin = open_library(SHIPPED / "signs-library"), time.perf_counter()
    how = BudgetTraining(n_steps=options.steps, seed=options.seed)
    with progress_bar("training for budgets", how.n_steps, "steps") as progress:
        trained = train_budgets(
            library,
            open_suite("signs"),
            replace(read_router(options.existing), posterior=None),  # it would be of other experts
            [product_profile(LiveMixture(library))],
            how,
            shifts=(WEAR,),
            variants=list(RENDERINGS.values()),
            work=options.out.with_name(f"{options.out.name}.work"),
            workers=options.workers,
            progress=progress,
        )
    told = {**trained.record["budgets"], "seconds": round(time.perf_counter() - begin, 1)}
    write_router(options.out, replace(trained, record={**trained.record, "budgets": told}))


if __name__ == "__main__":
    main()
