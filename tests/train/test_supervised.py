"""Supervised training: it learns, it repeats itself, and an interruption leaves no trace."""

from pathlib import Path

import numpy as np
import pytest
import torch

from smatter.backbones.network import Network
from smatter.tasks.stores import COLUMNS, Sheet
from smatter.tasks.suite import Domain, Suite, SuiteClass
from smatter.train.pictures import TrainingPictures, Variation
from smatter.train.supervised import TrainingSettings, TrainingStep, train_backbone

CONFIG = {
    "model_type": "convnext", "num_channels": 3, "patch_size": 4, "num_stages": 2, "hidden_sizes": [8, 16],
    "depths": [1, 1], "image_size": 16,
}  # fmt: skip
SETTINGS = TrainingSettings(n_steps=12, batch_size=16)
N_CLASSES, N_EXAMPLES, SIDE = 20, 6, 16


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    """Two domains of stripes, each class of a frequency of its own."""
    from PIL import Image

    generator = np.random.default_rng(0)
    domains = []
    for name in ("rows", "columns"):
        phase = np.arange(SIDE)[None, None] * np.repeat(np.arange(1, N_CLASSES + 1), N_EXAMPLES)[:, None, None] / SIDE
        tiles = np.broadcast_to(np.sin(2 * np.pi * phase), (N_CLASSES * N_EXAMPLES, SIDE, SIDE))
        tiles = tiles if name == "columns" else tiles.swapaxes(1, 2)
        pixels = (127 + 100 * tiles + generator.normal(0, 8, tiles.shape)).clip(0, 255).astype(np.uint8)
        n_rows = -(-len(pixels) // COLUMNS)
        grid = np.zeros((n_rows * COLUMNS, SIDE, SIDE), np.uint8)
        grid[: len(pixels)] = pixels
        page = grid.reshape(n_rows, COLUMNS, SIDE, SIDE).swapaxes(1, 2).reshape(n_rows * SIDE, COLUMNS * SIDE)
        Image.fromarray(page).save(tmp_path / f"{name}.png")
        classes = tuple(
            SuiteClass(f"{name} {i}", f"{name} {i}", i * N_EXAMPLES, (i + 1) * N_EXAMPLES) for i in range(N_CLASSES)
        )
        domains.append(Domain(name, name, "id", classes, Sheet(tmp_path / f"{name}.png", len(pixels), SIDE)))
    return Suite("stripes", "images", tuple(domains))


def weights(network: Network) -> torch.Tensor:
    return torch.cat([parameter.flatten() for parameter in network.model.parameters()])


def test_only_the_classes_of_the_split_are_drawn_in_the_shares_asked_for(suite: Suite) -> None:
    pictures = TrainingPictures.of(suite, "source", {"rows": 0.75, "columns": 0.25})
    assert pictures.n_classes == sum(len(suite.classes(domain, "source")) for domain in suite.domains)
    thin = TrainingPictures.of(suite, "source", {"rows": 1.0}, every=3)
    assert thin.n_classes == -(-len(suite.classes(suite.domain("rows"), "source")) // 3)
    _, labels = pictures.draw(20_000, torch.Generator().manual_seed(0))
    share = float((pictures.domain_of[labels] == 0).float().mean())
    assert share == pytest.approx(0.75, abs=0.02)
    assert set(labels.tolist()) == set(range(pictures.n_classes))


def test_variation_keeps_white_paper_white_and_leaves_the_input_alone() -> None:
    paper = torch.ones(8, 3, SIDE, SIDE)
    varied = Variation(noise=0.0)(paper, torch.Generator().manual_seed(0))
    torch.testing.assert_close(varied, paper)
    picture = torch.rand(8, 3, SIDE, SIDE)
    before = picture.clone()
    assert not torch.allclose(Variation()(picture, torch.Generator().manual_seed(0)), picture, atol=0.1)
    assert torch.equal(picture, before)


def test_no_variation_is_no_change() -> None:
    picture = torch.rand(4, 3, SIDE, SIDE)
    still = Variation(0.0, 0.0, 0.0, 0.0, 1.0, 0.0)
    torch.testing.assert_close(still(picture, torch.Generator().manual_seed(0)), picture, atol=1e-5, rtol=0)


def test_training_learns(suite: Suite) -> None:
    steps: list[TrainingStep] = []
    pictures = TrainingPictures.of(suite, "source", {"rows": 0.5, "columns": 0.5})
    mild = Variation(degrees=5.0, zoom=0.05, shift=0.02, shear=0.0, contrast=0.8, noise=0.03)
    settings = TrainingSettings(n_steps=150, batch_size=32, learning_rate=1e-2, variation=mild)
    train_backbone(Network(CONFIG), pictures, settings, watch=steps.append)
    early, late = (np.mean([step.accuracy for step in part]) for part in (steps[:10], steps[-10:]))
    assert [step.number for step in steps] == list(range(1, 151))
    assert late > early + 0.3


def test_an_interruption_leaves_no_trace(suite: Suite, tmp_path: Path) -> None:
    pictures = TrainingPictures.of(suite, "source", {"rows": 1.0})
    whole, parts = Network(CONFIG), Network(CONFIG)
    train_backbone(whole, pictures, SETTINGS)

    def stop(step: TrainingStep) -> None:
        if step.number == 8:
            raise KeyboardInterrupt

    state = tmp_path / "state.safetensors"
    with pytest.raises(KeyboardInterrupt):
        train_backbone(parts, pictures, SETTINGS, state, save_every=5, watch=stop)
    again = Network(CONFIG)
    steps: list[TrainingStep] = []
    train_backbone(again, pictures, SETTINGS, state, save_every=5, watch=steps.append)
    assert steps[0].number == 6
    assert torch.equal(weights(again), weights(whole))


def test_a_finished_run_is_not_run_again_and_another_run_starts_afresh(suite: Suite, tmp_path: Path) -> None:
    pictures, state = TrainingPictures.of(suite, "source", {"rows": 1.0}), tmp_path / "state.safetensors"
    first, second = Network(CONFIG), Network(CONFIG)
    train_backbone(first, pictures, SETTINGS, state)
    steps: list[TrainingStep] = []
    train_backbone(second, pictures, SETTINGS, state, watch=steps.append)
    assert not steps and torch.equal(weights(first), weights(second))
    other = TrainingSettings(n_steps=3, batch_size=16, seed=1)
    train_backbone(Network(CONFIG), pictures, other, state, watch=steps.append)
    assert [step.number for step in steps] == [1, 2, 3]


def test_the_rate_rises_then_falls_to_zero() -> None:
    rates = [TrainingSettings(100, learning_rate=1.0).rate(step) for step in range(100)]
    assert rates[0] == pytest.approx(0.2) and max(rates) == pytest.approx(1.0) and rates[-1] < 1e-3
    assert rates[5:] == sorted(rates[5:], reverse=True)


def test_an_imprinted_head_knows_the_classes_from_the_start(suite: Suite) -> None:
    pictures = TrainingPictures.of(suite, "source", {"rows": 1.0})
    mild = Variation(0.0, 0.0, 0.0, 0.0, 1.0, 0.0)
    first: dict[bool, float] = {}
    for imprint in (False, True):
        steps: list[TrainingStep] = []
        settings = TrainingSettings(1, batch_size=200, learning_rate=1e-9, imprint=imprint, variation=mild)
        train_backbone(Network(CONFIG), pictures, settings, watch=steps.append)
        first[imprint] = steps[0].accuracy
    assert first[True] > 0.6 > 0.4 > first[False]
