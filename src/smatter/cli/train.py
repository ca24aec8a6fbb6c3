"""`smatter train`: tasks of a suite to a router."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smatter.backbones.gate import quiet_transformers
from smatter.cli.output import Json, pairs, progress_bar, say, shell, show
from smatter.cli.places import library_before
from smatter.cli.suite import Replace, Seed, Shifts, parse_shift_options
from smatter.errors import InvalidSettings
from smatter.settings.training import (
    Imitation,
    MetaSettings,
    Pooling,
    RouterSettings,
    TeacherName,
    Tying,
    UnitKind,
    WeightMap,
)

if TYPE_CHECKING:
    from smatter.route.store import TrainedRouter

Folder = Annotated[Path, typer.Argument(metavar="LIB", help="The library's folder.", show_default=False)]
SuitePlace = Annotated[
    str, typer.Argument(metavar="SUITE", help="A shipped suite, or where one is.", show_default=False)
]
Output = Annotated[Path, typer.Option("-o", "--output", metavar="ROUTER", help="Where the router is written.")]
Sources = Annotated[
    list[str] | None,
    typer.Option(
        "--source", metavar="NAME", help="Train with this source and the base only. Repeatable; all sources by default."
    ),
]
NSteps = Annotated[int, typer.Option("--steps", metavar="N", min=1, max=1_000_000, help="The most steps.")]
NExperts = Annotated[int, typer.Option("--experts", metavar="M", min=0, max=64, help="Residual experts.")]
ExpertShare = Annotated[
    float, typer.Option(metavar="SHARE", help="Share of the correction's parameters that one expert may use.")
]
CommonShare = Annotated[
    float, typer.Option(metavar="SHARE", help="Share of the correction's parameters that every task uses.")
]
Units = Annotated[
    UnitKind,
    typer.Option(help="What experts switch: groups of parameters, single ones, or parts of a low-rank correction."),
]
Rank = Annotated[int, typer.Option(metavar="N", min=1, max=4096, help="Rank of a low-rank correction.")]
Pooled = Annotated[Pooling, typer.Option(help="How the classes of a task become one vector.")]
Tied = Annotated[Tying, typer.Option(help="One row of weights for the network, or one for each module.")]
Map = Annotated[WeightMap, typer.Option("--map", help="How scores become weights.")]
Entropy = Annotated[float, typer.Option(metavar="PRICE", min=0, help="Price of using many sources at once.")]
Distilled = Annotated[
    list[str] | None,
    typer.Option(
        "--distill",
        metavar="WHAT=PRICE",
        help="Price of weights, experts or predictions that differ from a teacher's. Repeatable; slow.",
    ),
]
Teaching = Annotated[
    TeacherName,
    typer.Option(
        "--teacher", help="Who predicts for --distill predictions: a solved mixture, or the average of the sources."
    ),
]
Variants = Annotated[
    list[str] | None,
    typer.Option(
        "--variant", metavar="NAME[:KEY=VALUE,...]", help="Let experts learn from tasks changed like this. Repeatable."
    ),
]
Work = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="For the log, and to go on after an interruption; ROUTER.work by default."),
]
Workers = Annotated[int, typer.Option(min=0, max=64, help="Processes that prepare tasks meanwhile.")]


def train(
    folder: Folder,
    suite: SuitePlace,
    output: Output,
    sources: Sources = None,
    steps: NSteps = 600,
    experts: NExperts = 0,
    expert_share: ExpertShare = 0.25,
    common_share: CommonShare = 0.0,
    units: Units = "groups",
    rank: Rank = 8,
    pooling: Pooled = "moments",
    tying: Tied = "global",
    weight_map: Map = "softmax",
    entropy: Entropy = 0.0,
    distill: Distilled = None,
    teacher: Teaching = "solver",
    shift: Shifts = None,
    variant: Variants = None,
    seed: Seed = 0,
    work: Work = None,
    workers: Workers = 1,
    replace: Replace = False,
    as_json: Json = False,
) -> None:
    """Train a router on tasks of a suite; an interrupted training goes on where it stopped."""
    masks: dict[str, Any] = {"n_experts": experts, "common_share": common_share, "units": units, "rank": rank}
    router = RouterSettings(pooling, weight_map=weight_map, tying=tying, **masks)
    settings = MetaSettings(
        router, steps, imitation=_imitation(distill, teacher), entropy=entropy, expert_share=expert_share, seed=seed
    )
    changes = {"shifts": parse_shift_options(shift), "variants": parse_shift_options(variant)}
    work, begin = work or output.with_name(f"{output.name}.work"), time.perf_counter()
    trained = _trained(
        folder, suite, sources, output=output, replace=replace, settings=settings, work=work, workers=workers, **changes
    )
    record, seconds = dict(trained.record), time.perf_counter() - begin
    show({"output": str(output), "seconds": seconds, **record}, as_json, lambda: _tell(folder, output, record, seconds))


def _trained(
    folder: Path,
    suite: str,
    sources: list[str] | None,
    output: Path,
    replace: bool,
    settings: MetaSettings,
    **options: Any,
) -> "TrainedRouter":
    """Check what is cheap first, then train, then write."""
    from smatter.files.writing import check_free
    from smatter.route.place import is_router
    from smatter.tasks.open import open_suite
    from smatter.train.curriculum import make_curriculum

    check_free(output, replace and is_router(output))
    library = library_before(folder, Path(suite))
    library = library.only(sources) if sources else library
    examples = open_suite(suite)
    make_curriculum(examples, options["shifts"], options["variants"], seed=settings.seed)  # refuses one too small

    import torch

    from smatter.route.store import write_router
    from smatter.train.router import train_router

    torch.set_num_threads(1)
    quiet_transformers()
    with progress_bar("training", settings.n_steps, "steps", is_long=True) as progress:
        trained = train_router(library, examples, settings, progress=progress, **options)
    write_router(output, trained, replace)
    return trained


def _imitation(texts: list[str] | None, teacher: TeacherName) -> Imitation:
    prices: dict[str, float] = {}
    for what, price in pairs(texts, "--distill").items():
        try:
            if what not in ("weights", "experts", "predictions"):
                raise ValueError
            prices[what] = float(price)
        except ValueError:
            raise InvalidSettings(
                f"--distill {what}={price} is not WHAT=PRICE: say weights=0.5, experts=0.5 or predictions=0.3"
            ) from None
    return Imitation(**prices, teacher=teacher)


def _tell(folder: Path, output: Path, record: dict[str, Any], seconds: float) -> None:
    say(f"{record['steps']} steps in {seconds:.0f} s")
    if found := record.get("validation"):
        say(
            f"validation tasks, after step {found['step']}: {found['accuracy']:.1%} of the queries, "
            f"{found['accuracy_with_evidence']:.1%} with evidence"
        )
    if found and found["references"]:
        told = {"base": "the base", "average": "the plain average", "evidence": "evidence routing"}
        say("on the same: " + ", ".join(f"{told[name]} {share:.1%}" for name, share in found["references"].items()))
    if share := record.get("common_share"):
        say(f"every task uses {share:.0%} of the correction")
    if len(shares := record.get("expert_shares", ())) > 1:
        say(f"experts use {', '.join(f'{share:.0%}' for share in shares[:-1])}, together {shares[-1]:.0%}")
        if len(rows := record["expert_overlaps"]) > 1:
            common = [share for number, row in enumerate(rows) for share in row[:number]]
            say(f"two of them have {sum(common) / len(common):.0%} in common on average, {max(common):.0%} at most")
    place, router = shell(folder), shell(output)
    say(f"wrote {output}; to see what it is worth on your data, and to use it:")
    say(f"  smatter evaluate {place} DATA --router {router}")
    say(f"  smatter adapt {place} SUPPORT --router {router} -o RECIPE")
    say(f"the same command with more --steps than {record['steps']} and --replace trains it further")
