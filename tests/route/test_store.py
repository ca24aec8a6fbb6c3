"""A router on disk: what was written is what is read, and what is damaged or foreign is refused."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from smatter.algebra.luck import difference_error
from smatter.errors import AlreadyExists, InvalidRouter, NotFound
from smatter.library.library import Library
from smatter.live.episodes import prepared_support
from smatter.live.mixture import LiveMixture
from smatter.live.task import leave_one_out
from smatter.route.encode import encode
from smatter.route.evidence import default_temperature
from smatter.route.probe import draw_probe
from smatter.route.store import TABLE, WEIGHTS, TrainedRouter, read_router, write_router
from smatter.settings.training import MetaSettings, RouterSettings, Tying
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.suite import Suite
from smatter.train.trainee import Trainee


def made(library: Library, suite: Suite, tying: Tying = "global") -> TrainedRouter:
    settings = MetaSettings(RouterSettings(width=8, n_experts=2, tying=tying), expert_share=0.3)
    trainee = Trainee(LiveMixture(library), draw_probe(suite), settings)
    assert trainee.experts
    with torch.no_grad():
        trainee.experts.values.normal_(std=0.01, generator=torch.Generator().manual_seed(0))
    return trainee.finish({"by": "a test"})


@pytest.mark.parametrize("tying", ["global", "tied", "per-module"])
def test_what_is_read_routes_as_what_was_written(
    tiny_library: Library, tiny_suite: Suite, tmp_path: Path, tying: Tying
) -> None:
    before = made(tiny_library, tiny_suite, tying)
    write_router(tmp_path / "router", before)
    after = read_router(tmp_path / "router")
    live = LiveMixture(tiny_library)
    after.check_fits(live)
    episode = Sampler(tiny_suite, SamplerSettings("router", n_way=(3, 3), n_shot=(2, 2), n_query=4)).episode(0)
    encoded = encode(live, leave_one_out(live, prepared_support(live, episode)), tiny_library.names)
    told = [
        each.router(encoded.statistics, each.describe(live, tiny_library.names), encoded.losses)
        for each in (before, after)
    ]
    assert torch.equal(told[0].weights, told[1].weights) and torch.equal(told[0].experts, told[1].experts)
    assert before.bank and after.bank and before.bank.digest == after.bank.digest
    assert np.array_equal(before.bank.masks, after.bank.masks)
    assert np.array_equal(before.bank.values, after.bank.values)
    assert after.record == {"by": "a test"} and after.digest


def test_a_source_that_came_later_is_described_by_the_probe_set(tiny_library: Library, tiny_suite: Suite) -> None:
    trained = made(tiny_library, tiny_suite)
    live, names = LiveMixture(tiny_library), tiny_library.names
    known = trained.describe(live, names)
    digest = tiny_library.manifest.digests[names[-1]]
    fewer = {key: value for key, value in trained.descriptors.items() if key != digest}
    told: list[int] = []
    later = TrainedRouter(**{**vars(trained), "descriptors": fewer}).describe(live, names, told.append)
    torch.testing.assert_close(later, known)
    assert told == [1]


def test_evidence_stands_beside_a_router_that_does_not_know_every_source(
    tiny_library: Library, tiny_suite: Suite
) -> None:
    trained = made(tiny_library, tiny_suite)
    live, names = LiveMixture(tiny_library), tiny_library.names
    episode = Sampler(tiny_suite, SamplerSettings("router", n_way=(3, 3), n_shot=(2, 2), n_query=4)).episode(0)
    encoded = encode(live, leave_one_out(live, prepared_support(live, episode)), names)
    assert encoded.losses is not None
    known = trained.router(encoded.statistics, trained.describe(live, names), encoded.losses).weights
    torch.testing.assert_close(trained.ask(live, names)(encoded).weights, known.double())

    fewer = {name: digest for name, digest in trained.sources.items() if name != names[-1]}
    later = TrainedRouter(**{**vars(trained), "sources": fewer})
    blind = trained.router(encoded.statistics, trained.describe(live, names), None).weights
    losses = encoded.losses.double()
    temperature = 2.0 * default_temperature(len(names)) * difference_error(losses)
    expected = blind.double() * torch.exp(-losses.mean(dim=1) / temperature)
    weights = later.ask(live, names)(encoded).weights
    torch.testing.assert_close(weights, expected / expected.sum(dim=1, keepdim=True), rtol=1e-5, atol=1e-7)
    without = later.ask(live, names)(replace(encoded, losses=None)).weights
    torch.testing.assert_close(without, blind.double())
    assert int((later.ask(live, names, 2)(encoded).weights > 0).sum()) == 2


def test_damage_and_strangers_are_refused(tiny_library: Library, tiny_suite: Suite, tmp_path: Path) -> None:
    trained = made(tiny_library, tiny_suite)
    live = LiveMixture(tiny_library)
    for field, words in {"base": "another base", "partition": "other modules"}.items():
        with pytest.raises(InvalidRouter, match=words):
            TrainedRouter(**{**vars(trained), field: "0" * 64}).check_fits(live)
    with pytest.raises(NotFound, match="smatter train"):
        read_router(tmp_path)
    folder = tmp_path / "router"
    write_router(folder, trained)
    table, weights = (folder / TABLE).read_text(), (folder / WEIGHTS).read_bytes()

    def refused(words: str) -> None:
        with pytest.raises(InvalidRouter, match=words) as caught:
            read_router(folder)
        assert "\n" not in str(caught.value)

    (folder / WEIGHTS).write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    refused("not the file")
    (folder / WEIGHTS).write_bytes(weights)
    for change, words in {
        "settings": ({"width": 16}, "size mismatch"),
        "sources": ({}, "descriptors"),
        "groups": (["one"], "different lengths"),
        "base": ("1" * 64, "base is not among"),
        "schema": (1, "schema"),
    }.items():
        value, expected = words
        (folder / TABLE).write_text(json.dumps(json.loads(table) | {change: value}))
        refused(expected)
    for old, new, words in (
        ('"width": 8', '"width": 20000000', "give 1 to 4096"),
        ('"max_sources": null', '"max_sources": 1.5', "integer"),
        ('"pooling": "moments"', '"pooling": "mean"', "pooling"),
    ):
        (folder / TABLE).write_text(table.replace(old, new))
        refused(words)


@pytest.mark.parametrize("tensor", ["probe.0.prototypes", "probe.0.spreads", "probe.1.sizes"])
@pytest.mark.parametrize(
    "damage",
    [lambda old: old[:0], lambda old: old[:1], lambda old: old[None], torch.Tensor.double, torch.zeros_like],
    ids=["empty", "short", "deep", "double", "zero"],
)
def test_a_damaged_probe_set_is_refused(
    tiny_library: Library, tiny_suite: Suite, tmp_path: Path, tensor: str, damage: Callable[[Tensor], Tensor]
) -> None:
    write_router(tmp_path / "router", made(tiny_library, tiny_suite))
    weights, table = tmp_path / "router" / WEIGHTS, tmp_path / "router" / TABLE
    tensors = load_file(weights)
    if damage is torch.zeros_like and not tensor.endswith("sizes"):
        pytest.skip("a mean may be zero")
    save_file(tensors | {tensor: damage(tensors[tensor]).contiguous()}, weights)
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    table.write_text(json.dumps(json.loads(table.read_text()) | {"weights": digest}))
    with pytest.raises(InvalidRouter, match="statistics of group"):
        read_router(tmp_path / "router")


def test_only_a_router_is_replaced(tiny_library: Library, tiny_suite: Suite, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "holiday.jpg").touch()
    with pytest.raises(AlreadyExists):
        write_router(tmp_path / "photos", made(tiny_library, tiny_suite), replace=True)
    write_router(tmp_path / "router", made(tiny_library, tiny_suite))
    write_router(tmp_path / "router", made(tiny_library, tiny_suite), replace=True)
