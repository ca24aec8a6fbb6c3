"""`smatter adapt` and `smatter solve`: labelled examples to a recipe."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from smatter.cli.output import Json, check_new_file, human_size, progress_bar, show, table
from smatter.errors import InvalidSettings

if TYPE_CHECKING:
    from smatter.adaptation.adapt import Adapted
    from smatter.adaptation.modes import ModeSettings
    from smatter.adaptation.solver import SolverSettings
    from smatter.library.diagnostics import Diagnostics

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
        help="Of evidence routing, in standard errors: lower trusts the best source more. By default 1, less for many."
    ),
]
MaxSources = Annotated[
    int | None, typer.Option(metavar="K", min=1, help="The most sources with weight: those that explain best.")
]
Diagnosed = Annotated[bool, typer.Option("--diagnostics", help="Say what the model is made of.")]
Report = Annotated[
    Path | None, typer.Option(metavar="PAGE", help="Write that as an HTML page with pictures.", show_default=False)
]
Mode = Literal["no-adapt", "gradient-free", "gradient-based"]
Tuned = Literal["experts", "mask", "modules"]
Head = Literal["prototype", "ridge", "logistic", "linear"]
HeadOption = Annotated[
    Head, typer.Option("--head", help="How classes are told apart; linear is the checkpoints' own classifier.")
]


def adapt(
    folder: Folder,
    support: Examples,
    output: Output = None,
    router: Annotated[
        Path | None, typer.Option(metavar="ROUTER", help="A router that `smatter train` wrote; evidence without it.")
    ] = None,
    mode: Annotated[
        Mode, typer.Option("--mode", help="Weights as they are, or refined in weights or in a residual.")
    ] = "no-adapt",
    evidence: Annotated[
        bool, typer.Option("--evidence/--no-evidence", help="Tell the router how each source does: a pass each.")
    ] = True,
    max_sources: MaxSources = None,
    steps: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="Steps of a refinement.")] = 2,
    tune: Annotated[Tuned, typer.Option("--tune", help="What gradient steps change.")] = "experts",
    temperature: Temperature = None,
    head: HeadOption = "prototype",
    private: Annotated[
        float | None, typer.Option(metavar="EPSILON", help="Make the weights differentially private, delta 1e-5.")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keep the result there, and find it again for the same task.")
    ] = None,
    diagnostics: Diagnosed = False,
    report: Report = None,
    replace: Replace = False,
    as_json: Json = False,
) -> None:
    """Weight the sources for a few labelled examples: by a trained router, or by how well each explains them."""
    from smatter.adaptation.modes import ModeSettings

    settings = ModeSettings(mode, evidence, max_sources, steps, tune=tune, temperature=temperature, epsilon=private)
    adapted = _adapted(folder, support, output, report, replace, settings, head, router, cache)
    _show(folder, output, report, adapted, diagnostics, as_json)


def solve(
    folder: Folder,
    support: Examples,
    output: Output = None,
    per_module: Annotated[bool, typer.Option("--per-module", help="Weights for each module apart.")] = False,
    max_sources: MaxSources = None,
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
    diagnostics: Diagnosed = False,
    report: Report = None,
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
    adapted = _adapted(folder, support, output, report, replace, settings, head)
    _show(folder, output, report, adapted, diagnostics, as_json)


def _adapted(
    folder: Path,
    support: Path,
    output: Path | None,
    report: Path | None,
    replace: bool,
    settings: "ModeSettings | SolverSettings",
    head: Head,
    router: Path | None = None,
    cache: Path | None = None,
) -> "Adapted":
    """Check everything that is cheap first, then work, then write."""
    from smatter.adaptation.modes import ModeSettings
    from smatter.files.writing import write_file
    from smatter.library.library import open_library
    from smatter.library.recipes import is_recipe
    from smatter.report.page import is_page
    from smatter.tasks.support import read_support

    if output is not None:
        check_new_file(output, replace, lambda: output.is_file() and is_recipe(output), "recipe")
    if report is not None:
        if output is not None and report.resolve() == output.resolve():
            raise InvalidSettings(f"recipe and page cannot both be {report}: give two names")
        check_new_file(report, replace, lambda: is_page(report), "page of Smatter's")
        if isinstance(settings, ModeSettings) and settings.epsilon is not None:
            raise InvalidSettings("a page tells more than private weights may: leave out --report or --private")
    library = open_library(folder)
    examples = read_support(support)

    import torch
    from transformers.utils import logging

    from smatter.adaptation.adapt import adapt
    from smatter.report.adapted import adapted_page
    from smatter.route.store import read_router

    torch.set_num_threads(1)
    logging.set_verbosity_error()
    trained = None if router is None else read_router(router)
    with progress_bar("checking files", sum(source.n_bytes for source in library.manifest.sources)) as progress:
        library.verify(progress=progress)
    with progress_bar("weighing", settings.n_units(len(library.names)), "steps") as progress:
        adapted = adapt(library, examples, trained, settings, progress, head, cache)
    if output is not None:
        adapted.save(output)
    if report is not None:
        write_file(report, adapted_page(adapted, f"A mixture of the sources of {folder.resolve().name}").encode())
    return adapted


def _show(
    folder: Path, output: Path | None, report: Path | None, adapted: "Adapted", diagnostics: bool, as_json: bool
) -> None:
    mixture, evidence = adapted.mixture, adapted.evidence
    is_private = adapted.routed is not None and adapted.routed.is_private  # nothing else may then be told
    accuracy = math.nan if is_private else adapted.held_out_accuracy
    mean = dict.fromkeys(adapted.sources, 0.0) | mixture.mean_weights
    losses = dict(zip(evidence.sources, evidence.losses, strict=True)) if evidence else {}
    data: dict[str, Any] = {
        "output": None if output is None else str(output),
        "report": None if report is None else str(report),
        "classes": list(adapted.class_names),
        "weights": mean,
        "losses": losses,
        "best_single_source": evidence.best if evidence else None,
        "loss": None if is_private else adapted.loss,
        "head": adapted.head,
        "held_out_accuracy": None if math.isnan(accuracy) else accuracy,
        "corrected_parameters": adapted.recipe.residual.n_nonzero if adapted.recipe.residual else 0,
    }
    if mixture.modules:
        rows = (dict(zip(mixture.sources, row, strict=True)) for row in mixture.rows)
        data["weights_per_module"] = dict(zip(mixture.modules, rows, strict=True))
    data |= _of_router(adapted) | _of_solver(adapted)
    if diagnostics:
        data["diagnostics"] = vars(adapted.diagnostics)

    def text() -> None:
        order = sorted(mean, key=lambda name: (-mean[name], losses.get(name, 0.0)))
        weight = "mean weight" if mixture.modules else "weight"
        if losses:
            table(["source", weight, "leave-one-out loss"], [[n, f"{mean[n]:.4f}", f"{losses[n]:.4f}"] for n in order])
        else:
            table(["source", weight], [[name, f"{mean[name]:.4f}"] for name in order])
        if "likeness" in data:
            likest = sorted(data["likeness"].items(), key=lambda pair: -pair[1])[:3]
            print("like " + ", ".join(f"{name} {share:.0%}" for name, share in likest))
        path = data.get("steps") or [data["loss"]]
        if len(path) > 1:
            print(f"loss {path[0]:.4f} at the start, {path[-1]:.4f} after {len(path) - 1} steps")
        elif evidence:
            print(f"loss of the mixture {data['loss']:.4f}, of {evidence.best} alone {losses[evidence.best]:.4f}")
        for line in (*data.get("advice", ()), *data.get("notes", ())):
            print(line)
        if data["corrected_parameters"]:
            print(f"{data['corrected_parameters']} parameters corrected")
        if diagnostics:
            _tell(adapted.diagnostics)
        if data["held_out_accuracy"] is not None:
            print(f"the {adapted.head} head recognises {accuracy:.0%} of examples that it has not seen")
        if report is not None:
            print(f"wrote {report}; open it in a browser")
        if output is None:
            print("no recipe was written; give -o RECIPE to keep this")
        else:
            print(f"wrote {output} ({human_size(output.stat().st_size)}); to build the model:")
            print(f"  smatter compose {folder} --recipe {output} -o OUT")

    show(data, as_json, text)


def _tell(found: "Diagnostics") -> None:
    """Diagnostics for people."""
    print(f"{found.effective_sources:.1f} sources in effect; in parameters the mixture is nearest to {found.nearest}")
    if found.unsteadiness is not None:
        print(f"with other examples {found.unsteadiness:.0%} of the weight would move")
    for module, share in found.corrected.items():
        print(f"  {module}: {share:.1%} corrected")


def _of_router(adapted: "Adapted") -> dict[str, Any]:
    """What a router said beside the weights."""
    routed = adapted.routed
    if routed is None:
        return {}
    data: dict[str, Any] = {"notes": list(routed.notes), "steps": list(routed.losses), "path": routed.path}
    if routed.likeness:
        data |= {"likeness": routed.likeness, "experts": list(routed.experts)}
    return data


def _of_solver(adapted: "Adapted") -> dict[str, Any]:
    """How the solver went."""
    solution = adapted.solution
    if solution is None:
        return {}
    endings = [ending for ending in (solution.mixture_solution, solution.residual_solution) if ending is not None]
    return {
        "steps": list(solution.losses),
        "advice": [ending.advice for ending in endings],
        "seconds": solution.seconds,
    }
