"""Hostile requests: names that a terminal would obey, places to write that are taken, options, patterns, merges."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trust_cases import CONTROL, ODD, Case, Words, json_cases, mutations, save
from trust_world import World


def name_cases(template: World) -> list[Case]:
    """Names that a terminal would obey; none of it may reach one."""
    del template
    cases = []
    names = {"escape": "a\x1b[2Jb", "line": "a\nb", "bell": "a\x07", "right to left": "a\u202eb",
        "not utf-8": "caf\udce9",
             "csi": "a\x9b31mb", "dash": "-rf", "dots": "...", "long": "n" * 250, "space": " ", "quote": "a'\"b",
             "percent": "%s%n", "markup": "[bold red]x", "case": "BASE"}  # fmt: skip

    def source(world: World, name: str) -> Sequence[Words]:
        world.candidate.rename(world.home / name)
        add: Words = ["library", "add", world.texts, "--", world.home / name]
        return [add, ["library", "list", world.texts], ["library", "check", world.texts]]

    def option(world: World, name: str) -> Sequence[Words]:
        add: Words = ["library", "add", world.texts, world.candidate, f"--name={name}"]
        return [add, ["library", "list", world.texts], ["library", "list", world.texts, "--json"]]

    def classes(world: World, name: str) -> Sequence[Words]:
        (world.examples / "a").rename(world.examples / name)
        recipe = world.home / "r.safetensors"
        predict: Words = ["predict", recipe, world.examples, "--library", world.pictures]
        return [
            world.adapt_pictures("-o", str(recipe), "--report", str(world.home / "p.html"), "--diagnostics"),
            predict, [*predict, "--json"],
        ]  # fmt: skip

    def picture(world: World, name: str) -> Sequence[Words]:
        (world.examples / "a" / "0.png").rename(world.examples / "a" / f"{name}.png")
        (world.examples / "a" / f"{name}2.png").write_bytes(b"no picture")
        words: Words = ["predict", world.picture_recipe, world.examples, "--library", world.pictures, "--router"]
        return [[*words, world.router], [*words, world.router, "--json"]]

    def domains(world: World, name: str) -> Sequence[Words]:
        (world.home / "tree" / name).mkdir(parents=True)
        world.examples.rename(world.home / "tree" / name / "x")
        return [["suite", "show", world.home / "tree"], ["suite", "build", world.home / "tree", "-o", world.out]]

    def output(world: World, name: str) -> Sequence[Words]:
        place = f"{world.home}/{name}"
        return [[*world.compose(), "-o", place], [*world.adapt(), "-o", f"{place}.safetensors"],
                ["compose", world.texts, "--recipe", f"{place}.safetensors"], [*world.predict(), "-o",
                    f"{place}.csv"]]  # fmt: skip

    def library(world: World, name: str) -> Sequence[Words]:
        world.texts.rename(world.home / name)
        folder = str(world.home / name)
        return [["library", "list", folder], ["library", "check", folder],
                ["compose", folder, "--weights", "base=1", "-o", world.out]]  # fmt: skip

    def asked(world: World, name: str) -> Sequence[Words]:
        return [["compose", world.texts, "--weights", f"{name}=1"]]

    makers = (source, option, classes, picture, domains, output, library, asked)
    for maker in makers:
        for what, name in names.items():
            codes = (0, 1, 2) if maker in (picture, classes) else (0, 2)
            cases.append(
                Case(
                    "name",
                    f"{maker.__name__}, {what}",
                    lambda world, maker=maker, name=name: maker(world, name),
                    codes=codes,
                )
            )
    return cases


def place_cases(template: World) -> list[Case]:
    """Results that would land on something of the user's."""
    del template
    places = ("notes.txt", "taken", "link", "texts", "texts/library.json", "texts/sources", "texts/sources/keep",
              "texts/checkpoints/law", "texts/checkpoints/law/model.safetensors", "outside", "router", "suite", "cache",
              "recipe.safetensors", "examples", "examples.csv", "nowhere/out", "notes.txt/out", "export",
              "profile.json",
              "list.json", "", ".", "..")  # fmt: skip
    writers: dict[str, Callable[[World, Path], Words]] = {
        "folder": lambda world, place: [*world.compose(), "-o", place],
        "recipe": lambda world, place: [*world.compose("--as", "recipe"), "-o", place],
        "merge": lambda world, place: [*world.compose("--as", "mergekit"), "-o", place],
        "adapt": lambda world, place: [*world.adapt(), "-o", place],
        "report": lambda world, place: [*world.adapt(), "--report", place],
        "predict": lambda world, place: [*world.predict(), "-o", place],
        "task": lambda world, place: ["suite", "task", world.suite, "--split", "all", "-o", place],
        "build": lambda world, place: ["suite", "build", world.examples, "-o", place],
        "freeze": lambda world, place: ["suite", "freeze", world.suite, "--split", "all", "--tasks", "2", "-o", place],
        "profile": lambda world, place: ["profile", world.pictures, "--method", "bytes", "-o", place],
        "init": lambda world, place: ["library", "init", place, world.candidate],
    }
    cases = []
    for what, words in writers.items():
        for place in places:
            for replace in (False, True):
                if replace and what in ("predict", "init", "recipe", "merge"):
                    continue

                def lay_out(
                    world: World, words: Any = words, place: str = place, replace: bool = replace
                ) -> Sequence[Words]:
                    return [[*words(world, world.home / place if place not in ("", ".", "..") else place),
                             *(["--replace"] if replace else [])]]  # fmt: skip

                cases.append(Case("place", f"{what} to {place!r}{' --replace' * replace}", lay_out))
    for form in ("whole", "delta", "int8"):
        for where in (
            "texts/sources/new",
            "texts/sources/keep",
            "texts/checkpoints/law",
            "texts",
            "link",
            "texts/linked",
        ):

            def adding(world: World, form: str = form, where: str = where) -> Sequence[Words]:
                folder = world.home / where
                if not folder.exists():
                    shutil.copytree(world.candidate, folder)
                add: Words = ["library", "add", world.texts, folder, "--name", "new", "--store", form]
                return [add, ["library", "remove", world.texts, "new"]]

            cases.append(Case("place", f"add {where} as {form}", adding))
    for where in ("texts", "texts/sources", ".", "cache", "trained.work"):

        def locked(world: World, where: str = where) -> Sequence[Words]:
            (world.home / where).chmod(0o500)
            add: Words = ["library", "add", world.texts, world.candidate, "--name", "n", "--store", "delta"]
            return [add, world.adapt("--cache", str(world.cache)), [*world.compose(), "-o", world.out]]

        cases.append(Case("place", f"{where} is read-only", locked))
    return cases


