"""Hostile files of Smatter's own kinds: manifests, recipes, routers, profiles, caches, suites, lists, trainings."""

import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from trust_cases import Case, Words, json_cases, load, mutations, read_tensors, save, write_tensors
from trust_world import World

Chains = Sequence[Sequence[Words]]


def library_cases(template: World) -> list[Case]:
    def chains(world: World) -> Chains:
        check, listing = ["library", "check", world.texts], ["library", "list", world.texts, "--modules"]
        return [
            [check],
            [listing, ["library", "list", world.texts, "--json"]],
            [world.compose("-o", str(world.out))],
            [world.adapt()],
            [world.predict()],
            [["library", "add", world.texts, world.candidate, "--name", "more", "--store", "delta"]],
            [["library", "remove", world.texts, "food"]],
            [["library", "safe", world.texts, "law"]],
            [["library", "experts", world.texts, world.router]],
        ]

    cases = json_cases("library.json", "texts/library.json", 110, chains, template)
    manifest = load(template.texts / "library.json")
    for place in ("/etc", "../../../etc", "..", ".", "checkpoints/../../outside", "linked", "sources",
        "/proc/self/root",
                  "checkpoints/law/../base", "sources/" + "0" * 64, "a\nb", "~/x"):  # fmt: skip

        def lay_out(world: World, place: str = place) -> Sequence[Words]:
            changed = json.loads(json.dumps(manifest))
            changed["sources"][1]["path"] = place
            save(world.texts / "library.json", changed)
            return [
                ["library", "list", world.texts],
                ["library", "check", world.texts],
                world.compose("-o", str(world.out)),
            ]

        cases.append(Case("library.json", f"path {place!r}", lay_out))
    cases += [
        Case("library.json", f"{which} is a {what}", lambda world, which=which, what=what: _spoiled(world, which, what))
        for which in ("sources", "experts", "library.json", ".smatter-seal.json")
        for what in ("link to a folder", "link to nowhere", "link to itself", "file", "pipe")
    ]
    for number, (name, changed) in enumerate(mutations(_sealed(template), 20, seed=8)):

        def lay_seal(world: World, changed: Any = changed, number: int = number) -> Sequence[Words]:
            save(world.texts / ".smatter-seal.json", changed)
            return [chains(world)[number % 5][0]]

        cases.append(Case("seal", name, lay_seal))
    return cases


def _sealed(template: World) -> Any:
    from smatter.library.library import open_library

    open_library(template.texts).verify()
    seal = template.texts / ".smatter-seal.json"
    found = load(seal) if seal.exists() else {"files": {"checkpoints/base/model.safetensors": [1, 2, 3, 4, "0" * 64]}}
    seal.unlink(missing_ok=True)
    return found


def _spoiled(world: World, which: str, what: str) -> Sequence[Words]:
    """Put something else in a place of the library, then write there."""
    path = world.texts / which
    if path.exists():
        path.rename(world.home / "aside")
    if what == "file":
        path.write_text("mine")
    elif what == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to({"link to a folder": world.home / "outside", "link to nowhere": "nowhere"}.get(what, which))
    add: Words = ["library", "add", world.texts, world.candidate, "--name", "more", "--store", "int8"]
    return [["library", "list", world.texts], add, ["library", "remove", world.texts, "more"]]


