"""What each source of Signs knows: accuracy on every domain, beside a random network and pixels alone.

    python benchmarks/signs_sources.py [--quick] [--split test]

Tasks of five to ten classes and worn pictures, with 1, 2 and 5 shots in turn, as in the lists that ship, of classes
that no source has seen; prototypes of cosine features. Beside the sources stand the plain averages of their weights
(one pass) and of their predictions (a pass of each). A network called `base, longer` went on from the base for as many
steps as the specialists, on all domains: if it gained much, the base would be undertrained. It is made by `make
sources-study` and left out where it is not there.
"""

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path

from common import PLAIN_PROCESS, ROOT, Rows, machine, show, stage, write_result

os.environ |= PLAIN_PROCESS
sys.path.insert(0, str(ROOT / "tools" / "sources"))

import numpy as np
import torch
from plan import BASE, INSIDE, SPECIALISTS
from safetensors.torch import load_file
from torch import Tensor

from smatter.backbones.heads import class_sums, prototype_logits
from smatter.backbones.images import Preprocessing
from smatter.backbones.network import Network, load_tensors
from smatter.compose.mixture import Mixture
from smatter.library.library import open_library
from smatter.scores.intervals import mean_interval, paired_difference
from smatter.tasks.lists import TaskList
from smatter.tasks.open import SHIPPED, open_suite
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.shifts.wear import Worn
from smatter.train.examples import domain_shares
from smatter.train.pictures import TrainingPictures
from smatter.train.supervised import train_backbone

NAME = "signs_sources"
LONGER = ROOT / ".build" / "sources" / "base-longer"
SCALE = Preprocessing(32, 32)
SHOTS = (1, 2, 5)
EASY = 95.0
"""A domain where pixels or a random network exceed this stays out of the means."""

WEIGHTS, PREDICTIONS = "average of weights", "average of predictions"
Scores = dict[str, list[float]]


@cache
def sources() -> tuple[str, ...]:
    """Names of the sources that ship."""
    return open_library(SHIPPED / "signs-library").names


@cache
def networks() -> dict[str, Network]:
    """Every network that is compared, in memory."""
    torch.set_num_threads(1)
    library = open_library(SHIPPED / "signs-library")
    config = library.base.config
    found = {"random network": Network(config)}
    for entry in library.manifest.sources:
        found[entry.name] = _loaded(config, library.path_of(entry))
    found[WEIGHTS] = Network(config)
    equal = Mixture.of(dict.fromkeys(sources(), 1 / len(sources())))
    load_tensors(found[WEIGHTS].model, {name: each.float() for name, each in library.compose(equal).tensors().items()})
    if LONGER.exists():
        found["base, longer"] = _loaded(config, LONGER)
    return found


def _loaded(config: dict, folder: Path) -> Network:
    network = Network(config)
    load_tensors(
        network.model, {name: tensor.float() for name, tensor in load_file(folder / "model.safetensors").items()}
    )
    return network


def accuracy(logits: Tensor, truth: Tensor) -> float:
    return 100 * float((logits.argmax(dim=1) == truth).double().mean())


def score_domain(name: str, split: str, n_tasks: int) -> Scores:
    """Accuracy of every network on every task of a domain."""
    suite = open_suite("signs")
    like = SamplerSettings(split=split, role=suite.domain(name).role, n_way=(5, 10), domains=(name,))
    samplers = [Sampler(suite, replace(like, n_shot=(shots, shots)), 11) for shots in SHOTS]
    tasks = [TaskList(name, sampler, n_tasks, (Worn("both", 5),)) for sampler in samplers]
    scores: Scores = {}
    for index in range(n_tasks):
        episode = tasks[index % len(SHOTS)].episode(index)
        labels, truth = torch.from_numpy(episode.support.labels), torch.from_numpy(episode.query.labels)
        parts = [SCALE.scaled(np.asarray(part.inputs)) for part in (episode.support, episode.query)]
        flat = [part.flatten(1) for part in parts]
        nearest = labels[torch.cdist(flat[1], flat[0]).argmin(dim=1)]
        scores.setdefault("pixel neighbour", []).append(100 * float((nearest == truth).double().mean()))
        logits = {}
        for network_name, network in networks().items():
            with torch.no_grad():
                features = network.features({"pixel_values": torch.cat(parts)})
            prototypes = class_sums(features[: len(labels)], labels, int(labels.max()) + 1)
            logits[network_name] = prototype_logits(features[len(labels) :], prototypes)
        logits[PREDICTIONS] = torch.stack([logits[source] for source in sources()]).mean(dim=0)
        for network_name, each in logits.items():
            scores.setdefault(network_name, []).append(accuracy(each, truth))
    return scores


