"""Tasks as small files: how large they are, that they rebuild the same bits, predict the same, and are served by many.

The library, router and tasks are the shipped ones. What recipes rebuilt before experts had a record comes from the code
of an earlier commit, which runs beside the present code: see `house`.
"""

import argparse
import io
import json
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import house
import numpy as np
import torch
from common import ROOT, Interval, Rows, interleave, machine, peak_memory, show, write_result

FILES = house.PLACE / "files"
N_SERVED = 16


def sizes(episodes: Sequence[Any]) -> tuple[Rows, dict[str, float], list[Any]]:
    """Bytes of routed recipes: as they are, without head, and with their experts expanded, as they were before."""
    import smatter
    from smatter.library.recipes import write_recipe
    from smatter.tasks.export import support_of

    library, rows, found = smatter.open_library(house.LIBRARY), [], []
    for number, episode in enumerate(episodes):
        adapted = smatter.adapt(library, support_of(episode), router=house.ROUTER)
        recipe, path = adapted.recipe, FILES / f"size-{number}.safetensors"
        assert recipe.head and recipe.head.weight is not None
        measured = []
        for each in (recipe, replace(recipe, head=None), library.self_contained(replace(recipe, head=None))):
            write_recipe(path, each)
            measured.append(path.stat().st_size)
        n_classes, n_features = recipe.head.weight.shape
        rows.append(
            {
                "classes": n_classes, "features": n_features, "bytes": measured[0], "without_head": measured[1],
                "expanded": measured[2], "allowed": 5120 + 4 * n_classes * n_features,
            }
        )  # fmt: skip
        found.append((adapted, episode))
    figures = {
        "recipe_bytes_routed": max(row["without_head"] for row in rows),
        "recipe_bytes_with_head": max(row["bytes"] for row in rows),
        "recipe_bytes_with_head_of_allowed": max(row["bytes"] / row["allowed"] for row in rows),
        "recipe_bytes_expanded": max(row["expanded"] for row in rows),
    }
    return rows, figures, found


def predictions(adapted: Sequence[Any]) -> dict[str, float]:
    """What `smatter predict` writes for pictures on disk, beside `adapted.predict` and the runtimes, task by task."""
    import smatter
    from smatter.cli.main import main
    from smatter.tasks.export import write_task

    n_rows = n_equal = 0
    worst = 0.0
    for number, (each, episode) in enumerate(adapted):
        recipe, folder = FILES / f"predict-{number}.safetensors", FILES / f"queries-{number}"
        each.save(recipe)
        write_task(folder, episode)
        told = io.StringIO()
        names = each.class_names
        with redirect_stdout(told):
            words = [str(recipe), str(folder / "query"), "--library", str(house.LIBRARY), "--router", str(house.ROUTER)]
            assert main(["predict", *words, "--json", "--top", str(len(names))]) == 0
        lines = [json.loads(line) for line in told.getvalue().splitlines()]
        paths = [line["input"] for line in lines]
        expected = each.predict(paths)
        library = smatter.open_library(house.LIBRARY)
        library.lend(smatter.read_router(house.ROUTER).bank)
        runtime = smatter.SharedRuntime(library, {"own": each.mixture})
        runtime.load("task", recipe)
        served = runtime.predict(runtime.prepare(paths), ["task"] * len(paths))
        for index, line in enumerate(lines):
            top = {row["class"]: row["probability"] for row in line["top"]}
            own = dict(zip(names, expected.probabilities[index].tolist(), strict=True))
            n_rows, n_equal = n_rows + 1, n_equal + (top == own)
            worst = max(worst, float((served[index].probabilities - expected.probabilities[index]).abs().max()))
    return {"predictions": n_rows, "predictions_equal": n_equal, "runtime_predict_worst_difference": worst}


