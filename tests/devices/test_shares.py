"""Shares of modules by a profile."""

from pathlib import Path

import pytest
from small_runtimes import make_library

from smatter.backbones.arithmetic import module_shares
from smatter.backbones.branch import passes_of
from smatter.backbones.network import Network
from smatter.devices.fingerprint import Fingerprint
from smatter.devices.profile import Profile
from smatter.devices.shares import profiled_shares
from smatter.devices.stacks import make_bench
from smatter.devices.unmeasured import counted_profile
from smatter.errors import InvalidProfile
from smatter.records import Partition
from smatter.settings.devices import DeviceSetting
from smatter.units.numbering import REST

HERE = Fingerprint(device="a", cores=2, capability="b", torch="2", transformers="5", threads=1, batch=8,
                   dtype="F32", length=8, network="0" * 64)  # fmt: skip
MODULES = Partition({"embeddings": ("e.weight",), "layer.0": ("a.weight", "b.weight"), "layer.1": ("c.weight",)})
FREE = (0.0,) * 5


def profile(**costs: tuple[float, ...]) -> Profile:
    return Profile(unit="ms", method="stacks", fingerprint=HERE, base=10.0, costs=costs)


def test_a_module_counts_at_full_activity_with_its_rest() -> None:
    on = 0.2, 0.0, 0.0, 0.0, 0.0
    costs = {"layer.0": (0.1, 0.1, 0.1, 0.1, 0.2), "layer.0" + REST: on, "layer.1": on}
    found = profiled_shares(profile(**costs), MODULES)
    assert found == pytest.approx({"embeddings": 0, "layer.0": 0.8, "layer.1": 0.2})
    assert passes_of(found, [["layer.1"]] * 3) == pytest.approx(1.4)


def test_operators_of_rank_components_are_summed() -> None:
    costs = {name: (share, *FREE[1:]) for name, share in (("a.weight", 0.1), ("b.weight", 0.2), ("c.weight", 0.1))}
    assert profiled_shares(profile(**costs), MODULES) == pytest.approx(
        {"embeddings": 0, "layer.0": 0.75, "layer.1": 0.25}
    )


def test_other_networks_and_free_ones_have_no_shares() -> None:
    with pytest.raises(InvalidProfile, match=r"no module 'layer\.2'"):
        profiled_shares(profile(**{"layer.2": FREE}), MODULES)
    with pytest.raises(InvalidProfile, match="free"):
        profiled_shares(profile(**{"layer.1": FREE}), MODULES)


@pytest.mark.parametrize("rank", [None, 4])
def test_layers_of_a_real_profile_share_as_their_products_do(rank: int | None, tmp_path: Path) -> None:
    library = make_library("vit", tmp_path)
    found = profiled_shares(counted_profile(make_bench(library, DeviceSetting(batch=2, rank=rank))), library.partition)
    counted = module_shares(Network(library.base.config, library.specs), library.partition)
    assert sum(found.values()) == pytest.approx(1) and found.keys() == counted.keys()
    assert found["encoder.layer.0.mlp"] == pytest.approx(found["encoder.layer.1.mlp"]) and counted["final_norm"] == 0
    assert 0.5 < found["encoder.layer.0.mlp"] / counted["encoder.layer.0.mlp"] < 2
