"""`smatter profile`: what a forward pass takes on this device, whatever groups are active."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smatter.backbones.gate import quiet_transformers
from smatter.cli.output import Json, check_new_file, check_page, print_table, progress_bar, say, show
from smatter.cli.suite import Replace
from smatter.errors import NotFound
from smatter.settings.devices import DeviceDtype, DeviceSetting, ProfileMethod, ProfileSettings

if TYPE_CHECKING:
    from smatter.devices.profile import Profile

Folder = Annotated[
    Path | None,
    typer.Argument(metavar="[LIB]", help="The library's folder; a small random ViT without.", show_default=False),
]
Output = Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Where the profile is written.")]
Threads = Annotated[int, typer.Option(metavar="N", min=1, max=1024, help="Threads of a forward pass.")]
Batch = Annotated[int, typer.Option(metavar="N", min=1, max=4096, help="Rows of a forward pass.")]
Dtype = Annotated[DeviceDtype, typer.Option(help="Of weights and computing.")]
Length = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, max=100_000, help="Tokens (32), or a picture's side (the network's own)."),
]
Rank = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, max=4096, help="Units are N rank components of each operator, not groups."),
]
Quantile = Annotated[
    float | None, typer.Option(metavar="Q", help="Quantile of the times that a bound is for; 0.5, or as in --from.")
]
Delta = Annotated[float | None, typer.Option(metavar="SHARE", help="How often a bound may fail; 0.1, or as in --from.")]
Seconds = Annotated[
    float, typer.Option(metavar="S", min=1, help="About how long to measure; at least 4 runs of 230 networks.")
]
How = Annotated[
    ProfileMethod,
    typer.Option("--method", help="Time whole networks; operators alone, which is quicker and worse; or count bytes."),
]
Table = Annotated[
    Path | None, typer.Option("--table", metavar="JSON", help="Take costs from your own table, in its unit.")
]
Earlier = Annotated[
    Path | None, typer.Option("--from", metavar="FILE", help="Adjust this profile to this device and setting.")
]
Points = Annotated[int | None, typer.Option(metavar="N", min=8, max=1000, help="With --from: networks to measure; 24.")]
Margin = Annotated[
    float | None,
    typer.Option(metavar="FACTOR", help="With --from: do not measure; everything is slower by this factor."),
]
Page = Annotated[Path | None, typer.Option("--report", metavar="PAGE", help="Write an HTML page with pictures too.")]


def profile(
    folder: Folder = None,
    output: Output = Path("profile.json"),
    threads: Threads = 1,
    batch: Batch = 8,
    dtype: Dtype = "F32",
    length: Length = None,
    rank: Rank = None,
    quantile: Quantile = None,
    delta: Delta = None,
    seconds: Seconds = 100.0,
    method: How = "stacks",
    costs: Table = None,
    earlier: Earlier = None,
    points: Points = None,
    margin: Margin = None,
    report: Page = None,
    replace: Replace = False,
    as_json: Json = False,
) -> None:
    """Measure this device: what active groups cost, and a bound that holds."""
    setting = DeviceSetting(threads, batch, dtype, length, rank)
    settings = ProfileSettings(
        method, costs, earlier=earlier, points=points, margin=margin, quantile=quantile, delta=delta, seconds=seconds
    )
    _check_places(output, report, replace)
    found = _made(folder, setting, settings)
    _write(output, report, found)
    from smatter.devices.budgets import reach

    buys = vars(reach(found))
    data = {"output": str(output), "report": report and str(report), **found.model_dump(by_alias=True), "budgets": buys}
    show(data, as_json, lambda: _tell(output, report, found, buys))
    if found.method == "stacks" and not found.is_quiet and margin is None:
        _warn(found)


def _check_places(output: Path, report: Path | None, replace: bool) -> None:
    """Refuse places for profile and page that are taken, before any work."""

    def is_ours() -> bool:
        from smatter.devices.profile import is_profile

        return is_profile(output)

    check_new_file(output, replace, is_ours, "profile")
    if report is not None:
        check_page(report, output, "profile", replace)


def _made(folder: Path | None, setting: DeviceSetting, settings: ProfileSettings) -> "Profile":
    from smatter.library.library import open_library

    library = None if folder is None else open_library(folder)
    if settings.earlier is not None and not settings.earlier.exists():
        raise NotFound(f"there is no profile {settings.earlier}: make one with `smatter profile`")
    if settings.table is not None and not settings.table.exists():
        raise NotFound(f"there is no table {settings.table}: check the path")

    from smatter.devices.profile import read_profile

    if settings.earlier is not None:
        read_profile(settings.earlier).check_is_time()

    from smatter.devices.make import make_profile

    quiet_transformers()
    with progress_bar("measuring", 1, "share") as progress:
        return make_profile(library, setting, settings, progress)


def _write(output: Path, report: Path | None, found: "Profile") -> None:
    from smatter.devices.profile import write_profile
    from smatter.files.writing import write_file
    from smatter.report.profiled import profile_page

    page = profile_page(found)
    write_profile(output, found)
    if report is not None:
        write_file(report, page.encode())


def _warn(found: "Profile") -> None:
    print(
        f"smatter: the machine was not quiet (others used {found.others or 0:.1f} of its processors), so the bound "
        f"is {found.wider_by - 1:.0%} wider; measure again when it is idle",
        file=sys.stderr,
    )


def _tell(output: Path, report: Path | None, found: "Profile", buys: dict[str, float]) -> None:
    from smatter.units.numbering import REST

    place, unit, model = found.fingerprint, found.unit, found.model
    say(f"{place.device}; threads: {place.threads}, rows: {place.batch}, length: {place.length}, {place.dtype}")
    say(f"a forward pass takes {found.base:.3g} {unit}; each module with active groups adds to it")
    costs = []
    for name in model.costs:
        shown = [0.125, 0.25, 0.5, 1.0] if not name.endswith(REST) else [1.0]
        cells = [f"{found.base * (float(model.relative({name: share})[0]) - 1):.3g}" for share in shown]
        costs.append([name, *["-"] * (4 - len(cells)), *cells])
    print_table(["module", "1/8 active", "1/4", "1/2", f"all ({unit})"], costs)
    if tested := found.quality:
        say(
            f"on {tested.n_tested} other networks: {tested.within_10_percent:.0%} within 10 % of the prediction, "
            f"rank correlation {tested.spearman:.2f}"
        )
    if found.method == "stacks":
        held = "" if tested is None else f", held for {tested.coverage:.0%}, {tested.slack:.1%} too high in mean"
        say(
            f"at most {found.kappa:.3f} x predicted + {found.epsilon:.3g} {unit} (quantile {found.quantile:g}): "
            f"promised for {1 - found.delta:.0%}{held}"
        )
    else:
        say(f"costs are not from whole networks ({found.method}): nothing is promised")
    say(
        f"a budget buys nothing at {buys['smallest']:.4g} {unit} or {buys['smallest_multiple']:.4g}x, less is refused; "
        f"everything at {buys['largest']:.4g} {unit} or {buys['largest_multiple']:.4g}x"
    )
    say(f"wrote {output}" + (f" and {report}; open it in a browser" if report else ""))
