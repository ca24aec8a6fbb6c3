"""Many processes on one library and one cache: whatever was published is made of what its recipe pins."""

import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from common import stage
from trust_cases import read_tensors
from trust_world import Server, Stand, World, warm_commands

N_ROUNDS, N_VARIANTS = 320, 4
FORMS = ("whole", "delta", "whole", "int8")
"""How each variant is stored under the one name that they share."""

Tensors = dict[str, np.ndarray]


def neighbours(stand: Stand) -> dict[str, Any]:
    """Rounds of processes that change, read and use one library at once; every second one from two pid namespaces."""
    world, server = stand.fresh(), stand.server
    _make_variants(world)
    apart = Server(warm_commands(world), namespace=True)
    contents = _contents(world, server)
    counts: Counter[str] = Counter()
    faults: list[dict[str, Any]] = []
    n_rounds = 6 if stand.quick else N_ROUNDS
    generator = random.Random(0)
    with stage("rounds of neighbours", n_rounds) as tick:
        for number in range(n_rounds):
            jobs = _jobs(world, number, generator)
            if number % 2:
                server.tell(jobs[::2])
                apart.tell(jobs[1::2])
                answers = [*server.answer(), *apart.answer()]
                jobs = [*jobs[::2], *jobs[1::2]]
            else:
                answers = server.ask(jobs)
            for job, done in zip(jobs, answers, strict=True):
                _judge(job, done, number, counts, faults)
            _verify(world, contents, number, counts, faults)
            tick()
    _settle(world, server, counts, faults)
    apart.close()
    figures = {
        "concurrent_rounds": n_rounds,
        "concurrent_rounds_from_two_pid_namespaces": n_rounds // 2,
        **{name: counts[name] for name in (*COUNTED, "exports_not_as_pinned", "concurrent_faults")},
    }
    return {"figures": figures, "tables": {"concurrent_faults": faults}}


COUNTED = ("concurrent_commands", "concurrent_commands_refused", "exports_verified", "recipes_read")


def _make_variants(world: World) -> None:
    """Checkpoints of different contents that take turns under one name."""
    from safetensors.numpy import load_file, save_file

    base = load_file(world.texts / "checkpoints" / "law" / "model.safetensors")
    for number in range(N_VARIANTS):
        generator = np.random.default_rng(number)
        folder = world.home / "variants" / str(number)
        shutil.copytree(world.texts / "checkpoints" / "law", folder)
        moved = {name: (t + 0.01 * generator.normal(size=t.shape)).astype(t.dtype) for name, t in base.items()}
        save_file(moved, folder / "model.safetensors", metadata={"format": "pt"})


def _contents(world: World, server: Server) -> dict[str, Tensors]:
    """What each content digest stands for, learnt while nobody else is about; int8 changes what is stored."""
    found: dict[str, Tensors] = {}
    for number in range(N_VARIANTS):
        add, remove = _add(world, number), ["library", "remove", str(world.texts), "swap"]
        assert server.run(add, world.home)["code"] == 0
        told = json.loads((world.texts / "library.json").read_text())
        source = next(source for source in told["sources"] if source["name"] == "swap")
        if source["form"] != "int8":
            found[source["digest"]] = _loaded(world.home / "variants" / str(number))
        else:  # the mixture of it alone, checked by `--verify` below
            out = world.home / "alone"
            assert (
                server.run(["compose", str(world.texts), "--weights", "swap=1", "-o", str(out)], world.home)["code"]
                == 0
            )
            found[source["digest"]] = _loaded(out)
            shutil.rmtree(out)
        assert server.run(remove, world.home)["code"] == 0
    for source in json.loads((world.texts / "library.json").read_text())["sources"]:
        found[source["digest"]] = _loaded(world.texts / "checkpoints" / source["name"])
    assert server.run(_add(world, 0), world.home)["code"] == 0
    return found


def _loaded(folder: Path) -> Tensors:
    from safetensors.numpy import load_file

    return load_file(folder / "model.safetensors")


def _add(world: World, number: int) -> list[str]:
    folder = str(world.home / "variants" / str(number))
    return ["library", "add", str(world.texts), folder, "--name", "swap", "--store", FORMS[number]]


