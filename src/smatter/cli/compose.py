"""`smatter compose`: weights or a recipe to a checkpoint folder, a recipe file, or mergekit's YAML."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from smatter.backbones.gate import quiet_transformers
from smatter.cli.output import Json, check_new_file, human_size, progress_bar, say, show
from smatter.errors import InvalidSettings, InvalidSupport, InvalidWeights

if TYPE_CHECKING:
    from smatter.compose.mixture import Mixture
    from smatter.compose.recipe import Recipe
    from smatter.library.library import Library

Product = Literal["folder", "recipe", "mergekit"]
MERGEKIT_SUFFIXES = (".yaml", ".yml")

Folder = Annotated[Path, typer.Argument(metavar="LIB", help="The library's folder.")]
Weights = Annotated[
    str | None,
    typer.Option(
        metavar="A=.7,B=.3", help="Weights on the simplex, or a .json file: {source: weight}, or that per module."
    ),
]
Arithmetic = Annotated[
    str | None,
    typer.Option(metavar="A=1,B=.5", help="Extrapolate: base + scale * the sum of these shares of task vectors."),
]
Scale = Annotated[float, typer.Option(help="Factor of all task vectors, with --task-arithmetic.")]
RecipeFile = Annotated[
    Path | None,
    typer.Option("--recipe", metavar="FILE", help="A recipe (.safetensors), or a mergekit merge (.yaml)."),
]
Match = Annotated[
    Path | None,
    typer.Option(
        metavar="INPUTS",
        help="With --weights: correct the means and deviations of activations to those of the sources on a folder of "
        "pictures, or a .csv, .jsonl or .txt file of texts.",
    ),
]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="OUT", help="Where to; without it the plan is printed.")
]
As = Annotated[Product, typer.Option("--as", help="Write a Hugging Face folder, a recipe file, or a mergekit YAML.")]
Router = Annotated[
    Path | None, typer.Option(metavar="ROUTER", help="The router whose experts the recipe opens, if LIB lacks them.")
]
SelfContained = Annotated[
    bool, typer.Option("--self-contained", help="With --as recipe: expand experts; larger, and it needs no router.")
]
Verify = Annotated[
    bool, typer.Option("--verify", help="Exit with 1, and write nothing, unless the bits are those the recipe pins.")
]
Threads = Annotated[int, typer.Option(min=1, max=256, help="Workers; the result does not depend on it.")]
Replace = Annotated[bool, typer.Option("--replace", help="Exchange an existing OUT in one step.")]


def compose(
    folder: Folder,
    weights: Weights = None,
    task_arithmetic: Arithmetic = None,
    scale: Scale = 1.0,
    recipe: RecipeFile = None,
    match: Match = None,
    output: Output = None,
    product: As = "folder",
    router: Router = None,
    self_contained: SelfContained = False,
    verify: Verify = False,
    threads: Threads = 1,
    replace: Replace = False,
    as_json: Json = False,
) -> int:
    """Mix the sources of a library into one checkpoint."""
    from smatter.library.library import open_library

    library = open_library(folder)
    what = _what(library, weights, task_arithmetic, scale, recipe)
    what = _with_experts(library, what, product, router, self_contained)
    plan = library.plan(what)
    if output is not None and product != "folder":
        _check_output(output, product, replace)
    if match is not None:
        what = _matched(library, what, match, product)
        plan = library.plan(what)
    needed = {*plan.sources, library.manifest.base}
    with progress_bar("checking files", sum(library.manifest.source(name).n_bytes for name in needed)) as progress:
        library.verify(tuple(needed), progress)
    if verify and not _has_its_bits(library, what):
        return 1
    if output is None:
        show(plan.to_dict(), as_json, lambda: say(*str(plan).splitlines()))
        return 0
    _write(library, what, plan.n_bytes, output, product, threads=threads, replace=replace)
    _tell(output, product, None if match is None else plan.residual.n_nonzero, as_json)
    return 0


def _tell(output: Path, product: Product, n_corrected: int | None, as_json: bool) -> None:
    size = sum(file.stat().st_size for file in output.rglob("*")) if output.is_dir() else output.stat().st_size
    data = {"output": str(output), "as": product, "n_bytes": size}
    told = f"wrote {output} ({product}, {human_size(size)})"
    if n_corrected is not None:
        data["n_corrected"] = n_corrected
        told += f"; {n_corrected} parameters corrected to match the sources' statistics"
    show(data, as_json, lambda: say(told))


def _matched(library: "Library", what: "Mixture | Recipe", where: Path, product: Product) -> "Recipe":
    """The mixture with its statistics matched on some inputs; what is cheap is checked before torch is imported."""
    from smatter.compose.recipe import Recipe
    from smatter.tasks.inputs import count_inputs, read_inputs

    if isinstance(what, Recipe) or what.rule != "simplex":
        raise InvalidSettings("--match corrects a mixture of weights on the simplex: say --weights")
    if product == "mergekit":
        raise InvalidSettings("mergekit knows no corrections: with --match, write a folder or a recipe")
    count_inputs(where)
    values = []
    for each in read_inputs(where):
        if each.value is None:
            raise InvalidSupport(each.error)
        values.append(each.value)

    import torch

    from smatter.live.matching import match_mixture

    torch.set_num_threads(1)
    quiet_transformers()
    return match_mixture(library, what, values)


def _has_its_bits(library: "Library", what: "Mixture | Recipe") -> bool:
    """Whether a recipe composes what it pins."""
    from smatter.compose.recipe import Recipe

    pins = what.notes.pins if isinstance(what, Recipe) else None
    if not isinstance(what, Recipe) or pins is None or pins.result is None:
        raise InvalidSettings("there is nothing to verify by: give a recipe that `adapt` or `--as recipe` wrote")
    found = library.result_digest(what)
    if found != pins.result:
        print(f"smatter: other bits than the recipe pins: {found[:12]}, not {pins.result[:12]}", file=sys.stderr)
    return found == pins.result


def _write(
    library: "Library", what: "Mixture | Recipe", n_bytes: int, output: Path, product: Product, **options: Any
) -> None:
    if product == "folder":
        from smatter.library.export import export

        with progress_bar("composing", n_bytes) as progress:
            export(library, what, output, progress=progress, **options)
    elif product == "recipe":
        from smatter.compose.recipe import Recipe
        from smatter.library.recipes import write_recipe

        write_recipe(output, library.pinned(what if isinstance(what, Recipe) else library.recipe(what)))
    else:
        from smatter.files.writing import write_file
        from smatter.library.mergekit import write_merge

        write_file(output, write_merge(library, what).encode())


def _with_experts(
    library: "Library", what: "Mixture | Recipe", product: Product, router: Path | None, self_contained: bool
) -> "Mixture | Recipe":
    """Let the library know a router's experts, and expand them in a recipe, where that is asked for."""
    from smatter.compose.mixture import Mixture
    from smatter.library.banks import router_bank

    if router is not None:
        library.lend(router_bank(router))
    if not self_contained:
        return what
    if isinstance(what, Mixture) or product != "recipe":
        raise InvalidSettings("--self-contained expands the experts of a recipe: say --recipe FILE --as recipe")
    return library.self_contained(what)


