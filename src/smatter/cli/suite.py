"""`smatter suite list|show|build|freeze|task`."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from smatter.cli.output import Json, check_new_file, human_size, print_table, progress_bar, say, shell, show
from smatter.errors import InvalidSuite
from smatter.records import printable
from smatter.tasks.splits import SPLITS

if TYPE_CHECKING:
    from smatter.tasks.sampler import Range, SamplerSettings
    from smatter.tasks.shifts.catalogue import Shift
    from smatter.tasks.suite import Domain, Suite

app = typer.Typer(help="Few-shot tasks: from your own data or from a suite that is shipped.")

Where = Annotated[
    str,
    typer.Argument(
        metavar="SUITE",
        help="A shipped suite's name, a built suite, a folder tree domain/class/*.png, or a .csv or .jsonl file.",
        show_default=False,
    ),
]
Held = Annotated[list[str] | None, typer.Option("--ood", metavar="DOMAIN", help="Hold this domain out. Repeatable.")]
Side = Annotated[
    int | None, typer.Option("--size", metavar="PIXELS", min=1, help="For a folder tree: side of its pictures.")
]
SplitName = Annotated[
    Literal["source", "router", "validation", "calibration", "test", "all"],
    typer.Option("--split", help="Classes to draw from."),
]
RoleName = Annotated[Literal["id", "ood"], typer.Option("--role", help="Domains to draw from.")]
Way = Annotated[str, typer.Option(metavar="N|N-M", help="Classes of a task, or their range.")]
Shot = Annotated[str, typer.Option(metavar="N|N-M", help="Support examples of a class, or their range.")]
Query = Annotated[int, typer.Option(min=1, help="Query examples of a class.")]
Mixed = Annotated[str, typer.Option("--domains", metavar="N|N-M", help="Domains that the classes of a task come from.")]
Gamma = Annotated[float, typer.Option("--ood-fraction", help="Share of tasks from domains that are held out.")]
Only = Annotated[list[str] | None, typer.Option("--domain", metavar="NAME", help="Draw from this one. Repeatable.")]
Shifts = Annotated[
    list[str] | None,
    typer.Option("--shift", metavar="NAME[:KEY=VALUE,...]", help="Change the tasks so; in this order. Repeatable."),
]
ListFile = Annotated[
    Path | None,
    typer.Option("--list", metavar="FILE", help="Take the task from this frozen list, with the list's settings."),
]
TaskFolder = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="OUT", help="Write its support and query examples there.")
]
Seed = Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Of all randomness.")]
Replace = Annotated[bool, typer.Option("--replace", help="Overwrite an older one.")]


@app.command("list")
def list_(as_json: Json = False) -> None:
    """Show the suites that are shipped."""
    from smatter.tasks.open import open_suite, shipped_suites

    suites = [_summary(open_suite(name)) for name in shipped_suites()]

    def text() -> None:
        if not suites:
            say("no suite is shipped with this installation; give a folder tree or a table of your own")
            return
        keys = ("suite", "kind", "n_domains", "n_classes", "n_examples")
        rows = [[str(suite[key]) for key in keys] for suite in suites]
        print_table(["suite", "kind", "domains", "classes", "examples"], rows)

    show({"suites": suites}, as_json, text)


@app.command("show")
def show_(where: Where, ood: Held = None, side: Side = None, as_json: Json = False) -> None:
    """Show a suite's domains, classes, examples, splits, packages and licences."""
    with _told(as_json) as told:
        suite = _open(where, ood, side)
    domains = [_domain(suite, domain) for domain in suite.domains]
    data = _summary(suite) | {"digest": suite.digest, "domains": domains, "packages": list(suite.packages)}

    def text() -> None:
        counted = f"{len(domains)} {'domain' if len(domains) == 1 else 'domains'}"
        say(f"{suite.name}: {data['n_examples']} {suite.kind} of {data['n_classes']} classes in {counted}")
        rows = [
            [
                each["name"], each["role"], str(each["n_classes"]), str(each["n_examples"]),
                str(each["n_styles"] or "-"), *(str(each["splits"][split] or "-") for split in SPLITS), each["title"],
            ]
            for each in domains
        ]  # fmt: skip
        print_table(["domain", "role", "classes", "examples", "styles", *SPLITS, "title"], rows)
        if suite.packages:
            say("")
            columns = ("name", "version", "registry", "licence", "use")
            rows = [[_line(package[column]) for column in columns] for package in suite.packages]
            print_table(["package", *columns[1:]], rows)

    show(data | {"warnings": told}, as_json, text)