def _jobs(world: World, number: int, generator: random.Random) -> list[dict[str, Any]]:
    """What runs at once: two that exchange the source, two that export it, one that adapts, one that checks."""
    remove = ["library", "remove", str(world.texts), "swap"]
    first, second = (generator.randrange(N_VARIANTS) for _ in range(2))
    share = generator.choice((0.25, 0.5, 0.75))
    out = [str(world.home / f"export-{number}-{index}") for index in range(2)]
    recipe = str(world.home / f"recipe-{number}.safetensors")
    compose = ["compose", str(world.texts), "--weights"]
    commands: list[dict[str, Any]] = [
        {"words": remove, "then": [_add(world, first)]},
        {"words": [*compose, f"base={1 - share},swap={share}", "-o", out[0]]},
        {"words": remove, "then": [_add(world, second)]},
        {"words": [*compose, "law=.25,swap=.75", "-o", out[1]], "then": [["library", "list", str(world.texts)]]},
        {"words": world.adapt("--cache", str(world.cache), "-o", recipe)},
        {"words": ["library", "check", str(world.texts)]},
    ]
    return [{"folder": str(world.home), "cpu": 60, **command} for command in commands]


def _judge(job: dict[str, Any], done: dict[str, Any], number: int, counts: Counter[str], faults: list[Any]) -> None:
    """One that comes too late is refused, in a line; nothing else may go wrong."""
    counts["concurrent_commands"] += 1
    lines = done["err"].splitlines()
    sound = done["code"] in (0, 2) and all(line.startswith("smatter: ") for line in lines)
    if done["code"] == 2:
        counts["concurrent_commands_refused"] += 1
    if not sound or "internal error" in done["err"]:
        counts["concurrent_faults"] += 1
        faults.append(
            {
                "round": number,
                "command": " ".join(job["words"])[-120:],
                "code": done["code"],
                "told": done["err"][-300:],
            }
        )


def _verify(world: World, contents: dict[str, Tensors], number: int, counts: Counter[str], faults: list[Any]) -> None:
    """Compare exports, bit by bit, with the mixture of what their recipes pin, worked out here with numpy."""
    for folder in sorted(world.home.glob(f"export-{number}-*")):
        header, data = read_tensors(folder / "recipe.safetensors")
        told = json.loads(header["__metadata__"]["smatter_recipe"])
        begin, end = header["mixture"]["data_offsets"]
        weights = np.frombuffer(data[begin:end], np.float64)
        terms = sorted((digest, float(w)) for (_, digest), w in zip(told["sources"], weights, strict=True) if w)
        counts["exports_verified"] += 1
        wrong = [digest for digest, _ in terms if digest not in contents]
        if not wrong:
            wrong = [name for name, made in _loaded(folder).items() if made.tobytes() != _mixed(contents, terms, name)]
        if wrong:
            counts["exports_not_as_pinned"] += 1
            faults.append({"round": number, "command": folder.name, "code": 0, "told": f"not as pinned: {wrong[:3]}"})
        shutil.rmtree(folder)
    for path in world.home.glob(f"recipe-{number}.safetensors"):
        from smatter.library.recipes import read_recipe

        read_recipe(path)
        counts["recipes_read"] += 1
        path.unlink()


def _mixed(contents: dict[str, Tensors], terms: list[tuple[str, float]], name: str) -> bytes:
    """Products and sums apart, in float32, in the order of the digests."""
    first = contents[terms[0][0]][name]
    if first.dtype != np.float32:
        return first.tobytes()
    total = np.float32(terms[0][1]) * first
    for digest, weight in terms[1:]:
        total = total + np.float32(weight) * contents[digest][name]
    return total.tobytes()


def _settle(world: World, server: Server, counts: Counter[str], faults: list[Any]) -> None:
    """In the end the library checks out, the cache says what adapting anew says, and no temporary file is left."""
    server.run(_add(world, 1), world.home)
    problems = []
    if (done := server.run(["library", "check", str(world.texts)], world.home))["code"]:
        problems.append(f"the library does not check out: {done['err'] or done['out'][-200:]}")
    told = []
    for cache in ([], ["--cache", str(world.cache)], ["--cache", str(world.cache)]):
        done = server.run(world.adapt("--json", *cache), world.home)
        told.append(json.loads(done["out"])["weights"] if done["code"] == 0 else done["err"])
    if told[0] != told[1] or told[1] != told[2]:
        problems.append(f"the cache says otherwise: {told}")
    left = [str(path.relative_to(world.home)) for path in world.home.rglob("*.partial-*") if "notes" not in path.name]
    if left:
        problems.append(f"left {left[:3]}")
    for place in ("texts/sources/mine.txt", "texts/sources/keep/model.safetensors", "cache/mine.txt", "texts/.hidden"):
        if not (world.home / place).exists():
            problems.append(f"{place} is lost")
    counts["concurrent_faults"] += len(problems)
    faults += [{"round": -1, "command": "afterwards", "code": 0, "told": problem} for problem in problems]