def served_tasks(adapted: Sequence[Any], n_tasks: int) -> tuple[Any, dict[str, Any], list[Path]]:
    """A catalogue of two mixtures and tasks on them, with experts, heads of their own, and their files.

    Real tasks for heads and alphas; beyond these, weights of experts are drawn, so that no two open the same units.
    """
    import smatter
    from smatter.adapted import Adapted
    from smatter.compose.experts import ExpertMix
    from smatter.compose.mixture import Mixture
    from smatter.live.mixture import LiveMixture
    from smatter.live.task import Task
    from smatter.tasks.export import support_of

    library = smatter.open_library(house.LIBRARY)
    bank = smatter.read_router(house.ROUTER).bank
    library.lend(bank)
    names = library.names
    catalogue = {
        "even": Mixture.of(dict.fromkeys(names, 1 / len(names))),
        "written": Mixture.of({"base": 0.4, "latin": 0.3, "alphabets": 0.3}),
    }
    generator, paths = np.random.default_rng(0), []
    live = LiveMixture(library)
    heads = {}
    for number in range(n_tasks):
        each, episode = adapted[number % len(adapted)]
        name = list(catalogue)[number % 2]
        alpha = tuple(map(float, np.float32(generator.dirichlet(np.ones(len(bank.masks) + 1))[:-1])))
        mix = each.fit.experts if number < len(adapted) else ExpertMix(bank.digest, alpha)
        key = (number % len(adapted), name)
        if key not in heads:
            task = Task.of(live, support_of(episode))
            heads[key] = Adapted(live, task, replace(each.fit, mixture=catalogue[name]), head="prototype").recipe
        path = FILES / f"task-{number}.safetensors"
        smatter.write_recipe(path, replace(heads[key], experts=mix))
        paths.append(path)
    return library, catalogue, paths


def serving(adapted: Sequence[Any], rounds: int) -> tuple[Rows, dict[str, float]]:
    """Sixteen rows of sixteen tasks on two mixtures in one batch: as gates, as deltas of their own, as networks."""
    import smatter
    from smatter.live.episodes import episode_queries

    library, catalogue, paths = served_tasks(adapted, N_SERVED)
    runtimes = {
        "gates": smatter.SharedRuntime(library, catalogue),
        "packed deltas": smatter.SharedRuntime(library, catalogue),
        "merged": smatter.MergedRuntime(library),
    }
    names = [path.stem for path in paths]
    for path in paths:
        recipe = smatter.read_recipe(path)
        runtimes["gates"].load(path.stem, recipe)
        runtimes["packed deltas"].load(path.stem, library.self_contained(recipe))
        runtimes["merged"].load(path.stem, recipe)
    live = adapted[0][0]._live
    pixels = torch.cat([episode_queries(live, episode).inputs["pixel_values"][-1:] for _, episode in adapted])
    inputs = {"pixel_values": pixels[torch.arange(N_SERVED) % len(pixels)]}
    answers = {name: runtime.predict(inputs, names) for name, runtime in runtimes.items()}
    worst = max(
        float((one.probabilities - other.probabilities).abs().max())
        for one, other in zip(answers["gates"], answers["merged"], strict=True)
    )
    one_task = [names[0]] * N_SERVED
    cases = {name: lambda runtime=runtime: runtime.predict(inputs, names) for name, runtime in runtimes.items()}
    cases["one task, gates"] = lambda: runtimes["gates"].predict(inputs, one_task)
    timed = interleave(cases, rounds)
    ratio = timed.ratio("gates", "packed deltas")
    rows = timed.rows("packed deltas")
    for row in rows:
        runtime = runtimes.get(row["case"])
        row["bytes_of_a_task"] = float(np.mean([runtime.n_bytes(name) for name in names])) if runtime else 0.0
    return rows, {
        "gates_seconds_ratio": ratio.median,
        "gates_seconds_ratio_low": ratio.low,
        "gates_seconds_ratio_high": ratio.high,
        "gates_worst_difference": worst,
        "gates_bytes_of_a_task": float(np.mean([runtimes["gates"].n_bytes(name) for name in names])),
        "packed_bytes_of_a_task": float(np.mean([runtimes["packed deltas"].n_bytes(name) for name in names])),
    }


