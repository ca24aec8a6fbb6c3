"""`smatter calibrate`: what a router's rules do on tasks that nothing was chosen on, and what that proves."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smatter.backbones.gate import quiet_transformers
from smatter.cli.output import Json, print_table, progress_bar, say, shell, show
from smatter.cli.places import library_before
from smatter.errors import InvalidSettings
from smatter.settings.rules import ROUTER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smatter.route.certificates import CalibrationSettings, Certificate
    from smatter.tasks.lists import TaskList

RouterFolder = Annotated[
    Path, typer.Argument(metavar="ROUTER", help="A router that `smatter train` wrote.", show_default=False)
]
ListFile = Annotated[
    str | None,
    typer.Argument(
        metavar="LIST",
        help="Calibration tasks: the file of a frozen list, or the name of one that is shipped.",
        show_default=False,
    ),
]
LibraryFolder = Annotated[
    Path | None, typer.Option("--library", metavar="LIB", help="The library's folder.", show_default=False)
]
SuitePlace = Annotated[
    str, typer.Option("--suite", metavar="SUITE", help="The suite that the list was drawn from: shipped, or a place.")
]
Rules = Annotated[
    list[str] | None,
    typer.Option(
        "--rule",
        metavar="RULE",
        help="A rule to calibrate: router, router:predictions or, with a posterior, a decision such as half:3. "
        "Repeatable: rules that you choose among belong in one command.",
        show_default=False,
    ),
]
Delta = Annotated[float, typer.Option(metavar="SHARE", help="How often a bound may fail.")]
NTasks = Annotated[
    int | None, typer.Option("--tasks", metavar="N", min=1, help="The first tasks of the list.", show_default="all")
]
Workers = Annotated[int, typer.Option(metavar="N", min=1, max=64, help="Processes.")]
CacheFolder = Annotated[
    Path | None,
    typer.Option("--cache", metavar="FOLDER", help="Where scores are kept, to go on later; ROUTER.scores by default."),
]
Shown = Annotated[bool, typer.Option("--show", help="Compute nothing: show the certificates that the router has.")]


def calibrate(
    router: RouterFolder,
    tasks: ListFile = None,
    library: LibraryFolder = None,
    suite: SuitePlace = "signs",
    rules: Rules = None,
    delta: Delta = 0.05,
    n_tasks: NTasks = None,
    workers: Workers = 1,
    cache: CacheFolder = None,
    shown: Shown = False,
    as_json: Json = False,
) -> None:
    """Run a router's rules on calibration tasks: thresholds, and bounds of their error, are kept in the router."""
    from smatter.route.certificates import CalibrationSettings

    if shown:
        certificates: Sequence[Certificate] = _known(router, tasks, rules)
    else:
        if tasks is None or library is None:
            raise InvalidSettings("there is nothing to calibrate on: give LIST and --library, or say --show")
        settings = CalibrationSettings(tuple(rules or ()), delta, n_tasks)
        certificates = _calibrated(router, tasks, library, suite, settings, cache=cache, n_workers=workers)
    data = {"router": str(router), "certificates": [each.model_dump(mode="json") for each in certificates]}

    def text() -> None:
        for each in certificates:
            _tell(each)
        if not shown:
            say(f"kept in {router}; `smatter adapt --router {shell(router)}` tells it beside the rule")

    show(data, as_json, text)


def _calibrated(
    router: Path, where: str, folder: Path, suite: str, settings: "CalibrationSettings", **more: Any
) -> "tuple[Certificate, ...]":
    """Check what is cheap first, then work."""
    library = library_before(folder, router, router)
    rules, tasks = settings.rules_for(router), _task_list(where, suite)
    settings.check_tasks(tasks)

    import torch

    from smatter.evaluate.calibrated import calibrate_router

    torch.set_num_threads(1)
    quiet_transformers()
    more["cache"] = more["cache"] or router.resolve().with_name(f"{router.resolve().name}.scores")
    with progress_bar("calibrating", (settings.n_tasks or len(tasks)) * len(rules), "steps") as progress:
        return calibrate_router(router, tasks, library, settings, progress=progress, **more)


def _task_list(where: str, suite: str) -> "TaskList":
    """A list by its file, or by its name among those that are shipped."""
    from smatter.tasks.lists import read_list
    from smatter.tasks.open import open_list, open_suite, shipped_suites

    if suite in shipped_suites() and not Path(where).exists():
        return open_list(suite, where)
    return read_list(where, open_suite(suite))


def _known(router: Path, tasks: str | None, rules: list[str] | None) -> "list[Certificate]":
    """Certificates that a router has: all, or those that are asked for."""
    from smatter.route.certificates import find_certificates, read_certificates

    found = read_certificates(router)
    name = tasks and (Path(tasks).stem if Path(tasks).exists() else tasks)
    asked = rules or list(dict.fromkeys(each.rule for each in found)) or [ROUTER]
    return [each for rule in asked for each in find_certificates(found, rule, "", name)]


def _tell(certificate: "Certificate") -> None:
    """One rule's, for people."""
    say(f"{certificate.rule}, on {certificate.n} tasks of {certificate.tasks}:")
    rows = [
        [each.about, f"{each.estimate:.3f}", "vacuous" if each.vacuous else f"{each.value:.3f}"]
        for each in certificate.bounds
    ]
    print_table(["what", "measured", "at most"], rows)
    if certificate.sets is not None:
        told = zip(certificate.sets.coverages, certificate.sets.limits, strict=True)
        least = ", ".join(f"{1 - limit:.3f} for {100 * coverage:g} %" for coverage, limit in told)
        say(f"to hold the right class of a share of inputs, sets have all classes with a probability from {least} on")
    say(certificate.promise)