def request_cases(template: World) -> list[Case]:
    cases = []

    def ask(family: str, name: str, words: Callable[[World], Words]) -> None:
        cases.append(Case(family, name, lambda world: [words(world)]))

    for text in ("", "=", "base", "base=", "base=x", "base=nan", "base=inf", "base=1e400", "base=-1,law=2",
        "base=.5,base=.5",
                 "base=.1", "x=1", "base=1,,", "base=0,law=0", "base=1e-320,law=1", "a" * 10**5, "base=" + "9" * 5000,
                 CONTROL, "weights.json/", "/dev/null", ".json"):  # fmt: skip
        ask("weights", f"{text[:30]!r}", lambda world, text=text: ["compose", world.texts, f"--weights={text}"])
    cases += json_cases(
        "weights", "weights.json", 12, lambda world: [[["compose", world.texts, "--weights", world.weights]]], template
    )
    for odd in ODD:

        def weighing(world: World, odd: Any = odd) -> Sequence[Words]:
            save(world.weights, odd)
            return [["compose", world.texts, "--weights", world.weights]]

        cases.append(Case("weights", f"all is {str(odd)[:20]!r}", weighing))
    for pattern in ("(", "(a+)+$", "((((((((((.*)*)*)*)*)*)*)*)*)*)", "(.*)(.*)", "", "x", "(?P<a>.*)", "(.*)" * 2,
        "(" * 500,
                    "(\\w+\\s?)*!", "([a-z.0-9]+)+!", "(?:(a|a)*)*b(c)", f"({'x?' * 40}{'x' * 40})"):  # fmt: skip
        words: Callable[[World], Words] = lambda world, pattern=pattern: [  # noqa: E731
            "library", "init", world.home / "new", _unknown(world), f"--modules={pattern}",
        ]  # fmt: skip
        ask("pattern", f"modules {pattern[:30]!r}", words)
    for pattern in (
        "*",
        "",
        "[",
        "[!",
        "*a*a*a*a*a*a*a*a*a*a*a*b",
        "?" * 2000,
        "*" * 3000,
        "{a,b}",
        "**/x",
        CONTROL,
        "\\",
    ):
        exclude: Callable[[World], Words] = lambda world, pattern=pattern: [  # noqa: E731
            "library", "init", world.home / "new", world.candidate, f"--exclude={pattern}",
        ]  # fmt: skip
        ask("pattern", f"exclude {pattern[:30]!r}", exclude)
    for setting in ("", "=", "x=1", "n_steps=-1", "n_steps=1e9", "n_steps=x", "temperature=nan", "temperature=1e-320",
                    "temperature=0", "max_sources=0", "max_sources=99999999999999999999", "router=x",
                    CONTROL):  # fmt: skip
        for method in ("evidence", "solver", "greedy_soup", "router", "private", "task_arithmetic"):
            ask("setting", f"{method} {setting[:20]!r}",
                lambda world, method=method, setting=setting: world.adapt("--method", method,
                    f"--set={setting}"))  # fmt: skip
    for shift in (
        "",
        ":",
        "worn:",
        "worn:severity=99",
        "worn:severity=nan",
        "x",
        "worn:target=x",
        f"worn:{CONTROL}",
        "a=b:c",
    ):
        ask("setting", f"shift {shift[:20]!r}",
            lambda world, shift=shift: ["suite", "task", world.suite, "--split", "all",
                f"--shift={shift}"])  # fmt: skip
    for flag, value in (("--way", "5-1"), ("--way", "0"), ("--way", "9" * 50), ("--shot", "a-b"), ("--domains", "-"),
                        ("--ood-fraction", "nan"), ("--ood-fraction", "2"), ("--index", "9" * 30), ("--query",
                            "10000000"),
                        ("--shot", "1-100000000"), ("--domain", CONTROL), ("--size", "100000")):  # fmt: skip
        ask("setting", f"task {flag} {value[:12]!r}",
            lambda world, flag=flag, value=value: ["suite", "task", world.suite, "--split", "all", flag,
                value])  # fmt: skip
    sound = json.dumps({"merge_method": "linear", "models": [{"model": "base", "parameters": {"weight": 1}}]})
    merges = {"sexagesimal": sound.replace(": 1}", ": 190:20:30}"), "huge integer": sound.replace(": 1}",
    ": " + "9" * 20_000 + "}"),
              "octal": sound.replace(": 1}", ": 0o777777777777}"), "binary": sound.replace(": 1}",
              ": !!binary aGVsbG8=}"),
              "object": "!!python/object/apply:os.system ['touch code-was-run']",
              "merge keys": "<<: [&a {<<: *a}]\n" + sound,
              "laughs": "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(f"{c}: &{c} [{','.join(['*' + p] * 9)}]\n"
                        for p, c in zip("abcdefghij", "bcdefghijk", strict=True)) + "merge_method: *k\n",
              "control": sound.replace("base", CONTROL.replace("\n", "").encode("unicode_escape").decode()),
              "timestamp": sound.replace(": 1}", ": 2001-99-99}"), "set": sound.replace("[{",
                  "!!set {? {").replace("}]", "}}"),
              "two documents": sound + "\n---\n" + sound, "tabs": "\t\t" + sound,
              "tag": "%TAG ! tag:x,2000:\n---\n" + sound}  # fmt: skip
    for name, text in merges.items():

        def merging(world: World, text: str = text) -> Sequence[Words]:
            (world.home / "merge.yaml").write_text(text)
            return [["compose", world.texts, "--recipe", world.home / "merge.yaml", "-o", world.out]]

        cases.append(Case("merge", name, merging))
    for name, document in mutations(json.loads(sound), 25, seed=11):

        def merging_json(world: World, document: Any = document) -> Sequence[Words]:
            save(world.home / "merge.yaml", document)
            return [["compose", world.texts, "--recipe", world.home / "merge.yaml"]]

        cases.append(Case("merge", name, merging_json))
    return cases


def _unknown(world: World) -> Path:
    """A network whose modules are not known, with long names."""
    path = world.candidate / "config.json"
    save(path, json.loads(path.read_text()) | {"model_type": "unheard-of"})
    return world.candidate
