"""`smatter catalogue`: the few mixtures that many tasks can share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smatter.backbones.gate import quiet_transformers
from smatter.cli.output import Json, check_new_file, print_table, progress_bar, say, shell, show
from smatter.cli.places import library_before
from smatter.cli.suite import Replace, Seed, Shifts, parse_shift_options
from smatter.cli.train_options import N_TABLES, Folder, SuitePlace, Variants, Workers

if TYPE_CHECKING:
    from smatter.route.kept import KeptCatalogue

RouterPlace = Annotated[Path, typer.Argument(metavar="ROUTER", help="A trained router.", show_default=False)]
Output = Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Where the catalogue is written.")]
Size = Annotated[int, typer.Option(metavar="N", min=1, max=1_000, help="The most mixtures.")]
Cost = Annotated[
    float | None,
    typer.Option(
        metavar="N", help="The most networks that are read to compose them all, each source of a mixture being one."
    ),
]
NTables = Annotated[
    int, typer.Option("--tables", metavar="N", min=1, max=100_000, help="Tasks that they are chosen on.")
]
Work = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Where tables are kept, for a posterior too; FILE.work by default."),
]


def catalogue(
    folder: Folder,
    router: RouterPlace,
    suite: SuitePlace,
    output: Output,
    size: Size = 8,
    cost: Cost = None,
    tables: NTables = N_TABLES,
    shift: Shifts = None,
    variant: Variants = None,
    seed: Seed = 0,
    work: Work = None,
    workers: Workers = 1,
    replace: Replace = False,
    as_json: Json = False,
) -> None:
    """Choose mixtures to keep in memory, of which `adapt --catalogue` takes one for each task."""
    changes = {"shifts": parse_shift_options(shift), "variants": parse_shift_options(variant), "seed": seed}
    work = (work or output.with_name(f"{output.name}.work")) / "routings"
    kept = _kept(
        folder, router, suite, output=output, replace=replace, size=size, cost=cost, n_tables=tables, work=work,
        workers=workers, **changes,
    )  # fmt: skip
    rows = [
        {"name": name, "cost": price, "weights": mixture.mean_weights}
        for (name, mixture), price in zip(kept.mixtures.items(), kept.catalogue.costs.tolist(), strict=True)
    ]
    data = {"output": str(output), "mixtures": rows, **kept.record}
    show(data, as_json, lambda: _tell(data, folder, router))


def _kept(folder: Path, router: Path, suite: str, *, output: Path, replace: bool, **options: Any) -> "KeptCatalogue":
    """Check what is cheap first, then choose, then write."""
    from smatter.tasks.open import open_suite

    library, examples = library_before(folder, Path(suite), router), open_suite(suite)

    import torch

    from smatter.route.kept import is_catalogue, write_catalogue
    from smatter.route.store import read_router
    from smatter.train.residents import choose_residents

    check_new_file(output, replace, lambda: is_catalogue(output), "catalogue")
    torch.set_num_threads(1)
    quiet_transformers()
    with progress_bar("passing routings", 1, "share") as progress:
        kept = choose_residents(library, examples, read_router(router), progress=progress, **options)
    write_catalogue(output, kept)
    return kept


def _tell(data: dict[str, Any], folder: Path, router: Path) -> None:
    """All of it, for people."""
    told = [
        [each["name"], ", ".join(f"{name} {weight:.2f}" for name, weight in each["weights"].items())]
        for each in data["mixtures"]
    ]
    print_table(["mixture", "weights"], told)
    found = data["held_out"]
    say(
        f"{found['tasks']} held-out tasks: loss {found['loss']:.3f} by the one of least loss on the examples, "
        f"{found['loss_of_router']:.3f} by the router's own mixtures"
    )
    say(f"wrote {data['output']}; to use it:")
    words = ("SUPPORT", "--router", shell(router), "--catalogue", shell(data["output"]))
    say(f"  smatter adapt {shell(folder)} {' '.join(words)} -o RECIPE")