def throughput(n_rounds: int) -> dict[str, float]:
    """Pictures in a second that the sampler gives (augmentation apart) and that training takes, in turns."""
    suite, network = open_suite("signs"), Network(networks()["base"].config)
    sampler = Sampler(suite, SamplerSettings(split="source"))
    pictures = TrainingPictures.of(suite, "source", domain_shares(INSIDE))
    seconds: dict[str, list[float]] = {"sampler": [], "training": []}
    for number in range(n_rounds):
        begin = time.perf_counter()
        n_drawn = sum(len(e.support) + len(e.query) for e in map(sampler.episode, range(50 * number, 50 * number + 50)))
        middle = time.perf_counter()
        train_backbone(network, pictures, replace(BASE, n_steps=3))
        seconds["sampler"].append((middle - begin) / n_drawn)
        seconds["training"].append((time.perf_counter() - middle) / (3 * BASE.batch_size))
    speeds = {f"{name}_pictures_per_second": 1 / float(np.median(found)) for name, found in seconds.items()}
    ratios = [train / draw for draw, train in zip(seconds["sampler"], seconds["training"], strict=True)]
    return speeds | {"sampler_ratio": float(np.median(ratios))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three tasks of each domain, about a minute")
    parser.add_argument("--split", choices=["validation", "test"], default="validation")
    options = parser.parse_args()
    n_tasks = 3 if options.quick else 120
    begin = time.perf_counter()
    domains = open_suite("signs").domains
    found: dict[str, Scores] = {}
    with stage("domains", len(domains)) as tick, ProcessPoolExecutor(2, get_context("spawn")) as pool:
        names = [domain.name for domain in domains]
        jobs = pool.map(score_domain, names, [options.split] * len(names), [n_tasks] * len(names))
        for name, scores in zip(names, jobs, strict=True):
            found[name] = scores
            tick()
    rows: Rows = []
    five: Rows = []
    for domain in domains:
        means = {method: mean_interval(values) for method, values in found[domain.name].items()}
        row = {"domain": domain.name, "role": domain.role}
        half = max(mean.half for mean in means.values())
        rows.append(row | {"half_interval": half} | {method: mean.mean for method, mean in means.items()})
        last = {method: values[len(SHOTS) - 1 :: len(SHOTS)] for method, values in found[domain.name].items()}
        five.append(row | {method: sum(values) / len(values) for method, values in last.items()})
    figures = gains(found) | throughput(3 if options.quick else 15)
    for method in next(iter(found.values())):
        for role in ("id", "ood"):
            some = [row for row in rows if row["role"] == role]
            figures[f"{role}_{method.replace(', ', '_').replace(' ', '_')}"] = sum(r[method] for r in some) / len(some)
    figures["easy_domains"] = sum(max(row["pixel neighbour"], row["random network"]) > EASY for row in rows)
    best = [max(row[name] for name in sources()) for row in rows]
    figures["lowest_best_source"], figures["highest_best_source"] = min(best), max(best)
    show("accuracy by domain", rows)
    packages = ("torch", "transformers", "numpy")
    name = NAME if options.split == "validation" else f"{NAME}_test"
    tables = {"domains": rows, "five_shots": five}
    write_result(name, figures, tables, machine(packages, 1), time.perf_counter() - begin, options.quick)


def gains(found: dict[str, Scores]) -> dict[str, float]:
    """What each specialist gains over the base on its own domains, paired, and what more steps give the base."""
    figures = {}
    for specialist, domains in SPECIALISTS.items():
        pairs = [[v for domain in domains for v in found[domain][name]] for name in (specialist, "base")]
        gain = paired_difference(*pairs)
        figures[f"{specialist}_gain"], figures[f"{specialist}_gain_low"] = gain.mean, gain.low
    if "base, longer" in found[INSIDE[0]]:
        pairs = [[v for domain in INSIDE for v in found[domain][name]] for name in ("base, longer", "base")]
        figures["base_longer_gain"] = paired_difference(*pairs).mean
    return figures


if __name__ == "__main__":
    main()
