"""`smatter adapt`, `smatter solve` and `smatter methods`: labelled examples to a recipe."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from smatter import methods
from smatter.backbones.gate import quiet_transformers
from smatter.cli.output import (
    Json,
    check_new_file,
    check_page,
    human_size,
    pairs,
    print_table,
    progress_bar,
    say,
    shell,
    show,
    warn,
)
from smatter.cli.places import library_before
from smatter.cli.refit import recipe_to_refit, share_out, tell_loss, what_is_lost
from smatter.errors import InvalidSettings, NotFound
from smatter.settings import MAX_STEPS

if TYPE_CHECKING:
    from smatter.adapted import Adapted
    from smatter.compose.recipe import Recipe
    from smatter.library.diagnostics import Diagnostics

Folder = Annotated[Path, typer.Argument(metavar="LIB", help="The library's folder.", show_default=False)]
EXAMPLES = "Labelled examples: a folder of class folders with images, or a .csv or .jsonl file of text and label."
Support = Annotated[Path, typer.Argument(metavar="SUPPORT", help=EXAMPLES, show_default=False)]
MaybeSupport = Annotated[Path | None, typer.Argument(metavar="SUPPORT", help=EXAMPLES, show_default=False)]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="RECIPE", help="The recipe file; without it none is written.")
]
Way = Annotated[
    str | None,
    typer.Option(
        "--method",
        metavar="NAME",
        help="How to adapt: a name that `smatter methods` lists. By default router with --router, else evidence.",
        show_default=False,
    ),
]
Router = Annotated[Path | None, typer.Option(metavar="ROUTER", help="A router that `smatter train` wrote.")]
Told = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="A setting of the method: `smatter methods` lists them. Repeatable."
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        help="Standard errors by which a source may be worse before its weight falls by e. Default: 1 for up to four "
        "sources, less for more.",
        show_default=False,
    ),
]
MaxSources = Annotated[
    int | None, typer.Option(metavar="K", min=1, help="The most sources with weight: those that explain best.")
]
MixOption = Annotated[
    Literal["weights", "predictions", "both"] | None,
    typer.Option(
        "--mix",
        help="Average the sources' weights [weights], their predictions, or those and the mixed network's.",
        show_default=False,
    ),
]
PassesOption = Annotated[
    str | None,
    typer.Option("--passes", metavar="K", help="With --mix: the most networks that an input passes through."),
]
BranchOption = Annotated[
    str | None,
    typer.Option("--branch", metavar="MODULE", help="With --mix: share the mixed weights, and a pass, up to here."),
]
Head = Annotated[
    Literal["prototype", "ridge", "logistic", "linear"] | None,
    typer.Option(
        "--head", help="How classes are told apart [prototype]; linear is the checkpoints' own.", show_default=False
    ),
]
Refit = Annotated[
    Path | None,
    typer.Option("--refit", metavar="RECIPE", help="Fit a task again, as this recipe was, on the sources of today."),
]
Renormalise = Annotated[
    bool, typer.Option("--renormalise", help="With --refit and no SUPPORT: share out the weight of lost sources.")
]
SelfContained = Annotated[
    bool, typer.Option("--self-contained", help="Expand experts in the recipe: larger, and it needs no router.")
]
Queries = Annotated[
    Path | None,
    typer.Option(
        "--queries", metavar="INPUTS", help="Inputs without labels, to be named later: prototypes learn from them."
    ),
]
CacheFolder = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Keep the result there, and find it again for the same task.")
]
Diagnosed = Annotated[bool, typer.Option("--diagnostics", help="Say what the model is made of.")]
Page = Annotated[
    Path | None, typer.Option("--report", metavar="PAGE", help="Write an HTML page on the model, with pictures.")
]
Replace = Annotated[bool, typer.Option("--replace", help="Overwrite an existing recipe or page.")]
PerModule = Annotated[bool, typer.Option("--per-module", help="Weights for each module apart.")]
NElements = Annotated[
    int | None, typer.Option(metavar="K", min=1, help="Add a residual that corrects this many parameters.")
]
NModules = Annotated[
    int | None, typer.Option(metavar="K", min=1, help="Add a residual that corrects this many modules.")
]
NSteps = Annotated[
    int, typer.Option(metavar="N", min=0, max=MAX_STEPS, help="Steps, for the weights as well as for a residual.")
]


def adapt(
    folder: Folder,
    support: MaybeSupport = None,
    output: Output = None,
    method: Way = None,
    router: Router = None,
    told: Told = None,
    mix: MixOption = None,
    passes: PassesOption = None,
    branch: BranchOption = None,
    head: Head = None,
    queries: Queries = None,
    cache: CacheFolder = None,
    refit: Refit = None,
    renormalise: Renormalise = False,
    self_contained: SelfContained = False,
    diagnostics: Diagnosed = False,
    report: Page = None,
    replace: Replace = False,
    as_json: Json = False,
) -> None:
    """Weigh the sources for a few labelled examples: by a trained router, by evidence, or by any other method."""
    old = recipe_to_refit(refit, support, renormalise)
    if old is not None and renormalise:
        if any((method, router, told, mix, passes, branch, head, queries, cache, self_contained, diagnostics, report)):
            raise InvalidSettings("--renormalise changes the weights alone: leave out all options but -o and --replace")
        share_out(folder, old, output, replace, as_json)
        return
    assert support is not None
    options = {"mix": mix, "passes": passes, "branch": branch}
    name, settings = _way(method, _settings(told, options), router, old)
    _check_places(name, output, report, replace, cache)
    kind = head or (old.head.kind if old and old.head else "prototype")
    unlabelled = None if queries is None else _unlabelled(queries)
    adapted = _adapted(folder, support, name, settings, router=router, head=kind, cache=cache, queries=unlabelled)
    more = {"router": router and str(router)} | ({"refit": what_is_lost(adapted, old)} if old else {})
    _finish(
        folder, adapted, output, report=report, diagnostics=diagnostics, as_json=as_json,
        self_contained=self_contained, **more,
    )  # fmt: skip


def solve(
    folder: Folder,
    support: Support,
    output: Output = None,
    per_module: PerModule = False,
    max_sources: MaxSources = None,
    elements: NElements = None,
    modules: NModules = None,
    steps: NSteps = 10,
    temperature: Temperature = None,
    head: Head = None,
    diagnostics: Diagnosed = False,
    report: Page = None,
    replace: Replace = False,
    as_json: Json = False,
) -> None:
    """Find the weights, and a sparse residual if asked for, that fit a few labelled examples best."""
    from smatter.methods.solver import SolverSettings

    settings = SolverSettings(
        temperature=temperature,
        per_module=per_module,
        max_sources=max_sources,
        n_steps=steps,
        n_elements=elements,
        n_modules=modules,
        n_residual_steps=steps,
    )
    _check_places("solver", output, report, replace)
    adapted = _adapted(folder, support, "solver", settings, head=head or "prototype")
    _finish(folder, adapted, output, report=report, diagnostics=diagnostics, as_json=as_json)


def _settings(told: list[str] | None, options: dict[str, str | None]) -> dict[str, str]:
    """Settings of the method: by --set, and by options of their own."""
    given = pairs(told, "--set")
    for name, value in options.items():
        if value is None:
            continue
        if name in given:
            raise InvalidSettings(f"--{name} and --set {name} say the same: leave out one of them")
        given[name] = value
    return given


def _way(method: str | None, told: dict[str, str], router: Path | None, old: "Recipe | None") -> tuple[str, Any]:
    """The method and its settings: as asked for, or as a recipe was found, or the default."""
    if router is not None and not router.is_dir():
        raise NotFound(f"{router} is no folder; give the router's, which `smatter train` wrote")
    if old is not None and method is None:
        name, settings = methods.as_before(old, router is not None, told)
    else:
        name = method or ("evidence" if router is None else "router")
        settings = methods.find(name).read_settings(told) if told else None
    methods.find(name).with_router(settings, router)  # refuses a method that needs one, or asks none
    return name, settings


def list_methods(as_json: Json = False) -> None:
    """List the ways to adapt and their settings."""
    found = [methods.find(name).to_dict() for name in methods.names()]

    def text() -> None:
        for each in found:
            say(f"{each['name']}: {each['summary']}" + (" Takes --router." if each["takes_router"] else ""))
            for setting in each["settings"]:
                default = setting["default"]
                told = ",".join(map(str, default)) if isinstance(default, tuple) else default
                choices = f" ({', '.join(setting['choices'])})" if setting["choices"] else ""
                say(f"  {setting['name']}={told}{choices}  {setting['help']}")

    show({"methods": found}, as_json, text)


def _check_places(
    method: str, output: Path | None, report: Path | None, replace: bool, cache: Path | None = None
) -> None:
    """Refuse places for recipe, page and results that are taken, before any work."""
    from smatter.library.recipes import is_recipe

    if cache is not None and cache.is_file():
        raise InvalidSettings(f"{cache} is a file, and results are kept in a folder: give another name as the cache")

    if output is not None:
        check_new_file(output, replace, lambda: output.is_file() and is_recipe(output), "recipe")
    if report is not None:
        check_page(report, output, "recipe", replace)
        if methods.find(method).is_private:
            raise InvalidSettings("a page tells more than private weights may: leave out --report")


def _unlabelled(path: Path) -> list[Any]:
    """Inputs that can be read; the others are told and left out."""
    from smatter.tasks.inputs import MAX_QUERIES, count_inputs, read_inputs

    if (n_inputs := count_inputs(path)) > MAX_QUERIES:
        raise InvalidSettings(f"{path} holds {n_inputs} inputs: give at most {MAX_QUERIES} as queries")
    found = list(read_inputs(path))
    if unreadable := [each.error for each in found if each.error]:
        warn(f"{len(unreadable)} of the queries cannot be read and are left out: {unreadable[0]}")
    return [each.value for each in found if not each.error]


def _adapted(folder: Path, support: Path, method: str, settings: Any, **options: Any) -> "Adapted":
    """Check what is cheap first, then work."""
    from smatter.tasks.support import read_support

    library, examples = library_before(folder, support, options.get("router")), read_support(support)

    import torch

    from smatter.pipeline import adapt

    torch.set_num_threads(1)
    quiet_transformers()
    with progress_bar("checking files", sum(source.n_bytes for source in library.manifest.sources)) as progress:
        library.verify(progress=progress)
    with progress_bar("adapting", 1, "share") as progress:
        return adapt(library, examples, method, settings, progress=progress, **options)


def _finish(
    folder: Path,
    adapted: "Adapted",
    output: Path | None,
    *,
    report: Path | None,
    diagnostics: bool,
    as_json: bool,
    self_contained: bool = False,
    **more: Any,
) -> None:
    """Write what was asked for, and print the rest."""
    if output is not None:
        adapted.save(output, self_contained)
        more["needs_router"] = adapted.needs_router and not self_contained
    if report is not None:
        from smatter.files.writing import write_file
        from smatter.report.adapted import adapted_page

        write_file(report, adapted_page(adapted, f"A mixture of the sources of {folder.resolve().name}").encode())
    data = adapted.to_dict() | {"output": output and str(output), "report": report and str(report)} | more
    found = adapted.diagnostics if diagnostics else None
    if found:
        data["diagnostics"] = vars(found)
    show(data, as_json, lambda: _tell(data, folder, found))


def _tell(data: dict[str, Any], folder: Path, found: "Diagnostics | None") -> None:
    """All of it, for people."""
    weights, losses, best = data["weights"], data["losses"], data["best_single_source"]
    order = sorted(weights, key=lambda name: (-weights[name], losses.get(name) or 0.0))
    weight = "mean weight" if "weights_per_module" in data else "weight"
    columns, rows = ["source", weight], [[name, f"{weights[name]:.4f}"] for name in order]
    if losses:
        columns.append("leave-one-out loss")
        rows = [[*row, "-" if losses[row[0]] is None else f"{losses[row[0]]:.4f}"] for row in rows]
    print_table(columns, rows)
    if data["likeness"]:
        likest = sorted(data["likeness"].items(), key=lambda pair: -pair[1])[:3]
        say("like " + ", ".join(f"{name} {share:.0%}" for name, share in likest))
    path = data["steps"]
    if len(path) > 1:
        say(f"loss {path[0]:.4f} at the start, {path[-1]:.4f} after {len(path) - 1} steps")
    elif best and data["loss"] is not None:
        say(f"loss of the mixture {data['loss']:.4f}, of {best} alone {losses[best]:.4f}")
    for line in (*data["advice"], *data["notes"]):
        say(line)
    if data["queries"]:
        say(data["queries"]["told"])
    if data["members"]:
        size = human_size(data["resident_bytes"])
        say(
            f"averages the predictions of {1 + len(data['members'])} networks, weighted as above: "
            f"{data['query_passes']:.3g} passes of each input, {size} of weights in memory"
        )
    if data["corrected_parameters"]:
        say(f"{data['corrected_parameters']} parameters corrected")
    if found:
        _tell_diagnostics(found)
    if data["held_out_accuracy"] is not None:
        seen = ", though the fit has: expect less on others" if len(path) > 1 or "weights_per_module" in data else ""
        share = f"{data['held_out_accuracy']:.0%}"
        say(f"the {data['head']} head recognises {share} of examples that it has not seen{seen}")
    if "refit" in data:
        tell_loss(data["refit"])
    _tell_places(data, folder)


def _tell_places(data: dict[str, Any], folder: Path) -> None:
    """What was written, and what to do with it."""
    if data["report"]:
        say(f"wrote {data['report']}; open it in a browser")
    if data["output"]:
        size = human_size(Path(data["output"]).stat().st_size)
        recipe, place = shell(data["output"]), shell(folder)
        needs = f" --router {shell(data['router'])}" if data["needs_router"] else ""
        say(f"wrote {data['output']} ({size}); to use it:")
        if needs:
            say(f"  smatter library experts {place} {shell(data['router'])}   # once; --router is then not needed")
        if not data["is_private"]:
            say(f"  smatter predict {recipe} INPUTS --library {place}{needs}")
        if not data["members"]:
            say(f"  smatter compose {place} --recipe {recipe}{needs} -o OUT")
    else:
        say("no recipe was written; give -o RECIPE to keep this")


def _tell_diagnostics(found: "Diagnostics") -> None:
    say(f"{found.effective_sources:.1f} sources in effect; in parameters the mixture is nearest to {found.nearest}")
    if found.unsteadiness is not None:
        say(f"with other examples {found.unsteadiness:.0%} of the weight would move")
    for module, share in found.corrected.items():
        say(f"  {module}: {share:.1%} corrected")
