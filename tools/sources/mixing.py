"""Train the specialists of Signs by many recipes, to see which mix: python tools/sources/mixing.py --work DIR [NAMES].

Each recipe has a folder in DIR with a checkpoint for each specialist. A study that was stopped goes on where it was.
"""

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "common"))

import torch
from build import write_checkpoint
from plan import CONFIG, INSIDE, SPECIALISTS
from recipes import RECIPES, Recipe, place
from safetensors.torch import load_file
from torch import Tensor

from smatter.backbones.network import Network, load_tensors
from smatter.tasks.open import SHIPPED, open_suite
from smatter.train.examples import domain_shares
from smatter.train.pictures import TrainingPictures
from smatter.train.supervised import train_backbone

BASE = SHIPPED / "signs-library" / "base"
TRUNK = "trunk"


def weights_of(network: Network, folder: Path) -> dict[str, Tensor]:
    """A checkpoint's weights by the names that parameters have in the network, which has them afterwards."""
    load_tensors(network.model, load_file(folder / "model.safetensors"))
    network.model.float()
    return {name: parameter.detach().clone() for name, parameter in network.model.named_parameters()}


def tune(work: Path, name: str, specialist: str) -> Path:
    """Train one specialist by a recipe; nothing to do where it is there."""
    recipe: Recipe = RECIPES[name]
    folder = place(work, name) / specialist
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    network, settings = Network(CONFIG), recipe.others.get(specialist, recipe.settings)
    domains = SPECIALISTS.get(specialist, INSIDE)
    base, siblings, start = weights_of(network, BASE), [], BASE
    if recipe.start:
        before = {each: tune(work, recipe.start, each) for each in SPECIALISTS}
        siblings = [weights_of(network, each) for other, each in before.items() if other != specialist]
        start = before[specialist]
    if recipe.trunk:
        if specialist == TRUNK:
            settings = recipe.trunk
        else:
            start = tune(work, name, TRUNK)
    weights_of(network, start)
    pictures = TrainingPictures.of(open_suite("signs"), "source", domain_shares(domains))
    state = folder.with_name(f"{specialist}.state.safetensors")
    train_backbone(network, pictures, settings, state, frozen=recipe.frozen, way=recipe.way(base, siblings))
    write_checkpoint(network, folder)
    return folder


def train_recipes(work: Path, names: list[str], workers: int) -> None:
    """All specialists of some recipes, side by side where nothing waits for another."""
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        for name in names:
            if RECIPES[name].trunk:
                pool.submit(tune, work, name, TRUNK).result()
            for future in [pool.submit(tune, work, name, each) for each in SPECIALISTS]:
                future.result()
            print(name, "done", flush=True)


def main() -> None:
    """The recipes named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="folder for states and checkpoints")
    parser.add_argument("names", nargs="*", default=list(RECIPES), help="of recipes")
    options = parser.parse_args()
    train_recipes(options.work, options.names, 2)


if __name__ == "__main__":
    main()
