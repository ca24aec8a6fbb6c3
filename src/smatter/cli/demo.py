"""`smatter demo`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from smatter.cli.output import Json, progress_bar, show, table


def demo(
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="OUT", help="Where the library and the page go.")
    ] = Path("smatter-demo"),
    seed: Annotated[int, typer.Option(min=0, help="Of all randomness.")] = 0,
    as_json: Json = False,
) -> None:
    """Train four small checkpoints, shelve them, mix them, and show what happened on one page."""
    import torch
    from transformers.utils import logging

    from smatter.demo.shapes import STYLES
    from smatter.demo.story import N_STEPS, is_demo, run
    from smatter.library.writing import check_free

    check_free(output, replace=is_demo(output))

    torch.set_num_threads(1)
    logging.disable_progress_bar()
    if not as_json:
        print("training a base and three specialists, under a minute on one core ...")
    with progress_bar("training", N_STEPS, in_bytes=False) as progress:
        outcome = run(output, seed, progress)

    def text() -> None:
        rows = [[name, *(f"{100 * s[style]:.1f} %" for style in STYLES)] for name, s in outcome.by_model.items()]
        table(["named correctly", *STYLES], rows)
        print(f"one mixture takes {outcome.milliseconds:.1f} ms to compose into memory")
        print(f"see {output / 'index.html'}; the library is {output / 'library'}")

    data = asdict(outcome) | {"folder": str(outcome.folder), "page": str(output / "index.html")}
    show(data, as_json, text)