def recipe_cases(template: World) -> list[Case]:
    cases = []
    for place, library, extra in (("recipe", "texts", []), ("picture_recipe", "pictures", ["--router"])):
        header, data = read_tensors(getattr(template, place))
        told = json.loads(header["__metadata__"]["smatter_recipe"])

        def commands(world: World, place: str = place, library: str = library, routed: bool = bool(extra)) -> Chains:
            recipe, folder = getattr(world, place), world.home / library
            router = ["--router", world.router] if routed else []
            inputs = world.examples if routed else world.inputs_txt
            return [
                [["predict", recipe, inputs, "--library", folder, *router]],
                [["compose", folder, "--recipe", recipe, "-o", world.out, *router]],
                [["compose", folder, "--recipe", recipe, *router]],
                [["compose", folder, "--recipe", recipe, "--as", "mergekit", "-o", world.home / "m.yaml", *router]],
                [["compose", folder, "--recipe", recipe, "--verify", *router]],
                [["adapt", folder, "--refit", recipe, "--renormalise", "-o", world.home / "r.safetensors"]],
            ]

        for number, (name, changed) in enumerate(mutations(told, 60, seed=5)):

            def lay_out(world: World, changed: Any = changed, number: int = number, place: str = place,
                        header: Any = header, data: bytes = data,
                        commands: Any = commands) -> Sequence[Words]:  # fmt: skip
                told = {"smatter_recipe": json.dumps(changed)}
                write_tensors(getattr(world, place), header | {"__metadata__": told}, data)
                chains = commands(world)
                return chains[number % len(chains)]

            cases.append(Case("recipe", f"{place}: {name}", lay_out, codes=(0, 1, 2) if number % 6 == 4 else (0, 2)))
        bare = {name: entry for name, entry in header.items() if name != "__metadata__"}
        for number, (name, changed) in enumerate(mutations(bare, 30, seed=6)):

            def lay_tensors(world: World, changed: Any = changed, number: int = number, place: str = place,
                            header: Any = header, data: bytes = data,
                            commands: Any = commands) -> Sequence[Words]:  # fmt: skip
                write_tensors(getattr(world, place), {"__metadata__": header["__metadata__"], **changed}, data)
                chains = commands(world)
                return chains[number % len(chains)]

            cases.append(Case("recipe", f"{place}, tensors: {name}", lay_tensors))
    return cases


def router_cases(template: World) -> list[Case]:
    def chains(world: World) -> Chains:
        router = ("--router", str(world.router))
        return [
            [world.adapt_pictures(*router)],
            [world.adapt_pictures(*router, "--method", "refined", "--set", "n_steps=1")],
            [["library", "experts", world.pictures, world.router]],
            [["predict", world.picture_recipe, world.examples, "--library", world.pictures, *router]],
            [["compose", world.pictures, "--recipe", world.picture_recipe, *router, "-o", world.out]],
            [world.adapt_pictures(*router, "--cache", str(world.cache), "--report", str(world.home / "page.html"))],
        ]

    cases = json_cases("router", "router/router.json", 60, chains, template)

    def bound(world: World, file: str) -> None:
        """Let router.json say the digest of a changed file."""
        table = load(world.router / "router.json")
        key = {"router.safetensors": "weights", "experts.safetensors": "experts"}[file]
        digest = hashlib.sha256((world.router / file).read_bytes()).hexdigest()
        save(world.router / "router.json", table | {key: digest})

    for file, family in (("router.safetensors", "router"), ("experts.safetensors", "bank")):
        header, data = read_tensors(template.router / file)
        for number, (name, changed) in enumerate(mutations(header, 30, seed=7)):

            def lay_out(world: World, changed: Any = changed, number: int = number, file: str = file,
                        data: bytes = data) -> Sequence[Words]:  # fmt: skip
                write_tensors(world.router / file, changed, data)
                bound(world, file)
                every = chains(world)
                return every[number % len(every)]

            cases.append(Case(family, f"{file}: {name}", lay_out))
        for number, spoil in enumerate((_zeros, _ones, _cut, _doubled, _emptied)):
            for index in range(3):

                def lay_bytes(
                    world: World, spoil: Any = spoil, index: int = index, file: str = file
                ) -> Sequence[Words]:
                    path = world.router / file
                    path.write_bytes(spoil(path.read_bytes()))
                    bound(world, file)
                    return chains(world)[index * 2]

                cases.append(Case(family, f"{file}: {spoil.__name__[1:]} {number}.{index}", lay_bytes))
    header, data = read_tensors(template.router / "experts.safetensors")
    key = next(iter(header["__metadata__"]))
    for number, (name, changed) in enumerate(mutations(json.loads(header["__metadata__"][key]), 40, seed=9)):

        def lay_bank(world: World, changed: Any = changed, number: int = number) -> Sequence[Words]:
            told = header | {"__metadata__": {key: json.dumps(changed)}}
            write_tensors(world.router / "experts.safetensors", told, data)
            bound(world, "experts.safetensors")
            every = chains(world)
            return every[number % len(every)]

        cases.append(Case("bank", f"header: {name}", lay_bank))
    return cases


