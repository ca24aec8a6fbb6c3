"""`smatter profile`: what a forward pass takes on this device, whatever groups are active."""

import contextlib
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from smatter.cli.output import Json, check_new_file, progress_bar, show, table
from smatter.cli.suite import Replace
from smatter.errors import InvalidSettings

if TYPE_CHECKING:
    from smatter.devices.profile import Profile
    from smatter.library.library import Library
    from smatter.settings import DeviceSetting, MeasureSettings


def profile(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="[LIB]", help="The library's folder; a small random ViT without.", show_default=False),
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Where to write.")] = Path(
        "profile.json"
    ),
    threads: Annotated[int, typer.Option(metavar="N", min=1, max=1024, help="Threads of a forward pass.")] = 1,
    batch: Annotated[int, typer.Option(metavar="N", min=1, max=4096, help="Rows of a forward pass.")] = 8,
    dtype: Annotated[Literal["F32", "BF16"], typer.Option(help="Of weights and computing.")] = "F32",
    length: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=100_000, help="Tokens (32), or a picture's side (the network's own)."),
    ] = None,
    rank: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=4096, help="Units are N rank components of each operator, not groups."),
    ] = None,
    quantile: Annotated[
        float | None, typer.Option(metavar="Q", help="Of the times, that a bound is for; 0.5, or as in --from.")
    ] = None,
    delta: Annotated[
        float | None, typer.Option(metavar="SHARE", help="How often a bound may fail; 0.1, or as in --from.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(metavar="S", min=1, help="How long to measure, about; never below 4 runs of 230 networks.")
    ] = 100.0,
    method: Annotated[
        Literal["stacks", "micro-benchmarks", "bytes"],
        typer.Option(help="Time whole networks; operators alone, which is quicker and worse; or count bytes."),
    ] = "stacks",
    costs: Annotated[
        Path | None, typer.Option("--table", metavar="JSON", help="Take costs from your own table, in its unit.")
    ] = None,
    old: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Adjust this profile to where you are now.")
    ] = None,
    points: Annotated[
        int | None, typer.Option(metavar="N", min=8, max=1000, help="Networks to measure for that; 24.")
    ] = None,
    margin: Annotated[
        float | None, typer.Option(metavar="FACTOR", help="Do not measure for that: everything slower by so much.")
    ] = None,
    report: Annotated[Path | None, typer.Option(metavar="PAGE", help="Write an HTML page with pictures too.")] = None,
    replace: Replace = False,
    as_json: Json = False,
) -> None:
    """Measure this device: what active groups cost, and a bound that holds."""
    from smatter.devices.profile import is_profile, read_profile, write_profile
    from smatter.report.page import is_page

    check_new_file(output, replace, lambda: is_profile(output), "profile")
    if report is not None:
        if report.resolve() == output.resolve():
            raise InvalidSettings(f"profile and page cannot both be {report}: give two names")
        check_new_file(report, replace, lambda: is_page(report), "page of Smatter's")
    if old is None and not (margin is None and points is None):
        raise InvalidSettings("a margin or points are for an old profile: name it with --from")
    if old is not None and (costs is not None or method != "stacks"):
        raise InvalidSettings("--from adjusts what is in the old profile: leave out --method and --table")
    if costs is not None and method != "stacks":
        raise InvalidSettings("a table says what everything costs: leave out --method")
    if margin is not None and not (quantile is None and delta is None and points is None):
        raise InvalidSettings("with a margin nothing is measured: leave out --quantile, --delta and --points")
    earlier = None if old is None else read_profile(old)
    if earlier is not None:
        earlier.check_is_time()

    from transformers.utils import logging

    from smatter.files.writing import write_file
    from smatter.library.library import open_library
    from smatter.report.profiled import profile_page
    from smatter.settings import DeviceSetting, MeasureSettings

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    setting, like = DeviceSetting(threads, batch, dtype, length, rank), earlier or MeasureSettings()
    settings = MeasureSettings(
        seconds=seconds,
        quantile=like.quantile if quantile is None else quantile,
        delta=like.delta if delta is None else delta,
    )
    with contextlib.ExitStack() as stack:
        if folder is None:
            from smatter.devices.sample import make_sample_library

            library = make_sample_library(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        else:
            library = open_library(folder)
        if earlier is not None:
            found = _adjusted(library, setting, settings, earlier, points or 24, margin)
        elif costs is not None or method != "stacks":
            found = _unmeasured(library, setting, settings, method, costs)
        else:
            found = _measured(library, setting, settings)
    page = profile_page(found)
    write_profile(output, found)
    if report is not None:
        write_file(report, page.encode())
    data = {"output": str(output), "report": None if report is None else str(report), **found.model_dump(by_alias=True)}
    show(data, as_json, lambda: _tell(output, report, found))
    if found.method == "stacks" and not found.is_quiet and margin is None:
        print(
            f"smatter: the machine was not quiet (others used {found.others or 0:.1f} of its processors), so the bound "
            f"is {found.wider_by - 1:.0%} wider; measure again when it is idle",
            file=sys.stderr,
        )


def _measured(library: "Library", setting: "DeviceSetting", settings: "MeasureSettings") -> "Profile":
    from smatter.devices.measure import measure_profile

    with progress_bar("measuring", 1, "share") as advance:
        return measure_profile(library, setting, settings, advance)


def _unmeasured(
    library: "Library", setting: "DeviceSetting", settings: "MeasureSettings", method: str, costs: Path | None
) -> "Profile":
    from smatter.devices.stacks import make_bench
    from smatter.devices.unmeasured import counted_profile, micro_profile, table_profile

    bench = make_bench(library, setting)
    if costs is not None:
        return table_profile(costs, bench)
    return counted_profile(bench) if method == "bytes" else micro_profile(bench, settings.delta)


def _adjusted(
    library: "Library",
    setting: "DeviceSetting",
    settings: "MeasureSettings",
    earlier: "Profile",
    points: int,
    margin: float | None,
) -> "Profile":
    from smatter.devices.measure import correct_profile
    from smatter.devices.stacks import make_bench

    bench = make_bench(library, setting)
    if margin is not None:
        return earlier.with_margin(bench.fingerprint, margin)
    with progress_bar("measuring", 1, "share") as advance:
        return correct_profile(bench, earlier, points, settings.quantile, settings.delta, advance)


def _tell(output: Path, report: Path | None, found: "Profile") -> None:
    from smatter.units.numbering import REST

    place, unit, model = found.fingerprint, found.unit, found.model
    print(f"{place.device}; threads: {place.threads}, rows: {place.batch}, length: {place.length}, {place.dtype}")
    print(f"a forward pass takes {found.base:.3g} {unit}; each module with active groups adds to it")
    costs = []
    for name in model.costs:
        shown = [0.125, 0.25, 0.5, 1.0] if not name.endswith(REST) else [1.0]
        cells = [f"{found.base * (float(model.relative({name: share})[0]) - 1):.3g}" for share in shown]
        costs.append([name, *["-"] * (4 - len(cells)), *cells])
    table(["module", "1/8 active", "1/4", "1/2", f"all ({unit})"], costs)
    if tested := found.quality:
        print(
            f"on {tested.n_tested} other networks: {tested.within_10_percent:.0%} within 10 % of the prediction, "
            f"rank correlation {tested.spearman:.2f}"
        )
    if found.method == "stacks":
        held = "" if tested is None else f", held for {tested.coverage:.0%}, {tested.slack:.1%} too high in mean"
        print(
            f"at most {found.kappa:.3f} x predicted + {found.epsilon:.3g} {unit} (quantile {found.quantile:g}): "
            f"promised for {1 - found.delta:.0%}{held}"
        )
    else:
        print(f"costs are not from whole networks ({found.method}): nothing is promised")
    print(f"wrote {output}" + (f" and {report}; open it in a browser" if report else ""))
