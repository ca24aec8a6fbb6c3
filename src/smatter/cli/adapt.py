"""`smatter adapt` and `smatter solve`: labelled examples to a recipe."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from smatter.cli.output import Json, human_size, progress_bar, show, table
from smatter.errors import AlreadyExists, NotFound

if TYPE_CHECKING:
    from smatter.adaptation.adapt import Adapted
    from smatter.adaptation.solver import SolverSettings

Folder = Annotated[Path, typer.Argument(metavar="LIB", help="The library's folder.", show_default=False)]
Examples = Annotated[
    Path,
    typer.Argument(
        metavar="SUPPORT",
        help="Labelled examples: a folder of class folders with images, or a .csv or .jsonl file of text and label.",
        show_default=False,
    ),
]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="RECIPE", help="The recipe file; without it none is written.")
]
Replace = Annotated[bool, typer.Option("--replace", help="Overwrite an existing recipe.")]
Temperature = Annotated[
    float | None,
    typer.Option(
        help="Of evidence routing: lower trusts the best source more. By default 0.2, lower above four sources."
    ),
]
Head = Literal["prototype", "ridge", "logistic", "linear"]
HeadOption = Annotated[
    Head, typer.Option("--head", help="How classes are told apart; linear is the checkpoints' own classifier.")
]


def adapt(
    folder: Folder,
    support: Examples,
    output: Output = None,
    temperature: Temperature = None,
    head: HeadOption = "prototype",
    replace: Replace = False,
    as_json: Json = False,
) -> None:
    """Weight the sources by how well each explains a few labelled examples; one forward pass each."""
    from smatter.adaptation.evidence import check_temperature

    check_temperature(temperature)
    _show(folder, output, _adapted(folder, support, output, replace, None, temperature, head), as_json)


def solve(
    folder: Folder,
    support: Examples,
    output: Output = None,
    per_module: Annotated[bool, typer.Option("--per-module", help="Weights for each module apart.")] = False,
    max_sources: Annotated[
        int | None, typer.Option(metavar="K", min=1, help="The most sources with weight: those that explain best.")
    ] = None,
    elements: Annotated[
        int | None, typer.Option(metavar="K", min=1, help="Add a residual that corrects this many parameters.")
    ] = None,
    modules: Annotated[
        int | None, typer.Option(metavar="K", min=1, help="Add a residual that corrects this many modules.")
    ] = None,
    steps: Annotated[
        int, typer.Option(metavar="N", min=0, max=100_000, help="Steps, for the weights as well as for a residual.")
    ] = 10,
    temperature: Temperature = None,
    head: HeadOption = "prototype",
    replace: Replace = False,
    as_json: Json = False,
) -> None:
    """Find the weights, and a sparse residual if asked for, that fit a few labelled examples best."""
    from smatter.adaptation.solver import SolverSettings

    settings = SolverSettings(
        temperature=temperature,
        per_module=per_module,
        max_sources=max_sources,
        n_steps=steps,
        n_elements=elements,
        n_modules=modules,
        n_residual_steps=steps,
    )
    _show(folder, output, _adapted(folder, support, output, replace, settings, temperature, head), as_json)


def _adapted(
    folder: Path,
    support: Path,
    output: Path | None,
    replace: bool,
    settings: "SolverSettings | None",
    temperature: float | None,
    head: Head,
) -> "Adapted":
    """Check everything that is cheap first, then work, then write."""
    from smatter.library.library import open_library
    from smatter.tasks.support import read_support

    if output is not None:
        _check_output(output, replace)
    library = open_library(folder)
    examples = read_support(support)

    import torch
    from transformers.utils import logging

    from smatter.adaptation.adapt import adapt

    torch.set_num_threads(1)
    logging.set_verbosity_error()
    with progress_bar("checking files", sum(source.n_bytes for source in library.manifest.sources)) as progress:
        library.verify(progress=progress)
    n_sources = len(library.names)
    n_units = n_sources if settings is None else settings.n_units(n_sources)
    label = "weighing" if settings is None else "solving"
    with progress_bar(label, n_units, in_bytes=False) as progress:
        adapted = adapt(library, examples, settings or False, temperature, progress=progress, head=head)
    if output is not None:
        adapted.save(output)
    return adapted


def _check_output(output: Path, replace: bool) -> None:
    from smatter.library.recipes import is_recipe

    if output.exists() or output.is_symlink():
        if not (output.is_file() and is_recipe(output)):
            raise AlreadyExists(f"{output} exists and is no recipe; choose another name")
        if not replace:
            raise AlreadyExists(f"{output} exists already; choose another name, or say --replace")
    if not output.parent.is_dir():
        raise NotFound(f"the folder {output.parent} does not exist; create it first")


def _show(folder: Path, output: Path | None, adapted: "Adapted", as_json: bool) -> None:
    mixture, evidence, solution = adapted.mixture, adapted.evidence, adapted.solution
    accuracy = adapted.held_out_accuracy
    mean = {
        name: sum(row[column] for row in mixture.rows) / len(mixture.rows)
        for column, name in enumerate(mixture.sources)
    }
    losses = dict(zip(evidence.sources, evidence.losses, strict=True))
    data: dict[str, Any] = {
        "output": None if output is None else str(output),
        "classes": list(adapted.class_names),
        "weights": {name: mean.get(name, 0.0) for name in losses},
        "losses": losses,
        "best_single_source": evidence.best,
        "loss": adapted.loss,
        "head": adapted.head,
        "held_out_accuracy": None if math.isnan(accuracy) else accuracy,
    }
    if mixture.modules:
        rows = (dict(zip(mixture.sources, row, strict=True)) for row in mixture.rows)
        data["weights_per_module"] = dict(zip(mixture.modules, rows, strict=True))
    if solution is not None:
        endings = [ending for ending in (solution.mixture_solution, solution.residual_solution) if ending is not None]
        data["steps"] = list(solution.losses)
        data["advice"] = [ending.advice for ending in endings]
        data["corrected_parameters"] = solution.residual.n_nonzero if solution.residual else 0
        data["seconds"] = solution.seconds

    def text() -> None:
        order = sorted(losses, key=lambda name: (-mean.get(name, 0.0), losses[name]))
        rows = [[name, f"{mean.get(name, 0.0):.4f}", f"{losses[name]:.4f}"] for name in order]
        table(["source", "mean weight" if mixture.modules else "weight", "leave-one-out loss"], rows)
        if solution is None:
            print(f"loss of the mixture {adapted.loss:.4f}, of {evidence.best} alone {losses[evidence.best]:.4f}")
        else:
            print(
                f"loss {solution.losses[0]:.4f} at the start, {solution.losses[-1]:.4f} after {solution.seconds:.1f} s"
            )
            for line in data["advice"]:
                print(line)
            if solution.residual:
                print(f"{solution.residual.n_nonzero} parameters corrected")
        if data["held_out_accuracy"] is not None:
            print(
                f"the {adapted.head} head recognises {adapted.held_out_accuracy:.0%} of examples that it has not seen"
            )
        if output is None:
            print("nothing was written; give -o RECIPE to keep this")
        else:
            print(f"wrote {output} ({human_size(output.stat().st_size)}); to build the model:")
            print(f"  smatter compose {folder} --recipe {output} -o OUT")

    show(data, as_json, text)
