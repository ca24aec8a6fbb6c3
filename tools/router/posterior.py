"""Give the router of Signs a posterior over its routings: python tools/router/posterior.py --work DIR [-o ROUTER].

It learns from tasks like those that the router was trained on. Tables are kept in DIR, so that it goes on where it was
stopped; then `smatter calibrate` sets thresholds (the Makefile has the command).
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "common"))

import torch
from renderings import RENDERINGS, WEAR

from smatter.backbones.gate import quiet_transformers
from smatter.cli.output import progress_bar
from smatter.library.library import open_library
from smatter.route.store import read_router, write_router
from smatter.tasks.open import SHIPPED, open_suite
from smatter.train.routings import Learning, learn_posterior

LIBRARY, ROUTER = SHIPPED / "signs-library", SHIPPED / "signs-router"
LEARNING = Learning(n_tables=400)


def main() -> None:
    """Replace a router by itself with a posterior."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--out", type=Path, default=ROUTER, help="folder of the router")
    parser.add_argument("--work", type=Path, required=True, help="where tables are kept")
    options = parser.parse_args()
    torch.set_num_threads(1)
    quiet_transformers()
    with progress_bar("tables", 1, "share", is_long=True) as progress:
        decided = learn_posterior(
            open_library(LIBRARY), open_suite("signs"), read_router(options.out), LEARNING,
            shifts=(WEAR,), variants=list(RENDERINGS.values()), work=options.work, progress=progress,
        )  # fmt: skip
    write_router(options.out, decided, replace=True)
    assert decided.posterior is not None
    print(decided.posterior.record["held_out"])


if __name__ == "__main__":
    main()
