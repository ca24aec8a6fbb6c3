"""`smatter adapt`, `smatter solve` and `smatter methods`: labelled examples to a recipe."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from smatter import methods
from smatter.backbones.gate import quiet_transformers
from smatter.cli.adapt_options import (
    Before,
    Deciding,
    Fitting,
    Folder,
    Head,
    MaxSources,
    MaybeSupport,
    NElements,
    NModules,
    NSteps,
    PerModule,
    Results,
    SelfContained,
    Spending,
    Support,
    Temperature,
    Watching,
)
from smatter.cli.adapt_text import tell_model
from smatter.cli.grouped import grouped
from smatter.cli.output import Json, check_new_file, check_page, pairs, progress_bar, say, show, warn
from smatter.cli.places import library_before
from smatter.cli.refit import recipe_to_refit, share_out, what_is_lost
from smatter.errors import InvalidSettings, NotFound

if TYPE_CHECKING:
    from smatter.adapted import Adapted
    from smatter.compose.recipe import Recipe


@grouped
def adapt(
    folder: Folder,
    results: Results,
    fitting: Fitting,
    deciding: Deciding,
    spending: Spending,
    before: Before,
    watching: Watching,
    support: MaybeSupport = None,
    self_contained: SelfContained = False,
) -> None:
    """Weigh the sources for a few labelled examples: by a trained router, by evidence, or by any other method."""
    old = recipe_to_refit(before.refit, support, before.renormalise)
    if old is not None and before.renormalise:
        written = Results(output=results.output, replace=results.replace, as_json=results.as_json)
        extras = (fitting, deciding, spending, watching) != (Fitting(), Deciding(), Spending(), Watching())
        if extras or results != written or self_contained:
            raise InvalidSettings("--renormalise changes the weights alone: leave out all options but -o and --replace")
        share_out(folder, old, results.output, results.replace, results.as_json)
        return
    assert support is not None
    name, settings = _way(fitting, deciding, spending, old)
    _check_places(name, results, fitting.cache)
    adapted = _adapted(
        folder,
        support,
        name,
        settings,
        router=fitting.router,
        head=fitting.head or (old.head.kind if old and old.head else "prototype"),
        cache=fitting.cache,
        queries=None if fitting.queries is None else _unlabelled(fitting.queries),
        drift=watching.drift,
        on_drift=watching.on_drift,
        budget=spending.budget,
        profile=spending.profile,
    )
    more = {"router": fitting.router and str(fitting.router)} | ({"refit": what_is_lost(adapted, old)} if old else {})
    _finish(folder, adapted, results, self_contained, **more)


@grouped
def solve(
    folder: Folder,
    support: Support,
    results: Results,
    per_module: PerModule = False,
    max_sources: MaxSources = None,
    elements: NElements = None,
    modules: NModules = None,
    steps: NSteps = 10,
    temperature: Temperature = None,
    head: Head = None,
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
    _check_places("solver", results)
    adapted = _adapted(folder, support, "solver", settings, head=head or "prototype")
    _finish(folder, adapted, results)


def _settings(fitting: Fitting, deciding: Deciding) -> dict[str, str]:
    """Settings of the method: by --set, and by options of their own."""
    given = pairs(fitting.told, "--set")
    for name, value in (fitting.by_name | deciding.by_name).items():
        if value is None:
            continue
        if name in given:
            raise InvalidSettings(f"--{name} and --set {name} say the same: leave out one of them")
        given[name] = value
    return given


def _way(fitting: Fitting, deciding: Deciding, spending: Spending, old: "Recipe | None") -> tuple[str, Any]:
    """The method and its settings: as asked for, or as a recipe was found, or the default."""
    deciding.check(fitting)
    if fitting.no_experts and fitting.router is None:
        raise InvalidSettings("only a router opens experts: give --router, or leave out --no-experts")
    told, router = _settings(fitting, deciding), fitting.router
    method = "bayes" if deciding.is_asked else fitting.method
    if router is not None and not router.is_dir():
        raise NotFound(f"{router} is no folder; give the router's, which `smatter train` wrote")
    if old is not None:
        old.check_rebudgeted(spending.budget)
    if old is not None and method is None:
        name, settings = methods.as_before(old, router is not None, told)
    else:
        name = method or fitting.default_method
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


def _check_places(method: str, results: Results, cache: Path | None = None) -> None:
    """Refuse places for recipe, page and results that are taken, before any work."""
    from smatter.library.recipes import is_recipe

    output = results.output
    if cache is not None and cache.is_file():
        raise InvalidSettings(f"{cache} is a file, and results are kept in a folder: give another name as the cache")
    if output is not None:
        check_new_file(output, results.replace, lambda: output.is_file() and is_recipe(output), "recipe")
    if results.report is not None:
        check_page(results.report, output, "recipe", results.replace)
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


def _finish(folder: Path, adapted: "Adapted", results: Results, self_contained: bool = False, **more: Any) -> None:
    """Write what was asked for, and print the rest."""
    output, report = results.output, results.report
    if output is not None:
        adapted.save(output, self_contained)
        more["needs_router"] = adapted.needs_router and not self_contained
    if report is not None:
        from smatter.files.writing import write_file
        from smatter.report.adapted import adapted_page

        write_file(report, adapted_page(adapted, f"A mixture of the sources of {folder.resolve().name}").encode())
    data = adapted.to_dict() | {"output": output and str(output), "report": report and str(report)} | more
    found = adapted.diagnostics if results.diagnostics else None
    if found:
        data["diagnostics"] = vars(found)
    show(data, results.as_json, lambda: tell_model(data, folder, found))