@app.command()
def build(
    where: Where,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="OUT", help="The folder to write.")],
    ood: Held = None,
    side: Side = None,
    name: Annotated[str | None, typer.Option(help="The suite's name; the folder's by default.")] = None,
    replace: Replace = False,
    as_json: Json = False,
) -> None:
    """Pack a folder tree of pictures, or a table of texts, into a small folder that opens at once."""
    from smatter.files.writing import check_free
    from smatter.tasks.packed import is_packed, read_packed, write_packed

    check_free(output, replace and is_packed(output))
    with _told(as_json) as told:
        suite = _open(where, ood, side, name)
    with progress_bar("packing", len(suite.domains), "steps") as progress:
        write_packed(output, suite, replace, progress)
    size = sum(file.stat().st_size for file in output.iterdir())
    built = read_packed(output)
    data = _summary(built) | {"output": str(output), "digest": built.digest, "n_bytes": size, "warnings": told}

    what = "pictures" if built.kind == "images" else "texts"

    def text() -> None:
        say(
            f"wrote {output} ({human_size(size)}): {data['n_examples']} {what} of {data['n_classes']} classes in "
            f"{data['n_domains']} domains"
        )

    show(data, as_json, text)


@app.command()
def freeze(
    where: Where,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The list's file, .json.")],
    n_tasks: Annotated[int, typer.Option("--tasks", min=1, help="How many tasks.")] = 200,
    name: Annotated[str | None, typer.Option(help="The list's name; the file's by default.")] = None,
    split: SplitName = "validation",
    role: RoleName = "id",
    way: Way = "5",
    shot: Shot = "5",
    query: Query = 10,
    domains: Mixed = "1",
    ood_fraction: Gamma = 0.0,
    domain: Only = None,
    shift: Shifts = None,
    seed: Seed = 0,
    ood: Held = None,
    side: Side = None,
    replace: Replace = False,
    as_json: Json = False,
) -> None:
    """Freeze a list of tasks: a small file that gives everybody the same ones."""
    from smatter.tasks.lists import TaskList, is_list, write_list
    from smatter.tasks.sampler import Sampler

    check_new_file(output, replace, lambda: is_list(output), "list of tasks")
    settings = _settings(
        split, role, way, shot=shot, query=query, domains=domains, ood_fraction=ood_fraction, only=domain
    )
    shifts = parse_shift_options(shift)
    with _told(as_json) as told:
        suite = _open(where, ood, side)
    tasks = TaskList(name or output.stem, Sampler(suite, settings, seed), n_tasks, shifts)
    write_list(output, tasks)
    data = {
        "output": str(output), "list": tasks.name, "tasks": n_tasks, "suite": suite.name, "digest": tasks.digest,
        "warnings": told,
    }  # fmt: skip
    show(data, as_json, lambda: say(f"wrote {output}: {n_tasks} tasks of {suite.name}"))


@app.command()
def task(
    where: Where,
    index: Annotated[int, typer.Option(min=0, help="Which task.")] = 0,
    file: ListFile = None,
    output: TaskFolder = None,
    split: SplitName = "validation",
    role: RoleName = "id",
    way: Way = "5",
    shot: Shot = "5",
    query: Query = 10,
    domains: Mixed = "1",
    ood_fraction: Gamma = 0.0,
    domain: Only = None,
    shift: Shifts = None,
    seed: Seed = 0,
    ood: Held = None,
    side: Side = None,
    replace: Replace = False,
    as_json: Json = False,
) -> None:
    """Show one task, or write it as a folder that `smatter adapt` takes."""
    from smatter.files.writing import check_free
    from smatter.tasks.export import is_task, write_task
    from smatter.tasks.lists import TaskList, read_list
    from smatter.tasks.sampler import Sampler

    if output is not None:
        check_free(output, replace and is_task(output))
    settings = _settings(
        split, role, way, shot=shot, query=query, domains=domains, ood_fraction=ood_fraction, only=domain
    )
    shifts = parse_shift_options(shift)
    with _told(as_json) as told:
        suite = _open(where, ood, side)
    tasks = read_list(file, suite) if file else TaskList("task", Sampler(suite, settings, seed), index + 1, shifts)
    data = tasks.describe(index) | {"warnings": told}
    if output is not None:
        support_at, query_at = write_task(output, tasks.episode(index), replace)
        data |= {"support": str(support_at), "query": str(query_at)}
    show(data, as_json, lambda: _tell_task(data, output))


