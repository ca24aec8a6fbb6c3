"""`smatter demo`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from smatter.cli.output import Json, print_table, progress_bar, say, show
from smatter.errors import AlreadyExists


def demo(
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="OUT", help="Where the tasks, the library and the page go.")
    ] = Path("smatter-demo"),
    seed: Annotated[int, typer.Option(min=0, help="Of the tasks.")] = 0,
    as_json: Json = False,
) -> None:
    """Adapt the shipped library to tasks that nobody trained on, and show what happened on one page."""
    from smatter.demo.place import is_demo
    from smatter.files.writing import check_free

    if output.is_dir() and any(output.iterdir()) and not is_demo(output):
        raise AlreadyExists(
            f"{output} holds something else than an earlier demonstration as it was written; give another place with -o"
        )
    check_free(output, replace=is_demo(output))

    import torch

    from smatter.demo.story import TASKS, run_demo

    torch.set_num_threads(1)
    with progress_bar("tasks", len(TASKS), "steps") as progress:
        stories = run_demo(output, seed, progress)

    def text() -> None:
        rows = [[name, *(f"{share:.0%}" for share in story.headline.values())] for name, story in stories.items()]
        print_table(["named correctly", *next(iter(stories.values())).headline], rows)
        print_table(["task", "corrected by"], [[name, story.corrected_by] for name, story in stories.items()])
        say(f"see {output / 'index.html'}; the library is {output / 'library'}")

    data = {"tasks": {name: asdict(story) for name, story in stories.items()}, "page": str(output / "index.html")}
    show(data, as_json, text)
