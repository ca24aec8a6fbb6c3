"""What each source of Words knows: accuracy on every domain, beside common words alone and the sources' average.

    python benchmarks/words_sources.py [--quick] [--split test]

Five-way tasks with one and with five shots, of classes that no source was tuned on; prototypes of cosine features.
Needs `make words` and `make sources-words`.
"""

import argparse
import hashlib
import json
import os
import sys
import time
from pathlib import Path

from common import PLAIN_PROCESS, ROOT, SCRATCH, Rows, machine, show, stage, write_result

os.environ |= PLAIN_PROCESS
sys.path.insert(0, str(ROOT / "tools" / "words"))

import torch
from few import few_texts, order
from safetensors.torch import load_file, save
from specialists import SPECIALISTS
from torch import Tensor

from smatter.backbones.heads import class_sums, prototype_logits
from smatter.backbones.network import Network, load_tensors
from smatter.backbones.texts import Tokenizer
from smatter.compose.mixture import Mixture
from smatter.files.writing import write_file
from smatter.library.library import Library, open_library
from smatter.scores.intervals import mean_interval, paired_difference
from smatter.tasks.episode import Episode
from smatter.tasks.open import open_suite
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.suite import Domain, Suite, SuiteClass

NAME = "words_sources"
SUITE, LIBRARY = ROOT / ".build" / "words", ROOT / ".build" / "words-library"
SHOTS = (1, 5)
N_QUERY = 5
CHUNK = 64
WORDS, AVERAGE = "common words", "average"

Tasks = dict[tuple[str, int], list[Episode]]
"""By domain and shots."""
Scores = dict[tuple[str, int], dict[str, list[float]]]


def fewer(suite: Suite, split: str, n_classes: int = 8, n_texts: int = 16) -> Suite:
    """The same with some classes of a split, and some texts of each: features are what takes time."""

    def chosen(domain: Domain) -> list[SuiteClass]:
        return sorted(suite.classes(domain, split), key=lambda each: order(each.name))[:n_classes]

    return few_texts(suite, n_texts, chosen)


def draw_tasks(suite: Suite, split: str, n_tasks: int) -> Tasks:
    found: Tasks = {}
    for domain in suite.domains:
        for shots in SHOTS:
            settings = SamplerSettings(
                split=split, role=domain.role, n_shot=(shots, shots), n_query=N_QUERY, domains=(domain.name,)
            )
            sampler = Sampler(suite, settings, 11)
            found[domain.name, shots] = [sampler.episode(index) for index in range(n_tasks)]
    return found


def texts_of(tasks: Tasks) -> list[str]:
    """Every text of the tasks once, short ones first, so that those of a batch are about as long."""
    parts = (part.inputs for episodes in tasks.values() for each in episodes for part in (each.support, each.query))
    return sorted({str(text) for inputs in parts for text in inputs}, key=lambda text: (len(text), text))


def score(tasks: Tasks, features: Tensor, place: dict[str, int], method: str, scores: Scores) -> None:
    """Accuracy of prototypes in these features on every task."""
    for key, episodes in tasks.items():
        for each in episodes:
            labels = torch.from_numpy(each.support.labels)
            support, query = (
                features[[place[str(text)] for text in part.inputs]] for part in (each.support, each.query)
            )
            predicted = prototype_logits(query, class_sums(support, labels, each.n_way)).argmax(dim=1)
            right = 100 * float((predicted == torch.from_numpy(each.query.labels)).double().mean())
            scores.setdefault(key, {}).setdefault(method, []).append(right)


def word_counts(texts: list[str], tokenizer: Tokenizer) -> Tensor:
    """Which tokens a text has, rare ones counting more; (n, vocabulary)."""
    tokens = tokenizer.tokens(texts)
    counts = torch.zeros(len(texts), tokenizer.n_vocabulary)
    counts.scatter_(1, tokens["input_ids"], tokens["attention_mask"].float())
    return counts * (len(texts) / counts.sum(dim=0).clamp(min=1)).log()


