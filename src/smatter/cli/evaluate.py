"""`smatter evaluate`: every way to adapt on somebody's own data, beside all others."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smatter.backbones.gate import quiet_transformers
from smatter.cli.output import Json, check_page, print_table, progress_bar, say, show
from smatter.cli.suite import RoleName, Seed, SplitName
from smatter.errors import NotFound

if TYPE_CHECKING:
    from smatter.evaluate.compare import Comparison, Recommendation
    from smatter.evaluate.trials import Trials

Folder = Annotated[Path, typer.Argument(metavar="LIB", help="The library's folder.", show_default=False)]
Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A labelled folder or table, which is split by itself; a folder with support and query, or a folder of "
        "such folders; support examples, with QUERY; or a suite: its name, its folder or a tree domain/class/*.png.",
        show_default=False,
    ),
]
Query = Annotated[
    Path | None,
    typer.Argument(metavar="QUERY", help="Labelled queries, where DATA is support examples.", show_default=False),
]
Methods = Annotated[
    str,
    typer.Option(
        metavar="NAMES",
        help="Who takes part, with commas between: all, sources, source:NAME, a name that `smatter methods` lists, or "
        "NAME:predictions. The base and the average always do.",
    ),
]
Router = Annotated[Path | None, typer.Option(metavar="ROUTER", help="A router that `smatter train` wrote.")]
ListFile = Annotated[
    str | None, typer.Option("--list", metavar="FILE", help="For a suite: score the tasks of this frozen list.")
]
NTasks = Annotated[int, typer.Option("--tasks", metavar="N", min=1, max=10_000, help="Tasks drawn, or random splits.")]
Shot = Annotated[int, typer.Option(metavar="K", min=1, help="Examples of each class, where tasks are drawn.")]
NQuery = Annotated[
    int | None,
    typer.Option(
        "--query", metavar="N", min=1, help="Queries of each class: by default all that are left, or 10 of a suite."
    ),
]
Way = Annotated[int, typer.Option(metavar="N", min=2, help="For a suite: classes of a task.")]
Workers = Annotated[int, typer.Option(metavar="N", min=1, max=64, help="Processes.")]
CacheFolder = Annotated[
    Path | None,
    typer.Option("--cache", metavar="FOLDER", help="Where scores are kept, to go on later; LIB.scores by default."),
]
Chosen = Annotated[bool, typer.Option("--choose", help="Name the method to use, and say how sure that is.")]
Page = Annotated[
    Path | None, typer.Option("--report", metavar="PAGE", help="Write an HTML page with bars and mistakes.")
]
Replace = Annotated[bool, typer.Option("--replace", help="Overwrite an existing page.")]


def evaluate(
    folder: Folder,
    data: Data,
    query: Query = None,
    methods: Methods = "all",
    router: Router = None,
    frozen: ListFile = None,
    tasks: NTasks = 10,
    shot: Shot = 5,
    n_query: NQuery = None,
    way: Way = 5,
    split: SplitName = "validation",
    role: RoleName = "id",
    seed: Seed = 0,
    workers: Workers = 1,
    cache: CacheFolder = None,
    choose: Chosen = False,
    report: Page = None,
    replace: Replace = False,
    as_json: Json = False,
) -> None:
    """Score every method on your own data: is a mixture better than the base, the best source or the average?"""
    draw: dict[str, Any] = {"n_tasks": tasks, "n_shot": shot, "n_query": n_query, "n_way": way}
    draw |= {"split": split, "role": role, "seed": seed}
    if report is not None:
        check_page(report, None, "page", replace)
    names = [name.strip() for name in methods.split(",") if name.strip()]
    cache = cache or folder.resolve().with_name(f"{folder.resolve().name}.scores")
    scoring = {"router": router, "cache": cache, "n_workers": workers}
    compared, trials = _compared(folder, names, (data, query, frozen), draw, **scoring)
    _finish(compared, trials, folder, router=router, choose=choose, report=report, as_json=as_json)


def _compared(
    folder: Path, names: list[str], places: tuple[str, Path | None, str | None], draw: dict[str, Any], **options: Any
) -> "tuple[Comparison, Trials]":
    """Check what is cheap first, then work."""
    from smatter.evaluate.contenders import contenders
    from smatter.evaluate.trials import DrawSettings, open_trials
    from smatter.library.library import open_library
    from smatter.route.place import has_posterior

    library, router, (data, query, frozen) = open_library(folder), options["router"], places
    if router is not None and not router.is_dir():
        raise NotFound(f"{router} is no folder; give the router's, which `smatter train` wrote")
    asks_posterior = router is not None and has_posterior(router)
    n_methods = len(contenders(library, names, router is not None, asks_posterior))
    trials = open_trials(data, query, frozen=frozen, draw=DrawSettings(**draw))

    import torch

    from smatter.evaluate.run import evaluate_methods

    torch.set_num_threads(1)
    quiet_transformers()
    with progress_bar("scoring", len(trials) * n_methods, "steps", is_long=True) as progress:
        return evaluate_methods(library, trials, names, progress=progress, **options), trials


def _finish(
    compared: "Comparison",
    trials: "Trials",
    folder: Path,
    *,
    router: Path | None,
    choose: bool,
    report: Path | None,
    as_json: bool,
) -> None:
    """Write what was asked for, and print the rest."""
    if report is not None:
        from smatter.files.writing import write_file
        from smatter.report.compared import compared_page

        write_file(report, compared_page(compared, trials, f"Methods for {folder.resolve().name}").encode())
    data = compared.to_dict() | {"report": report and str(report)}

    def text() -> None:
        _tell(compared)
        choice = compared.choose()
        if choose and choice is not None:
            _tell_choice(choice, folder, router)
        if report is not None:
            say(f"wrote {report}; open it in a browser")

    show(data, as_json, text)


def _tell(compared: "Comparison") -> None:
    """The table, for people."""
    from smatter.evaluate.compare import COLUMNS

    n_queries = sum(len(task.truth) for task in compared.tasks)
    say(f"{compared.told}: {n_queries} queries; 95 % intervals over {compared.unit}, in percent")
    print_table(COLUMNS, [each.cells for each in compared.standings if not each.failure])
    for each in compared.standings:
        if each.failure:
            say(f"{each.name} {each.failure}")


def _tell_choice(choice: "Recommendation", folder: Path, router: Path | None) -> None:
    """What to use and how."""
    say(f"use {choice.name}: {choice.told}")
    name, _, rest = choice.name.partition(":")
    library = shlex.quote(str(folder))
    if name in ("base", "source"):
        from smatter.library.library import open_library

        source = shlex.quote(f"{rest or open_library(folder).manifest.base}=1")
        say(f"  smatter compose {library} --weights {source} -o OUT")
        return
    from smatter import methods

    asked = router is not None and hasattr(methods.find(name).settings, "router")
    mixed = f" --mix {rest}" if rest else ""
    asking = f" --router {shlex.quote(str(router))}" if asked else ""
    say(f"  smatter adapt {library} SUPPORT --method {name}{mixed}{asking} -o RECIPE")