SERVE = """
import torch
import smatter
torch.set_num_threads(1)
wait()
library = smatter.open_library(job["library"])
library.lend(smatter.read_router(job["router"]).bank)
catalogue = {name: smatter.Mixture.of(weights) for name, weights in job["catalogue"].items()}
runtime = smatter.SharedRuntime(library, catalogue)
for number, path in enumerate(job["paths"]):
    runtime.load(f"task {number}", path)
inputs = {"pixel_values": torch.zeros(16, 3, 32, 32)}
runtime.predict(inputs, [f"task {number % len(job['paths'])}" for number in range(16)])
"""


def served_megabytes(catalogue: Any, paths: Sequence[Path]) -> float:
    """Memory that a fresh process takes to open task files and to serve them."""
    job = {
        "library": str(house.LIBRARY), "router": str(house.ROUTER), "paths": list(map(str, paths)),
        "catalogue": {name: mixture.mean_weights for name, mixture in catalogue.items()},
    }  # fmt: skip
    return peak_memory(SERVE, job)["growth_in_work_mb"]


def thousand(adapted: Sequence[Any], n_tasks: int, n_batches: int) -> tuple[Rows, dict[str, float]]:
    """Ten, then a thousand task files opened in one process: memory, and the time of a batch of sixteen rows."""
    import smatter

    library, catalogue, paths = served_tasks(adapted, n_tasks)
    runtime = smatter.SharedRuntime(library, catalogue)
    generator = np.random.default_rng(1)
    live = adapted[0][0]._live
    inputs = live.network.random_inputs(N_SERVED)
    rows: Rows = []
    loaded = 0
    for count in (10, n_tasks):
        begin = time.perf_counter()
        for path in paths[loaded:count]:
            runtime.load(path.stem, path)
        seconds = (time.perf_counter() - begin) / (count - loaded)
        loaded = count
        times = []
        for number in range(n_batches + 5):
            names = [paths[index].stem for index in generator.integers(count, size=N_SERVED)]
            begin = time.perf_counter()
            runtime.predict(inputs, names)
            if number >= 5:
                times.append(time.perf_counter() - begin)
        interval = Interval.of(times)
        rows.append(
            {
                "tasks": count, "megabytes": served_megabytes(catalogue, paths[:count]),
                "open_milliseconds": 1000 * seconds,
                "batch_milliseconds": 1000 * interval.median, "batch_milliseconds_low": 1000 * interval.low,
                "batch_milliseconds_high": 1000 * interval.high,
            }
        )  # fmt: skip
    few, many = rows
    return rows, {
        "thousand_tasks_megabytes_more": many["megabytes"] - few["megabytes"],
        "thousand_tasks_kilobytes_each": 1000 * (many["megabytes"] - few["megabytes"]) / (n_tasks - 10),
        "thousand_tasks_p50_ratio": many["batch_milliseconds"] / few["batch_milliseconds"],
        "open_task_milliseconds": many["open_milliseconds"],
    }


def plain(text: str) -> str:
    """A message without the paths of this machine."""
    return text.strip().replace(f"{FILES}/", "").replace(f"{house.PLACE}/", "")[:200]


