"""`smatter library init|add|remove|experts|safe|list|check`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from smatter.cli.output import Json, human_size, print_table, progress_bar, say, shell, show

if TYPE_CHECKING:
    from smatter.library.findings import Finding

app = typer.Typer(help="Make and inspect a library: checkpoints of one architecture.")

Folder = Annotated[Path, typer.Argument(metavar="LIB", help="The library's folder.", show_default=False)]
Form = Literal["whole", "delta", "bf16-delta", "low-rank", "int8"]


Accept = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY", help="Add it in spite of the difference that a refusal calls KEY. Repeatable."),
]


@app.command()
def init(
    folder: Folder,
    base: Annotated[Path, typer.Argument(metavar="BASE", help="The base: a Hugging Face checkpoint folder.")],
    sources: Annotated[
        list[Path] | None, typer.Argument(metavar="[SOURCE...]", help="Others to add: of all of them, or none.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The base's name; its folder's by default.")] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(help="Leave tensors out, such as a task's head: 'classifier.*'. Repeatable.")
    ] = None,
    modules: Annotated[
        str | None, typer.Option(metavar="REGEX", help="For unknown networks: its one group is a module's name.")
    ] = None,
    accept: Accept = None,
    as_json: Json = False,
) -> None:
    """Make a library with its base, and with further sources where they are given."""
    from smatter.library.edit import init_library

    others, told = sources or [], dict[str, Sequence[Any]]()
    how: dict[str, Any] = {"exclude": exclude or (), "module_pattern": modules, "accept": accept or ()}
    with progress_bar("hashing", 2 * sum(map(_size, (base, *others)))) as progress:
        library = init_library(folder, base, name, progress=progress, sources=others, watch=told.__setitem__, **how)
    added = {name: [vars(finding) for finding in findings] for name, findings in told.items()}
    data = {"library": str(folder), "base": library.manifest.base, "modules": len(library.partition.modules)}
    show(data | {"added": added}, as_json, lambda: _tell_library(data, told))


def _tell_library(data: dict[str, Any], added: "Mapping[str, Sequence[Finding]]") -> None:
    say(f"{data['library']}: base {data['base']!r}, {data['modules']} modules")
    for name, findings in added.items():
        say(f"added {name!r}")
        _tell_findings(findings)
    if not added:
        say(f"add sources with: smatter library add {shell(data['library'])} SOURCE...")


@app.command()
def add(
    folder: Folder,
    sources: Annotated[list[Path], typer.Argument(metavar="SOURCE...", help="Checkpoint folders.")],
    name: Annotated[str | None, typer.Option(help="The source's name; its folder's by default.")] = None,
    store: Annotated[
        Form,
        typer.Option(
            help="whole: point at it where it is. Others write a smaller copy; delta is exact, the rest say their error"
        ),
    ] = "whole",
    rank: Annotated[int | None, typer.Option(help="For --store low-rank: components kept of each delta [16].")] = None,
    accept: Accept = None,
    as_json: Json = False,
) -> None:
    """Add checkpoints that mix with the base; refuse those that do not."""
    from smatter.library.edit import add_source

    if name is not None and len(sources) > 1:
        raise typer.BadParameter("--name goes with one source")
    added = []
    for source in sources:
        with progress_bar(f"adding {source.name}", 2 * _size(source)) as progress:
            library, findings = add_source(
                folder, source, name, form=store, rank=rank, accept=accept or (), progress=progress
            )
        entry = library.manifest.sources[-1]
        added.append(entry.model_dump(mode="json") | {"findings": [vars(finding) for finding in findings]})
        if not as_json:
            loss = f", {entry.loss.of_weights:.2%} of the weights' norm lost" if entry.loss else ""
            say(f"added {entry.name!r} as {entry.form}: {human_size(entry.n_bytes)}{loss}")
            _tell_findings(findings)
    if as_json:
        show({"added": added}, True, lambda: None)


@app.command()
def remove(
    folder: Folder,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The source's name, or the first characters of an experts' digest.")
    ],
    as_json: Json = False,
) -> None:
    """Take a source or experts out; a checkpoint that the library points at stays where it is."""
    from smatter.library.edit import remove_experts, remove_source
    from smatter.library.manifest import read_manifest

    manifest = read_manifest(folder)
    is_bank = name not in manifest.digests and any(entry.digest.startswith(name) for entry in manifest.experts)
    left = (remove_experts if is_bank else remove_source)(folder, name).names
    show({"removed": name, "sources": list(left)}, as_json, lambda: say(f"removed {name!r}; left: {', '.join(left)}"))


@app.command()
def experts(
    folder: Folder,
    router: Annotated[Path, typer.Argument(metavar="ROUTER", help="A router that `smatter train` wrote.")],
    as_json: Json = False,
) -> None:
    """Keep a copy of a router's experts, so that recipes that open them need the router no more."""
    from smatter.library.edit import add_experts

    library, digest = add_experts(folder, router)
    name = next(entry.router for entry in library.manifest.experts if entry.digest == digest)
    data = {"library": str(folder), "experts": digest, "router": name}
    show(data, as_json, lambda: say(f"{folder} holds the experts {digest[:12]} of {name}"))