def features_of(texts: list[str], library: Library, mixture: Mixture, network: Network, tokenizer: Tokenizer) -> Tensor:
    """Features of every text; kept in the scratch folder, as a run that was stopped need not compute them again."""
    what = json.dumps([texts, library.manifest.digests, mixture.sources, mixture.rows])
    kept = SCRATCH / f"{NAME}-{hashlib.sha256(what.encode()).hexdigest()[:16]}.safetensors"
    if not kept.exists():
        load_tensors(network.model, library.compose(mixture).tensors())
        parts = [texts[start : start + CHUNK] for start in range(0, len(texts), CHUNK)]
        with torch.no_grad():
            features = torch.cat([network.features(tokenizer.tokens(part)) for part in parts])
        SCRATCH.mkdir(exist_ok=True)
        write_file(kept, save({"features": features}))
    return load_file(kept)["features"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few texts of few classes, about two minutes")
    parser.add_argument("--split", choices=["validation", "test"], default="validation")
    parser.add_argument("--suite", type=Path, default=SUITE)
    parser.add_argument("--library", type=Path, default=LIBRARY)
    options = parser.parse_args()
    torch.set_num_threads(1)
    begin = time.perf_counter()
    suite, library = open_suite(options.suite), open_library(options.library)
    if options.quick:
        tasks = draw_tasks(fewer(suite, options.split), "all", 100)
    else:
        tasks = draw_tasks(suite, options.split, 200)
    texts = texts_of(tasks)
    place = {text: number for number, text in enumerate(texts)}
    config = library.base.config
    tokenizer = Tokenizer.of(config, library.base.folder)
    scores: Scores = {}
    score(tasks, word_counts(texts, tokenizer), place, WORDS, scores)
    mixtures = {name: Mixture.of({name: 1.0}) for name in library.names}
    mixtures[AVERAGE] = Mixture.of(dict.fromkeys(library.names, 1 / len(library.names)))
    network = Network(config)
    with stage(f"{len(texts)} texts", len(mixtures)) as tick:
        for name, mixture in mixtures.items():
            score(tasks, features_of(texts, library, mixture, network, tokenizer), place, name, scores)
            tick()
    rows = table(suite, scores)
    show("accuracy by domain", rows)
    name = NAME if options.split == "validation" else f"{NAME}_test"
    packages = ("torch", "transformers", "numpy")
    seconds = time.perf_counter() - begin
    write_result(name, figures(scores, suite), {"domains": rows}, machine(packages, 1), seconds, options.quick)


def table(suite: Suite, scores: Scores) -> Rows:
    rows: Rows = []
    for (name, shots), methods in scores.items():
        means = {method: mean_interval(values) for method, values in methods.items()}
        head = {"domain": name, "role": suite.domain(name).role, "shots": shots}
        rows.append(head | {method: mean.mean for method, mean in means.items()})
        rows[-1]["half_interval"] = max(mean.half for mean in means.values())
    return rows


def figures(scores: Scores, suite: Suite) -> dict[str, float]:
    """What each specialist gains over the base on its own domains and elsewhere, paired; means by role."""
    found: dict[str, float] = {}

    def together(method: str, shots: int, domains: list[str]) -> list[float]:
        return [value for domain in domains for value in scores[domain, shots][method]]

    roles = {role: [domain.name for domain in suite.domains if domain.role == role] for role in ("id", "ood")}
    for shots in SHOTS:
        for specialist, own in SPECIALISTS.items():
            others = [name for name in roles["id"] if name not in own]
            for label, domains in (("gain", list(own)), ("elsewhere", others), ("outside", roles["ood"])):
                gain = paired_difference(together(specialist, shots, domains), together("base", shots, domains))
                prefix = f"{specialist}_{label}_{shots}_shot"
                found |= {prefix: gain.mean, f"{prefix}_low": gain.low, f"{prefix}_high": gain.high}
        for role, domains in roles.items():
            for method in next(iter(scores.values())):
                mean = mean_interval(together(method, shots, domains)).mean
                found[f"{role}_{method.replace(' ', '_')}_{shots}_shot"] = mean
    return found


if __name__ == "__main__":
    main()