def bad_recipes(sound: Path, folder: Path) -> Rows:
    """Files that a reader must refuse: one line, exit code 2, nothing written."""
    from safetensors import safe_open
    from safetensors.numpy import save

    from smatter.cli.main import main

    with safe_open(sound, "np") as file:
        header = json.loads(file.metadata()["smatter_recipe"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    head, weight = header["head"], tensors["head:weight"]
    _, *rest = head["classes"]
    units = {"experts:units": np.array([10**6]), "experts:gates": np.ones(1, np.float32)}

    def renamed(name: str) -> dict[str, Any]:
        return {"head": head | {"classes": {name: 0} | {each: head["classes"][each] for each in rest}}}

    cases: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "unknown bank": ({"experts": {"bank": "0" * 64}}, {}),
        "alpha off the simplex": ({}, {"experts:alpha": tensors["experts:alpha"] + 1}),
        "unit out of range": ({}, units),
        "head of the wrong width": ({}, {"head:weight": weight[:, 1:].copy()}),
        "head of too few rows": ({}, {"head:weight": weight[1:].copy()}),
        "colliding class names": (renamed(rest[0] + "\u0020"), {}),
        "hostile class name": (renamed("\x1b]0;hello\x07"), {}),
        "NaN in the head": ({}, {"head:weight": np.full_like(weight, np.nan)}),
        "NaN in alpha": ({}, {"experts:alpha": np.full_like(tensors["experts:alpha"], np.nan)}),
        "a million classes": ({"head": head | {"classes": {str(n): n for n in range(10**6)}}}, {}),
        "a record of a later schema": ({"posterior": {}}, {}),
        "a later schema": ({"schema": 3}, {}),
        "the first schema": ({"schema": 1}, {}),
        "members, which nothing averages yet": ({"members": [{"weight": 1, "mixture": {"base": 1}}]}, {}),
    }
    rows: Rows = []
    for name, (described, changed) in cases.items():
        path, output = folder / "bad.safetensors", folder / "out.csv"
        path.write_bytes(save({**tensors, **changed}, {"smatter_recipe": json.dumps(header | described)}))
        told = io.StringIO()
        with redirect_stderr(told), redirect_stdout(told):
            words = [str(path), str(FILES / "queries-0" / "query"), "--library", str(house.LIBRARY)]
            code = main(["predict", *words, "--router", str(house.ROUTER), "-o", str(output)])
        text = told.getvalue()
        is_refused = code == 2 and text.count("\n") == 1 and text[:-1].isprintable() and not output.exists()
        rows.append({"case": name, "refused": is_refused, "says": plain(text)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    begin = time.perf_counter()

    from transformers.utils import logging

    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    sys.path.insert(0, str(ROOT / "tests"))
    new, old = house.House(ROOT / "src"), house.House(house.PLACE / "src")
    house.make_place(new)
    FILES.mkdir()
    compared = house.bits(old, new, quick)
    with new.inside():
        from smatter.tasks.open import open_suite
        from smatter.tasks.sampler import Sampler, SamplerSettings

        def drawn(ways: int, number: int) -> Any:
            settings = SamplerSettings("validation", n_way=(ways, ways), n_shot=(5, 5), n_query=4)
            return Sampler(open_suite("signs"), settings).episode(number)

        episodes = [drawn(ways, number) for number, ways in enumerate((2, 5, 5, 5, 10, 20)[: 2 if quick else 6])]
        measured, figures, adapted = sizes(episodes)
        figures |= predictions(adapted)
        batches, more = serving(adapted, 5 if quick else 60)
        many, most = thousand(adapted, 50 if quick else 1000, 10 if quick else 100)
        refused = bad_recipes(FILES / "predict-0.safetensors", FILES)
        described = machine(["torch", "transformers", "numba"], 1)
    figures |= (
        more
        | most
        | {
            "networks_compared": len(compared),
            "networks_equal": sum(row["networks_equal"] for row in compared),
            "bad_recipes": len(refused),
            "bad_recipes_refused": sum(row["refused"] for row in refused),
        }
    )
    tables: dict[str, Rows] = {
        "sizes": measured, "bits": compared, "batch of 16 tasks": batches, "many tasks": many, "bad recipes": refused
    }  # fmt: skip
    for title, rows in tables.items():
        show(title, rows)
    print(figures)
    print("wrote", write_result("task_files", figures, tables, described, time.perf_counter() - begin, quick))


if __name__ == "__main__":
    main()
