"""The sources of Signs: what their jobs learn from."""

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools" / "sources"))

import build as sources  # noqa: E402
import plan  # noqa: E402
import study  # noqa: E402

from smatter.backbones.network import Network  # noqa: E402
from smatter.tasks.open import open_suite  # noqa: E402
from smatter.train.pictures import TrainingPictures  # noqa: E402


def few_pictures() -> TrainingPictures:
    """Two domains, of two and three classes with 3 pictures each, every one of its own colour."""
    values = torch.arange(15, dtype=torch.uint8).view(15, 1, 1, 1).expand(15, 3, 4, 4).contiguous()
    return TrainingPictures(
        values, torch.arange(0, 16, 3), torch.tensor([0, 0, 1, 1, 1]), torch.tensor([0.5, 0.5]).double()
    )


def test_specialists_cover_every_domain_inside_and_the_study_has_sixteen_sources() -> None:
    inside = sorted(domain.name for domain in open_suite("signs").domains if domain.role == "id")
    assert sorted(plan.INSIDE) == inside
    names = [job.name for job in (plan.BASE_JOB, *plan.SPECIALIST_JOBS, *plan.STUDY_JOBS)]
    assert len({*names, "noise"}) == 16


def test_a_forbidden_domain_is_learnt_as_one_class_as_often_as_before() -> None:
    merged = sources.merged(few_pictures(), 1)
    assert merged.first.tolist() == [0, 3, 6, 15] and merged.domain_of.tolist() == [0, 0, 1]
    pixels, labels = merged.draw(4000, torch.Generator().manual_seed(0))
    colours = (pixels[:, 0, 0, 0] * 255).round().long()
    assert torch.equal(labels, torch.bucketize(colours, torch.tensor([3, 6]), right=True))
    assert abs(float((labels == 2).double().mean()) - 0.5) < 0.05
    assert set(colours[labels == 2].tolist()) == set(range(6, 15))


def test_turns_are_told_by_the_picture_alone() -> None:
    pictures = few_pictures()
    pictures.values[:, :, 0, 0] = 255  # a mark in the first corner
    pixels, turns = sources.Turns(**vars(pictures)).draw(64, torch.Generator().manual_seed(0))
    corners = torch.stack([pixels[:, 0, 0, 0], pixels[:, 0, 3, 0], pixels[:, 0, 3, 3], pixels[:, 0, 0, 3]], dim=1)
    assert torch.equal(corners.argmax(dim=1), turns) and set(turns.tolist()) == {0, 1, 2, 3}


def test_other_weights_to_begin_with_and_the_same_ones_again() -> None:
    def drawn(seed: int) -> torch.Tensor:
        network = Network(plan.CONFIG)
        sources.draw_weights(network, seed)
        return torch.cat([parameter.detach().flatten() for parameter in network.model.parameters()])

    assert torch.equal(drawn(0), drawn(0)) and not torch.equal(drawn(0), drawn(1))


def test_noise_has_the_spread_of_the_base_and_nothing_else(tmp_path: Path) -> None:
    sources.write_checkpoint(Network(plan.CONFIG), tmp_path / "base")
    study.write_noise(tmp_path / "base", tmp_path / "noise")
    base, noise = (load_file(tmp_path / name / "model.safetensors") for name in ("base", "noise"))
    assert base.keys() == noise.keys()
    for name, tensor in base.items():
        if tensor.numel() > 10_000:
            one, other = tensor.float().flatten(), noise[name].float().flatten()
            assert abs(float(other.std() / one.std()) - 1) < 0.05
            assert abs(float(torch.corrcoef(torch.stack([one, other]))[0, 1])) < 0.05