@app.command()
def safe(
    folder: Folder,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The source's name.")],
    as_json: Json = False,
) -> None:
    """Mark the source to fall back to where nothing must go wrong; there is one at most."""
    from smatter.library.edit import mark_safe

    mark_safe(folder, name)
    show({"safe": name}, as_json, lambda: say(f"{name!r} is the safe source of {folder}"))


@app.command("list")
def list_(
    folder: Folder,
    modules: Annotated[bool, typer.Option("--modules", help="Show the modules and their tensors too.")] = False,
    as_json: Json = False,
) -> None:
    """Show the sources; reads the manifest only."""
    from smatter.library.manifest import read_manifest

    manifest = read_manifest(folder)

    roles = {"base": manifest.base, "safe": manifest.safe}

    def text() -> None:
        say(f"{folder}: {len(manifest.sources)} sources of {manifest.architecture}, {len(manifest.modules)} modules")
        rows = [
            [
                source.name + "".join(f" ({role})" for role, owner in roles.items() if owner == source.name),
                source.form,
                f"{source.n_parameters / 1e6:.2f} M",
                human_size(source.n_bytes),
                f"{source.loss.of_weights:.2%}" if source.loss else "0",
                source.digest[:12],
                source.path,
            ]
            for source in manifest.sources
        ]
        print_table(["source", "form", "parameters", "on disk", "error", "contents", "path"], rows)
        for bank in manifest.experts:
            say(f"experts {bank.digest[:12]} of router {bank.router}, {human_size(bank.size)}")
        if modules:
            for module, tensors in manifest.modules.items():
                say(f"{module}: {', '.join(tensors)}")

    data = manifest.model_dump(mode="json", by_alias=True)
    if not modules:
        data["modules"] = list(data["modules"])
    show(data, as_json, text)


@app.command()
def check(folder: Folder, as_json: Json = False) -> int:
    """Hash and read everything; name what makes mixing meaningless; count the distinct sources."""
    from smatter.library.check import check_library
    from smatter.library.library import open_library

    library = open_library(folder)
    total = sum(source.n_bytes for source in library.manifest.sources)
    with progress_bar("checking", 3 * total) as progress:
        report = check_library(library, progress)

    def text() -> None:
        for finding in report.findings:
            say(f"{finding.severity}: {finding}")
        if report.similarity:
            similarity = report.similarity
            rows = [
                [name, f"{similarity.overall_cosine[i]:.4f}", f"{worst:.4f}", similarity.modules[where]]
                for i, name in enumerate(similarity.names)
                for where, worst in [min(enumerate(similarity.cosine_to_base[:, i]), key=lambda pair: pair[1])]
            ]
            print_table(["source", "cosine to base", "lowest", "in module"], rows)
            say(f"{report.n_distinct} of {len(similarity.names)} sources are distinct")
        for bank in report.experts:
            say(f"experts {bank.digest[:12]} of router {bank.router}")
        for path in report.orphans:
            say(f"orphan: {path} is of no source: delete it if nobody is writing to the library")
        say("fit to mix" if report.ok else "not fit to mix")

    show(report.to_dict(), as_json, text)
    return 0 if report.ok else 2


def _tell_findings(findings: "Sequence[Finding]") -> None:
    for finding in findings:
        say(f"  {finding.severity}: {finding.message}")


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.safetensors") if file.is_file())