def _tell_task(data: dict[str, Any], output: Path | None) -> None:
    say(f"task {data['index']} of {data['suite']}, from {', '.join(data['domains'])}")
    rows = [[_line(each["name"]), str(each["n_support"]), str(each["n_query"])] for each in data["classes"]]
    print_table(["class", "support", "query"], rows)
    if output is None:
        say("nothing was written; give -o OUT to keep its examples")
    else:
        say(f"wrote {output}; to adapt to it:", f"  smatter adapt LIB {shell(data['support'])}")


def _open(where: str, ood: list[str] | None, side: int | None, name: str | None = None) -> "Suite":
    from smatter.tasks.open import n_files, open_suite

    with progress_bar("reading pictures", n_files(where), "steps") as progress:
        return open_suite(where, ood or (), side, name, progress)


def _settings(
    split: Any, role: Any, way: str, shot: str, query: int, domains: str, ood_fraction: float, only: list[str] | None
) -> "SamplerSettings":
    from smatter.tasks.sampler import SamplerSettings

    ranges = (_range(text, option) for text, option in ((way, "--way"), (shot, "--shot"), (domains, "--domains")))
    n_way, n_shot, n_domains = ranges
    return SamplerSettings(
        split,
        role,
        n_way,
        n_shot=n_shot,
        n_query=query,
        n_domains=n_domains,
        ood_fraction=ood_fraction,
        domains=tuple(only or ()),
    )


def _range(text: str, option: str) -> "Range":
    low, _, high = text.partition("-")
    try:
        return int(low), int(high or low)
    except ValueError:
        raise InvalidSuite(f"{option} {text[:80]!r} is neither a number nor a range such as 5-20") from None


def parse_shift_options(texts: list[str] | None) -> "tuple[Shift, ...]":
    """`label-noise:rate=.2,kind=pairs` as shifts."""
    from smatter.tasks.shifts.catalogue import parse_shifts

    tables: list[dict[str, str | int | float]] = []
    for text in texts or ():
        name, _, rest = text.partition(":")
        pairs = [pair.partition("=") for pair in rest.split(",") if pair]
        tables.append({"shift": name, **{key.strip(): _value(value.strip()) for key, _, value in pairs}})
    return parse_shifts(tables)


def _value(text: str) -> str | int | float:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _summary(suite: "Suite") -> dict[str, Any]:
    return {
        "suite": suite.name,
        "kind": suite.kind,
        "n_domains": len(suite.domains),
        "n_classes": sum(len(domain.classes) for domain in suite.domains),
        "n_examples": sum(len(domain.store) for domain in suite.domains),
    }


def _domain(suite: "Suite", domain: "Domain") -> dict[str, Any]:
    return {
        "name": domain.name,
        "title": domain.title,
        "role": domain.role,
        "n_classes": len(domain.classes),
        "n_examples": len(domain.store),
        "n_styles": len(domain.styles),
        "styles": list(domain.styles),
        "splits": {str(split): len(suite.classes(domain, split)) for split in SPLITS},
        "packages": list(domain.packages),
    }


def _line(text: str, n_characters: int = 80) -> str:
    """Text on one line that a terminal can show."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= n_characters else f"{line[: n_characters - 3]}..."


@contextmanager
def _told(as_json: bool) -> Iterator[list[str]]:
    """Gathers warnings for the JSON; people, and whoever gets no result, read them on standard error."""
    lines: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        is_done = False
        try:
            yield lines
            is_done = True
        finally:
            lines += [str(each.message) for each in caught]
            if not (as_json and is_done):
                for line in lines:
                    print(f"smatter: warning: {_line(line, 500)}", file=sys.stderr)
