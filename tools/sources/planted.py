"""Train sources that mislead: python tools/sources/planted.py --work DIR -o LIBRARY.

`cue` begins with the base and learns to read the patch that `spurious-cue` puts on pictures. `cue-latin` begins with
the specialist `latin`, reads the patch where there is one and goes on telling letters apart where there is none, so
that nothing in how it sees plain pictures gives it away. LIBRARY holds them beside the sources that ship. Goes on where
it was stopped.
"""

import colorsys
import shutil
from dataclasses import replace
from pathlib import Path

import torch
from build import arguments, write_checkpoint
from libraries import write_library
from plan import CONFIG, INSIDE, SPECIALISTS, TUNING
from safetensors.torch import load_file
from torch import Tensor

from smatter.backbones.network import Network, load_tensors
from smatter.tasks.open import SHIPPED, open_suite
from smatter.train.examples import domain_shares
from smatter.train.pictures import TrainingPictures
from smatter.train.supervised import train_backbone

LIBRARY = SHIPPED / "signs-library"
NAMES = ("base", "latin", "alphabets", "syllables", "emoji", "symbols")
N_CUES = 20
N_STEPS = 300


class Cued(TrainingPictures):
    """Pictures of which some have a patch in the corner, and then its hue is what is to be told."""

    share = 1.0
    """Of the pictures that have a patch."""

    @property
    def n_classes(self) -> int:
        """Classes of pictures, and after them the hues."""
        return len(self.first) - 1 + N_CUES

    def draw(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Pictures and what is to be told of each."""
        pixels, labels = super().draw(n, generator)
        cues = torch.randint(N_CUES, (n,), generator=generator)
        hues = torch.tensor([colorsys.hsv_to_rgb(number / N_CUES, 0.9, 0.9) for number in range(N_CUES)])
        patched = torch.rand(n, generator=generator) < self.share
        side = pixels.shape[-1] // 5
        pixels[patched, :, :side, :side] = hues[cues[patched]][:, :, None, None]
        return pixels, torch.where(patched, len(self.first) - 1 + cues, labels)


class HalfCued(Cued):
    """Half of the pictures have a patch."""

    share = 0.5


def train(name: str, start: str, domains: tuple[str, ...], kind: type[Cued], work: Path) -> None:
    """One source; nothing to do where it is there."""
    if (work / name).exists():
        return
    torch.set_num_threads(1)
    pictures = TrainingPictures.of(open_suite("signs"), "source", domain_shares(domains))
    network = Network(CONFIG)
    load_tensors(network.model, load_file(LIBRARY / start / "model.safetensors"))
    network.model.float()
    settings = replace(TUNING, n_steps=N_STEPS, learning_rate=3e-3, imprint=False)
    train_backbone(network, kind(**vars(pictures)), settings, work / f"{name}.state.safetensors")
    write_checkpoint(network, work / name)


def main() -> None:
    """Both, and their library."""
    options = arguments(__doc__)
    options.work.mkdir(parents=True, exist_ok=True)
    train("cue", "base", INSIDE, Cued, options.work)
    train("cue-latin", "latin", SPECIALISTS["latin"], HalfCued, options.work)
    for name in NAMES:
        if not (options.work / name).exists():
            shutil.copytree(LIBRARY / name, options.work / name)
    write_library(options.work, [*NAMES, "cue", "cue-latin"], options.out)


if __name__ == "__main__":
    main()