def _body(raw: bytes) -> int:
    return 8 + int.from_bytes(raw[:8], "little")


def _zeros(raw: bytes) -> bytes:
    return raw[: _body(raw)] + bytes(len(raw) - _body(raw))


def _ones(raw: bytes) -> bytes:
    return raw[: _body(raw)] + b"\xff" * (len(raw) - _body(raw))


def _cut(raw: bytes) -> bytes:
    return raw[: len(raw) // 2]


def _doubled(raw: bytes) -> bytes:
    return raw + raw


def _emptied(raw: bytes) -> bytes:
    return raw[:0]


def profile_cases(template: World) -> list[Case]:
    def chains(world: World) -> Chains:
        words = ["profile", world.pictures, "-o", world.home / "p.json"]
        return [
            [[*words, "--from", world.profile, "--margin", "2"]],
            [[*words, "--table", world.profile]],
            [["profile", world.pictures, "-o", world.profile, "--method", "bytes", "--replace"]],
        ]

    cases = json_cases("profile", "profile.json", 60, chains, template)
    for number, table in enumerate(
        ([], {}, {"base": 1}, {"a": "b"}, {"base": 1e308, "x": 1e308}, {"base": -1}, {"encoder.layer.0.mlp": 2**70},
         {"base": None}, [[]], "x", 3, {"unit": "\x1b[31m", "base": 1, "costs": {}})
    ):  # fmt: skip

        def lay_out(world: World, table: Any = table) -> Sequence[Words]:
            save(world.home / "table.json", table)
            return [["profile", world.pictures, "-o", world.home / "p.json", "--table", world.home / "table.json"]]

        cases.append(Case("profile", f"table {number}", lay_out))
    return cases


def cache_cases(template: World) -> list[Case]:
    """A damaged result is none: adapting goes on without it."""
    facts = next(path for path in template.cache.iterdir() if path.suffix == ".json")
    recipe = facts.with_suffix(".safetensors")
    cases = []

    def adapting(spoil: Callable[[World], None]) -> Callable[[World], Sequence[Words]]:
        def lay_out(world: World) -> Sequence[Words]:
            spoil(world)
            return [world.adapt("--cache", str(world.cache)), world.adapt("--cache", str(world.cache))]

        return lay_out

    for name, changed in mutations(load(facts), 40, seed=10):
        spoil = adapting(lambda world, changed=changed: save(world.cache / facts.name, changed))
        cases.append(Case("cache", name, spoil, codes=(0,)))
    for change in (_zeros, _ones, _cut, _doubled, _emptied):
        spoil = adapting(lambda world, change=change: _rewrite(world.cache / recipe.name, change))
        cases.append(Case("cache", f"recipe: {change.__name__[1:]}", spoil, codes=(0,)))

    def folder(world: World) -> None:
        (world.cache / facts.name).unlink()
        (world.cache / facts.name).mkdir()

    def pipe(world: World) -> None:
        (world.cache / facts.name).unlink()
        os.mkfifo(world.cache / facts.name)

    def link(world: World) -> None:
        (world.cache / facts.name).unlink()
        (world.cache / facts.name).symlink_to(world.home / "outside/diary.txt")

    for spoil in (folder, pipe, link):
        cases.append(Case("cache", f"a {spoil.__name__}", adapting(spoil), codes=(0,)))
    for name in ("notes.txt", "link", "taken"):
        cases.append(
            Case("cache", f"in {name}", lambda world, name=name: [world.adapt("--cache", str(world.home / name))])
        )
    return cases


def _rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def suite_cases(template: World) -> list[Case]:
    def chains(world: World) -> Chains:
        task = ["suite", "task", world.suite, "--split", "all"]
        return [
            [["suite", "show", world.suite]],
            [[*task, "-o", world.out]],
            [["suite", "show", world.suite, "--json"]],
            [["suite", "freeze", world.suite, "-o", world.home / "l.json", "--tasks", "2", "--split", "all"]],
            [["suite", "build", world.suite, "-o", world.out]],
            [world.train("--steps", "1")],
        ]

    def lists(world: World) -> Chains:
        task = ["suite", "task", world.suite, "--list", world.list_file]
        return [[task], [[*task, "-o", world.out]], [[*task, "--index", "2"]]]

    cases = json_cases("suite", "suite/suite.json", 70, chains, template)
    cases += json_cases("list", "list.json", 50, lists, template)
    pictures = sorted(path.name for path in template.suite.iterdir() if path.suffix != ".json")
    for file in pictures:
        for change in (_zeros, _cut, _doubled, _emptied):

            def lay_out(world: World, file: str = file, change: Any = change) -> Sequence[Words]:
                path = world.suite / file
                path.write_bytes(change(path.read_bytes()) if change is not _zeros else bytes(1000))
                return chains(world)[1]

            cases.append(Case("suite", f"{file}: {change.__name__[1:]}", lay_out))
    return cases


def training_cases(template: World) -> list[Case]:
    """Work folders that are damaged, of another training, or no work folders."""
    del template
    cases = []
    spoils: dict[str, Callable[[Path], object]] = {
        f"state, {change.__name__[1:]}": lambda work, change=change: _rewrite(work / "state.safetensors", change)
        for change in (_zeros, _ones, _cut, _doubled, _emptied)
    }
    spoils |= {
        "log cut": lambda work: _rewrite(work / "log.jsonl", _cut),
        "log garbage": lambda work: (work / "log.jsonl").write_bytes(b"\xff\x00" * 100),
        "log gone": lambda work: (work / "log.jsonl").unlink(),
        "log a folder": lambda work: ((work / "log.jsonl").unlink(), (work / "log.jsonl").mkdir()),
        "state a folder": lambda work: ((work / "state.safetensors").unlink(), (work / "state.safetensors").mkdir()),
        "state a pipe": lambda work: ((work / "state.safetensors").unlink(), os.mkfifo(work / "state.safetensors")),
        "state a link": lambda work: ((work / "state.safetensors").unlink(),
                                      (work / "state.safetensors").symlink_to("../outside/diary.txt")),
    }  # fmt: skip
    for name, spoil in spoils.items():

        def lay_out(world: World, spoil: Callable[[Path], object] = spoil) -> Sequence[Words]:
            _trained_before(world)
            spoil(world.home / "trained.work")
            return [world.train()]

        cases.append(Case("training", name, lay_out))

    def settings(world: World) -> Sequence[Words]:
        _trained_before(world)
        return [world.train("--seed", "5")]

    cases.append(Case("training", "another training", settings, refused=True))
    for place in ("notes.txt", "link", "texts", "taken"):
        words: Callable[[World], Sequence[Words]] = lambda world, place=place: [  # noqa: E731
            world.train("--work", str(world.home / place), "--steps", "1")
        ]
        cases.append(Case("training", f"work in {place}", words))
        out: Callable[[World], Sequence[Words]] = lambda world, place=place: [  # noqa: E731
            [
                "train",
                world.pictures,
                world.suite,
                "-o",
                world.home / place,
                "--steps",
                "1",
                "--workers",
                "0",
                "--replace",
            ]
        ]
        cases.append(Case("training", f"over {place}", out, refused=True))
    return cases


def _trained_before(world: World) -> None:
    """A training that was stopped after a step: made once, then copied."""
    kept = world.home.parent / "training"
    if not kept.exists():
        from smatter.cli.main import main

        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            assert main(world.train()) == 0
        shutil.copytree(world.home / "trained.work", kept)
        shutil.rmtree(world.home / "trained")
        return
    shutil.copytree(kept, world.home / "trained.work", dirs_exist_ok=True)