def _check_output(output: Path, product: Product, replace: bool) -> None:
    """Overwrite nothing but an older product of the same kind, and that only if told so."""
    from smatter.library.recipes import is_recipe

    def is_ours() -> bool:
        return is_recipe(output) if product == "recipe" else output.is_file() and output.suffix in MERGEKIT_SUFFIXES

    check_new_file(output, replace, is_ours, f"{product} of Smatter's")


def _what(
    library: "Library", weights: str | None, task_arithmetic: str | None, scale: float, recipe: Path | None
) -> "Mixture | Recipe":
    """The one thing that was asked for."""
    from smatter.compose.mixture import Mixture, read_weights
    from smatter.library.mergekit import read_merge
    from smatter.library.recipes import read_recipe

    if sum(given is not None for given in (weights, task_arithmetic, recipe)) != 1:
        raise typer.BadParameter("say one of --weights, --task-arithmetic, --recipe")
    if weights is not None:
        if weights.endswith(".json"):
            return _mixture_file(Path(weights))
        return Mixture.of(read_weights(weights))
    if task_arithmetic is not None:
        return Mixture.task_arithmetic(library.manifest.base, read_weights(task_arithmetic), scale)
    assert recipe is not None
    return read_merge(recipe, library) if recipe.suffix in MERGEKIT_SUFFIXES else read_recipe(recipe)


def _mixture_file(path: Path) -> "Mixture":
    from smatter.compose.mixture import Mixture
    from smatter.files.reading import read_small_json

    data = read_small_json(path)
    rows = list(data.values()) if isinstance(data, dict) else []
    if rows and all(_is_weight(value) for value in rows):
        return Mixture.of(data)
    if rows and all(isinstance(row, dict) and row and all(_is_weight(value) for value in row.values()) for row in rows):
        return Mixture.per_module(data)
    raise InvalidWeights(f"{path} is neither {{source: weight}} nor {{module: {{source: weight}}}}; write it so")


def _is_weight(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < sys.float_info.max
