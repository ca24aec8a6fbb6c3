"""`smatter predict`: a recipe names the classes of new inputs."""

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from smatter.backbones.gate import quiet_transformers
from smatter.cli.output import progress_bar, say, show, warn
from smatter.errors import InvalidRecipe, InvalidSettings, InvalidSupport
from smatter.records import Progress, printable, silent

if TYPE_CHECKING:
    from smatter.compose.recipe import Recipe
    from smatter.library.library import Library
    from smatter.live.model import TaskModel
    from smatter.live.stream import Answer
    from smatter.tasks.given import Kind
    from smatter.tasks.inputs import Input

RecipeFile = Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe with a head.", show_default=False)]
Where = Annotated[
    str,
    typer.Argument(
        metavar="INPUTS",
        help="A folder of pictures, a picture, a .csv or .jsonl file with a column text, a .txt file with a text per "
        "line; or - for standard input, with a text or the path of a picture per line.",
        show_default=False,
    ),
]
Folder = Annotated[Path, typer.Option("--library", metavar="LIB", help="The library's folder.", show_default=False)]
Router = Annotated[
    Path | None,
    typer.Option(metavar="ROUTER", help="The router whose experts the recipe opens, if the library lacks them."),
]
Top = Annotated[
    int | None, typer.Option("--top", metavar="K", min=1, help="Tell the K most probable classes.", show_default=False)
]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE", help="Write predictions to this new file instead of printing them."),
]
Transductive = Annotated[
    bool, typer.Option("--transductive", help="Let the inputs help each other: all are read before any is named.")
]
Sets = Annotated[
    float | None,
    typer.Option(
        "--sets",
        metavar="COVERAGE",
        help="Tell a set of classes too, which holds the right one for this share of inputs, such as 0.9; for recipes "
        "by a router that was calibrated.",
        show_default=False,
    ),
]
Domain = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="With --sets: the inputs are of this domain, one of those calibrated on, and the share holds within it.",
        show_default=False,
    ),
]
Lines = Annotated[bool, typer.Option("--json", help="A JSON object per input instead of CSV.")]


def predict_inputs(
    recipe: RecipeFile,
    inputs: Where,
    folder: Folder,
    router: Router = None,
    top: Top = None,
    output: Output = None,
    transductive: Transductive = False,
    sets: Sets = None,
    domain: Domain = None,
    as_json: Lines = False,
) -> int:
    """Name the class of each picture or text; exit code 1 if some cannot be read."""
    from smatter.files.writing import check_absent, new_text
    from smatter.tasks.inputs import count_inputs

    if not inputs:
        raise InvalidSupport("INPUTS is empty; give a folder, a file, or - for lines of standard input")
    if output is not None:
        check_absent(output)
    task, library = _opened(recipe, folder, router)
    limit, decided = _limit(task, sets, domain, transductive), _decided(task, sets)
    total = None if inputs == "-" else count_inputs(Path(inputs))
    model = _model(task, library)
    given = _given(inputs, model.takes_images)
    header, line = _form(top, len(model.class_names), limit, decided if as_json else None)
    if output is None:
        stdout = sys.stdout  # a bar would take what is written to it by its name
        if stdout.isatty():  # files and pipes get names and texts as they are
            exact, line = line, lambda answer: printable(exact(answer).removesuffix("\n")) + "\n"
        with _bar(None if stdout.isatty() else total) as progress:
            answers = _answers(model, given, transductive)
            return int(_write(answers, stdout, header, line, progress)[1] > 0)
    with new_text(output) as file, _bar(total) as progress:
        n_rows, n_unreadable = _write(_answers(model, given, transductive), file, header, line, progress)
    data = {"output": str(output), "rows": n_rows, "unreadable": n_unreadable} | decided
    show(data, as_json, lambda: say(f"wrote {output}: {n_rows} rows, {n_unreadable} unreadable"))
    return int(n_unreadable > 0)


def _opened(path: Path, folder: Path, router: Path | None) -> "tuple[Recipe, Library]":
    """Recipe and library, checked as far as that is cheap."""
    from smatter.library.banks import router_bank
    from smatter.library.library import open_library
    from smatter.library.recipes import read_recipe

    recipe, library = read_recipe(path), open_library(folder)
    recipe.needed_head()
    if router is not None:
        library.lend(router_bank(router))
    for each in library.networks(recipe):
        each.mixture_in(library.manifest.digests)
    if recipe.experts is not None and not recipe.experts.is_idle:
        library.bank(recipe.experts.bank)
    return recipe, library


def _limit(recipe: "Recipe", coverage: float | None, domain: str | None, transductive: bool) -> float | None:
    """The limit of sets, if they are asked for; tells what they promise."""
    if coverage is None:
        if domain is not None:
            raise InvalidSettings("--domain says whose sets are told: give --sets too, or leave it out")
        return None
    if transductive:
        raise InvalidSettings("sets are calibrated for inputs that are named one by one: leave out --transductive")
    found = recipe.notes.sets
    if found is None:
        raise InvalidRecipe(
            "the recipe has no sets of classes: run `smatter calibrate` for the router, then `smatter adapt --router` "
            "without --head, --queries, --budget or --abstain"
        )
    limit = found.limit(coverage, domain)
    warn(found.promise(coverage, domain))
    return limit


