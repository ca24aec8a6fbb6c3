"""`smatter train`: tasks of a suite to a router."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from smatter.cli.output import Json, progress_bar, show
from smatter.cli.suite import Replace, Seed, Shifts, parse_shift_options

if TYPE_CHECKING:
    from smatter.settings import Imitation
    from smatter.train.trainee import MetaStep, Validation

Variants = Annotated[
    list[str] | None,
    typer.Option("--variant", metavar="NAME[:KEY=VALUE,...]", help="Let experts learn tasks changed so. Repeatable."),
]


def train(
    folder: Annotated[Path, typer.Argument(metavar="LIB", help="The library's folder.", show_default=False)],
    suite: Annotated[
        str, typer.Argument(metavar="SUITE", help="A shipped suite, or where one is.", show_default=False)
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="ROUTER", help="Where the router is written.")],
    source: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Train with this source and the base alone. Repeatable; all by default."),
    ] = None,
    steps: Annotated[int, typer.Option(metavar="N", min=1, max=1_000_000, help="Steps, at most.")] = 600,
    experts: Annotated[int, typer.Option(metavar="M", min=0, max=64, help="Residual experts.")] = 0,
    expert_share: Annotated[
        float, typer.Option(metavar="SHARE", help="Share of the change that an expert may use.")
    ] = 0.25,
    units: Annotated[
        Literal["groups", "elements", "components"],
        typer.Option(help="What experts change: groups of parameters, single ones, or parts of a low-rank change."),
    ] = "groups",
    rank: Annotated[int, typer.Option(metavar="N", min=1, max=4096, help="Of that low-rank change.")] = 8,
    pooling: Annotated[
        Literal["moments", "deep-sets", "attention"], typer.Option(help="How classes become one vector.")
    ] = "moments",
    tying: Annotated[
        Literal["global", "tied", "per-module"], typer.Option(help="Weights for the network, or for each module.")
    ] = "global",
    weight_map: Annotated[
        Literal["softmax", "sparsemax", "entmax"], typer.Option("--map", help="How scores become weights.")
    ] = "softmax",
    entropy: Annotated[float, typer.Option(metavar="PRICE", min=0, help="Price of using many sources at once.")] = 0.0,
    distill: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHAT=PRICE", help="Price of weights, experts or predictions unlike a teacher's. Repeatable; slow."
        ),
    ] = None,
    shift: Shifts = None,
    variant: Variants = None,
    seed: Seed = 0,
    work: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="For the log, and to go on after an interruption; ROUTER.work by default."),
    ] = None,
    workers: Annotated[int, typer.Option(min=0, max=64, help="Processes that prepare tasks meanwhile.")] = 1,
    replace: Replace = False,
    as_json: Json = False,
) -> None:
    """Train a router on tasks of a suite; an interrupted training goes on where it stopped."""
    from smatter.files.writing import check_free
    from smatter.library.library import open_library
    from smatter.route.store import is_router, write_router
    from smatter.tasks.open import open_suite

    check_free(output, replace and is_router(output))
    library, examples = open_library(folder), open_suite(suite)
    if source:
        library = library.only(source)
    shifts, variants = parse_shift_options(shift), parse_shift_options(variant)

    import torch
    from transformers.utils import logging

    from smatter.live.mixture import LiveMixture
    from smatter.route.probe import draw_probe
    from smatter.settings import MetaSettings, RouterSettings
    from smatter.train.curriculum import make_curriculum
    from smatter.train.meta import train_router
    from smatter.train.trainee import Trainee, Validation

    torch.set_num_threads(1)
    logging.set_verbosity_error()
    router = RouterSettings(pooling, weight_map=weight_map, tying=tying, n_experts=experts, units=units, rank=rank)
    settings = MetaSettings(
        router, steps, imitation=_imitation(distill), entropy=entropy, expert_share=expert_share, seed=seed
    )
    curriculum = make_curriculum(examples, shifts, variants, seed=seed)
    begin = time.perf_counter()
    trainee = Trainee(LiveMixture(library), draw_probe(examples, shifts), settings)
    words: dict[str, str] = {}
    done = 0
    with progress_bar("training", steps, "steps") as advance:

        def progress(told: "MetaStep | Validation") -> None:
            nonlocal done
            if isinstance(told, Validation):
                words["valid"] = f"valid {told.accuracy:.1%}, with evidence {told.accuracy_with_evidence:.1%}"
                return
            words["loss"] = f"loss {told.loss:.3f}, entropy {told.entropy:.2f}"
            if told.shares:
                words["open"] = f"open {max(told.shares[:-1]):.0%}, all {told.shares[-1]:.0%}"
            advance(told.step - done, ", ".join(words.values()))
            done = told.step

        place = work or output.with_name(f"{output.name}.work")
        outcome = train_router(trainee, curriculum, place, n_workers=workers, watch=progress)
    record: dict[str, Any] = {
        "suite": examples.name,
        "suite_digest": examples.digest,
        "steps": outcome.n_steps,
        "settings": settings.to_dict(),
    }
    if outcome.validation:
        record["validation"] = vars(outcome.validation)
    if trainee.experts:
        record["expert_shares"] = trainee.experts.fixed(expert_share).shares(trainee.experts.layout).tolist()
    write_router(output, trainee.finish(record), replace)
    seconds = time.perf_counter() - begin
    show({"output": str(output), "seconds": seconds, **record}, as_json, lambda: _tell(output, record, seconds))


def _imitation(texts: list[str] | None) -> "Imitation":
    from smatter.errors import InvalidSettings
    from smatter.settings import Imitation

    prices = {}
    for text in texts or ():
        what, _, price = text.partition("=")
        if what not in ("weights", "experts", "predictions") or not _is_number(price):
            raise InvalidSettings(
                f"--distill {text} is not WHAT=PRICE: say weights=0.5, experts=0.5 or predictions=0.3"
            )
        prices[what] = float(price)
    return Imitation(**prices)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _tell(output: Path, record: dict[str, Any], seconds: float) -> None:
    print(f"{record['steps']} steps in {seconds:.0f} s")
    if found := record.get("validation"):
        print(
            f"validation tasks, after step {found['step']}: {found['accuracy']:.1%} of the queries, "
            f"{found['accuracy_with_evidence']:.1%} with evidence"
        )
    if shares := record.get("expert_shares"):
        print(f"experts use {', '.join(f'{share:.0%}' for share in shares[:-1])}, together {shares[-1]:.0%}")
    print(f"wrote {output}; to use it:")
    print(f"  smatter adapt LIB SUPPORT --router {output}")
