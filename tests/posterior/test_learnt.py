"""Posteriors on disk: the same bits again, in a router's folder or alone; thresholds; files that are refused."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from small_routers import make_router

from smatter.errors import InvalidRouter, InvalidSettings
from smatter.library.library import Library
from smatter.posterior.amortised import Amortised, PosteriorSettings
from smatter.posterior.catalogue import Catalogue, usual_catalogue
from smatter.posterior.learnt import KEY, LearntPosterior, RuleCalibration, read_posterior, write_posterior
from smatter.route.place import POSTERIOR, is_router
from smatter.route.store import read_router, write_router
from smatter.route.table import row_names
from smatter.tasks.suite import Suite

CATALOGUE = usual_catalogue(("base", "law", "food"), ("inverted",))
SCORES = torch.tensor([0.1, 0.4, 0.2, math.nan, 0.3, 0.5], dtype=torch.float64)
ERRORS = torch.tensor([0.0, 0.6, 0.1, 0.9, 0.2, 0.7], dtype=torch.float64)


def posterior(catalogue: Catalogue = CATALOGUE) -> LearntPosterior:
    network = Amortised(PosteriorSettings(width=5, queries=True), torch.Generator().manual_seed(0))
    torch.nn.init.normal_(network.score[2].weight, generator=torch.Generator().manual_seed(1))
    calibration = RuleCalibration("half:3", "calibration-id-5", "a" * 64, {"entropy": SCORES}, ERRORS)
    n_rows = len(row_names(catalogue))
    return LearntPosterior(
        network,
        catalogue,
        log_prior=torch.randn(n_rows, generator=torch.Generator().manual_seed(2), dtype=torch.float64).log_softmax(0),
        sources=dict.fromkeys(("base", "law", "food"), "b" * 64),
        temperature=0.7,
        calibrations={"half:3": calibration},
        record={"tasks": 12},
    )


def same(one: LearntPosterior, two: LearntPosterior) -> bool:
    states = one.network.state_dict(), two.network.state_dict()
    tensors = (one.catalogue.points, one.log_prior), (two.catalogue.points, two.log_prior)
    return (
        all(torch.equal(states[0][name], states[1][name]) for name in states[0])
        and all(torch.equal(*pair) for pair in zip(*tensors, strict=True))
        and (one.catalogue.names, one.temperature, dict(one.sources), dict(one.record))
        == (two.catalogue.names, two.temperature, dict(two.sources), dict(two.record))
        and one.network.settings == two.network.settings
        and list(one.calibrations) == list(two.calibrations)
    )


def test_it_is_the_same_when_read_again(tmp_path: Path) -> None:
    write_posterior(tmp_path / POSTERIOR, posterior())
    found = read_posterior(tmp_path / POSTERIOR)
    assert same(found, posterior())
    kept = found.calibration("half:3")
    torch.testing.assert_close(kept.scores["entropy"], SCORES, equal_nan=True)
    assert torch.equal(kept.errors, ERRORS) and kept.tasks == "calibration-id-5"


def test_a_router_keeps_it(tiny_library: Library, tiny_suite: Suite, tmp_path: Path) -> None:
    folder, _ = make_router(tiny_library, tiny_suite, tmp_path / "router")
    bare = read_router(folder)
    assert bare.posterior is None
    own = posterior(usual_catalogue(("base", "law", "food"), bare.expert_names))
    write_router(tmp_path / "more", replace(bare, posterior=own))
    found = read_router(tmp_path / "more")
    assert found.posterior and same(found.posterior, own) and is_router(tmp_path / "more")
    assert found.digest != bare.digest
    (tmp_path / "more" / POSTERIOR).write_bytes((tmp_path / "more" / POSTERIOR).read_bytes() + b"\0")
    with pytest.raises(InvalidRouter):
        read_router(tmp_path / "more")


def test_a_threshold_answers_the_share_that_was_asked_for() -> None:
    known = posterior().calibration("half:3")
    scores = SCORES[~SCORES.isnan()]
    for coverage in (0.2, 0.4, 0.8, 1.0):
        assert float((scores <= known.threshold("entropy", coverage)).double().mean()) == pytest.approx(coverage)


@pytest.mark.parametrize("coverage", [0.0, -0.1, 1.1, math.nan])
def test_what_is_no_share_is_refused(coverage: float) -> None:
    with pytest.raises(InvalidSettings, match="coverage"):
        posterior().calibration("half:3").threshold("entropy", coverage)


def test_thresholds_of_another_rule_or_score_are_refused() -> None:
    with pytest.raises(InvalidSettings, match="smatter calibrate"):
        posterior().calibration("map")
    with pytest.raises(InvalidSettings, match="entropy"):
        posterior().calibration("half:3").threshold("loss", 0.8)
    empty = replace(posterior().calibration("half:3"), scores={"entropy": torch.full((6,), math.nan)})
    with pytest.raises(InvalidSettings, match="another score"):
        empty.threshold("entropy", 0.8)


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": 0.0}, {"temperature": "hot"}, {"names": []}, {"schema": 2}, {"stranger": 1},
        {"settings": {"width": 4, "queries": True}}, {"names": ["one"]}, {"sources": {"base": "b" * 64}},
        {"settings": {"width": 0, "queries": True, "family": "categorical"}}, {"settings": {"width": 10**9}},
        {"calibrations": [{"rule": "map", "tasks": "t", "digest": "a" * 64, "scores": ["entropy"]}] * 2},
    ],
)  # fmt: skip
def test_files_that_are_no_posterior_are_refused(tmp_path: Path, change: dict) -> None:
    path = tmp_path / POSTERIOR
    write_posterior(path, posterior())
    with safe_open(path, "pt") as file:
        header = json.loads(file.metadata()[KEY])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_file(tensors, path, {KEY: json.dumps(header | change)})
    with pytest.raises(InvalidRouter, match="train it again"):
        read_posterior(path)
    save_file(tensors, path)
    with pytest.raises(InvalidRouter, match="train it again"):
        read_posterior(path)
    for name, change in (("log_prior", slice(3)), ("calibration.0.errors", slice(2))):
        save_file(tensors | {name: tensors[name][change].clone()}, path, {KEY: json.dumps(header)})
        with pytest.raises(InvalidRouter, match="train it again"):
            read_posterior(path)
    tensors["network.score.0.weight"][0, 0] = math.nan
    save_file(tensors, path, {KEY: json.dumps(header)})
    with pytest.raises(InvalidRouter, match="NaN"):
        read_posterior(path)