def _decided(recipe: "Recipe", coverage: float | None) -> dict[str, Any]:
    """What was decided for the task, which goes with every answer; a model that is not by the rule is told of."""
    decision, promised = recipe.notes.decision, {} if coverage is None else {"coverage": coverage}
    if decision is None:
        return promised
    if decision.outcome != "routed":
        warn(decision.told)
    abstained = decision.outcome == "abstained"
    return promised | {
        "rule": decision.rule,
        "passes": decision.passes,
        "abstained": abstained,
        "reason": decision.reason,
    }


def _model(recipe: "Recipe", library: "Library") -> "TaskModel":
    import torch

    from smatter.live.model import open_task

    torch.set_num_threads(1)
    quiet_transformers()
    mixtures = (each.mixture_in(library.manifest.digests) for each in library.networks(recipe))
    needed = {library.manifest.base, *(name for mixture in mixtures for name in mixture.active_sources)}
    with progress_bar("checking files", sum(library.manifest.source(name).n_bytes for name in needed)) as progress:
        library.verify(tuple(needed), progress)
    return open_task(recipe, library)


def _given(where: str, takes_images: bool) -> "Iterator[Input]":
    """The inputs, which must be of the kind that the network takes."""
    from smatter.tasks.inputs import input_kind, read_inputs, read_lines

    takes: Kind = "images" if takes_images else "texts"
    if where == "-":
        return read_lines(sys.stdin.buffer if sys.stdin else io.BytesIO(), takes)
    if (kind := input_kind(Path(where))) != takes:
        raise InvalidSupport(f"{where} holds {kind} and the library's network takes {takes}: use a library for {kind}")
    return read_inputs(Path(where))


@contextmanager
def _bar(total: int | None) -> Iterator[Progress]:
    """A bar where it is known how much there is, and where it does not stand among the predictions."""
    if total is None:
        yield silent
        return
    with progress_bar("predicting", total, "steps") as progress:
        yield progress


def _answers(model: "TaskModel", given: "Iterator[Input]", transductive: bool) -> "Iterator[tuple[Answer, ...]]":
    """Answers chunk by chunk, or all at once where inputs help each other."""
    from smatter.live.stream import predict_stream

    if not transductive:
        yield from predict_stream(model, given)
        return
    from smatter.live.transduce import predict_together

    answers, learnt = predict_together(model, given)
    warn(str(learnt))
    yield answers


def _write(
    answers: "Iterator[tuple[Answer, ...]]",
    file: TextIO,
    header: str,
    line: "Callable[[Answer], str]",
    progress: Progress,
) -> tuple[int, int]:
    """Predict and write chunk by chunk; how many rows, and how many of them have no prediction."""
    n_rows = n_unreadable = 0
    for chunk in answers:
        file.write("".join([header if not n_rows else "", *map(line, chunk)]))
        file.flush()
        n_rows += len(chunk)
        n_unreadable += sum(answer.prediction is None for answer in chunk)
        progress(len(chunk))
    if not n_rows:
        raise InvalidSupport("standard input is empty; give a text, or the path of a picture, per line")
    return n_rows, n_unreadable


def _form(
    top: int | None, n_classes: int, limit: float | None, decided: dict[str, Any] | None
) -> "tuple[str, Callable[[Answer], str]]":
    """The header, and how an answer is told: in JSON with what was decided for the task, or else in CSV."""
    if decided is not None:
        return "", _record(top, decided, limit)
    told = min(top or 1, n_classes)
    return _csv_line(_columns(told, limit)), _row(told, limit)


def _columns(n_classes: int, limit: float | None) -> list[str]:
    sets = [] if limit is None else ["set"]
    others = (f"{name}_{number}" for number in range(2, n_classes + 1) for name in ("class", "probability"))
    return ["input", "class", "probability", *others, *sets, "error"]


def _row(n_classes: int, limit: float | None) -> "Callable[[Answer], str]":
    """How an answer is told in CSV; names in a set stand in a row of CSV of their own."""

    def told(answer: "Answer") -> str:
        best = answer.prediction.top(n_classes) if answer.prediction else (("", ""),) * n_classes
        names = answer.prediction.within(limit) if answer.prediction and limit is not None else ()
        sets = [] if limit is None else [_csv_line(names).removesuffix("\n")]
        return _csv_line([answer.name, *(cell for pair in best for cell in pair), *sets, answer.error])

    return told


def _record(top: int | None, decided: dict[str, Any], limit: float | None) -> "Callable[[Answer], str]":
    """How an answer is told in JSON, with what was decided for the task."""

    def told(answer: "Answer") -> str:
        data: dict[str, Any] = {"input": answer.name}
        if answer.prediction is None:
            return json.dumps(data | {"error": answer.error} | decided) + "\n"
        best = [{"class": name, "probability": share} for name, share in answer.prediction.top(top or 1)]
        sets = {} if limit is None else {"set": answer.prediction.within(limit)}
        return json.dumps(data | best[0] | ({"top": best} if top else {}) | sets | decided) + "\n"

    return told


def _csv_line(cells: Iterable[object]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(cells)  # with its own ending, or it would not quote a lone carriage return
    return line.getvalue().removesuffix("\r\n") + "\n"
