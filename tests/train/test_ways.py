"""Ways to fine-tune: each on a loss whose answer is known, and gone on from a state to the bit."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter

from smatter.backbones.network import Network
from smatter.train.pictures import TrainingPictures
from smatter.train.supervised import TrainingSettings, train_backbone
from smatter.train.ways import Averaged, Factored, Flat, Mixed, Plain, Pulled

CONFIG = {
    "model_type": "convnext", "num_channels": 3, "patch_size": 4, "num_stages": 2, "hidden_sizes": [8, 16],
    "depths": [1, 1], "image_size": 16,
}  # fmt: skip


def begun(way: Plain, *values: float) -> Parameter:
    """A way whose network is one vector."""
    parameter = Parameter(torch.tensor(values))
    assert way.begin({"theta": parameter})["theta"] is parameter
    return parameter


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_a_pull_takes_away_its_share_of_the_delta_and_nothing_of_the_base() -> None:
    way = Pulled(0.5)
    theta = begun(way, 1.0, 2.0)
    theta.data += torch.tensor([4.0, 0.0])
    way.stepped(0.1, 0.5)
    torch.testing.assert_close(theta.data, torch.tensor([1.0 + 4.0 * 0.95, 2.0]))


def test_what_is_kept_is_the_mean_of_the_last_weights() -> None:
    way = Averaged(0.5)
    theta = begun(way, 0.0)
    for step in range(1, 5):
        theta.data.fill_(float(step))
        way.stepped(0.1, step / 4)
    way.finish()
    assert theta.item() == pytest.approx(3.5)  # of the third and fourth


def test_flatness_looks_uphill_at_the_radius() -> None:
    way = Flat(0.5)
    theta = begun(way, 3.0, 4.0)
    value = way.backward(lambda: 0.5 * theta.square().sum(), seeded())
    assert value.item() == pytest.approx(12.5)
    assert theta.grad is not None
    torch.testing.assert_close(theta.grad, torch.tensor([3.3, 4.4]))  # the gradient there is the place: 1.1 times it
    torch.testing.assert_close(theta.data, torch.tensor([3.0, 4.0]))


def test_a_mixture_is_where_the_formula_says_and_its_gradient_is_in_the_delta() -> None:
    siblings = [{"theta": torch.tensor([0.0, 10.0])}, {"theta": torch.tensor([0.0, 0.0])}]
    way = Mixed(0.3, siblings=siblings, base={"theta": torch.tensor([1.0, 1.0])})
    theta = begun(way, 5.0, 1.0)
    seen: list[Tensor] = []

    def loss() -> Tensor:
        seen.append(theta.detach().clone())
        return theta.sum()

    for seed in range(20):
        theta.grad = None
        way.backward(loss, seeded(seed))
        assert theta.grad is not None
        share = theta.grad[0].item()
        assert 0.3 <= share <= 1.0
        rest = seen[-1] - torch.tensor([1.0, 1.0]) - share * torch.tensor([4.0, 0.0])
        first, second = rest[0].item(), rest[1].item()  # -(u1 + u2), 9 u1 - u2
        u1 = (second - first) / 10
        u2 = -first - u1
        assert u1 >= -1e-6 and u2 >= -1e-6 and u1 + u2 <= 1 - share + 1e-6
        torch.testing.assert_close(theta.data, torch.tensor([5.0, 1.0]))


def test_what_is_always_alone_is_plain() -> None:
    way = Mixed(0.3, alone=1.0, siblings=[{"theta": torch.tensor([9.0])}])
    theta = begun(way, 2.0)
    assert way.backward(lambda: theta.square().sum(), seeded()).item() == 4.0
    assert theta.grad is not None and theta.grad.item() == 4.0


def test_factors_get_the_gradient_that_autograd_gives_them() -> None:
    base = torch.randn(4, 3, generator=seeded())
    parameter, bias = Parameter(base.clone()), Parameter(torch.zeros(4))
    way = Factored(2)
    factors = way.begin({"matrix": parameter, "bias": bias})
    assert set(factors) == {"matrix.a", "matrix.b"}
    left, right = factors["matrix.b"], factors["matrix.a"]
    left.data.normal_(generator=seeded(1))
    target = torch.randn(4, 3, generator=seeded(2))
    way.backward(lambda: (parameter - target).pow(4).sum() + bias.sum(), seeded())
    found = left.grad, right.grad
    left.grad = right.grad = None
    (base + left @ right - target).pow(4).sum().backward()
    for ours, theirs in zip(found, (left.grad, right.grad), strict=True):
        assert ours is not None and theirs is not None
        torch.testing.assert_close(ours, theirs)
    way.finish()
    assert torch.linalg.matrix_rank(parameter.detach() - base) == 2
    assert not bias.data.any()


@pytest.mark.parametrize("name", ["pulled", "averaged", "flat", "mixed", "low rank"])
def test_an_interruption_leaves_no_trace(tmp_path: Path, name: str) -> None:
    generator = seeded()
    values = torch.randint(256, (12, 3, 16, 16), generator=generator, dtype=torch.uint8)
    first, domains = torch.arange(0, 13, 3), torch.zeros(4, dtype=torch.long)
    pictures = TrainingPictures(values, first, domains, torch.ones(1))
    settings = TrainingSettings(n_steps=6, batch_size=8)
    start = Network(CONFIG)
    base = {key: parameter.detach().clone() for key, parameter in start.model.named_parameters()}
    ways = {
        "pulled": lambda: Pulled(0.5),
        "averaged": lambda: Averaged(0.3),
        "flat": lambda: Flat(0.05),
        "mixed": lambda: Mixed(0.2, 0.3, [{key: 1.1 * tensor for key, tensor in base.items()}], base),
        "low rank": lambda: Factored(2),
    }

    def tuned(state: Path | None, stop: int | None) -> dict[str, Tensor]:
        network = Network(CONFIG)
        network.model.load_state_dict(start.model.state_dict())

        def watch(step: object) -> None:
            if stop is not None and getattr(step, "number", 0) == stop:
                raise KeyboardInterrupt

        train_backbone(network, pictures, settings, state, 1, watch, way=ways[name]())
        return dict(network.model.state_dict())

    whole = tuned(None, None)
    with pytest.raises(KeyboardInterrupt):
        tuned(tmp_path / "state", 4)
    resumed = tuned(tmp_path / "state", None)
    assert all(torch.equal(whole[key], resumed[key]) for key in whole)
    assert any(not torch.equal(whole[key], tensor) for key, tensor in start.model.state_dict().items())
