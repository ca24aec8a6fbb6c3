"""What a router of Words learns from: lists that are frozen beside the suite, and networks told by their sources."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from small_suites import usual_suite
from tiny_libraries import TOPICS, texts_support, topic_library, topic_suite

from smatter.compose.mixture import Mixture
from smatter.errors import InvalidSuite
from smatter.live.mixture import LiveMixture
from smatter.live.objectives import Queries
from smatter.route.store import read_router
from smatter.settings.training import MetaSettings, RouterSettings
from smatter.tasks.lists import read_list, write_list
from smatter.tasks.packed import read_packed, write_packed
from smatter.train.trainee import MetaStep

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "tools" / "words"), str(ROOT / "tools" / "common")]

from averaging import Averaging  # noqa: E402


def tool(name: str) -> ModuleType:
    """A file of tools/words under a name of its own: other folders have one of the same name."""
    spec = importlib.util.spec_from_file_location(f"words_{name}", ROOT / "tools" / "words" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_lists_keep_validation_and_test_apart_and_are_refused_on_another_state(tmp_path: Path, monkeypatch) -> None:
    freeze = tool("freeze")
    monkeypatch.setattr(freeze, "STAGES", {stage: (seed, 3) for stage, (seed, _) in freeze.STAGES.items()})
    write_packed(tmp_path / "words", usual_suite())
    suite = read_packed(tmp_path / "words")
    found = {each.name: each for each in freeze.lists(suite)}
    assert len(found) == 3 * (3 * 4 + 2)
    for name, tasks in found.items():
        stage, kind, form = name.split("-")
        split = "validation" if stage == "validation" else "test"
        shots = 5 if form in ("noise", "two") else int(form)
        for index, episode in enumerate(tasks):
            assert len(episode.support) == shots * episode.n_way
            assert (episode.n_way == 2) == (form == "two")
            domains = {suite.domains[number] for number, _ in tasks.sampler.draw(index).classes}
            assert {domain.role for domain in domains} == {"ood" if kind == "ood" else "id"}
            assert (len(domains) > 1) == (kind == "mixed")
            for number, label in tasks.sampler.draw(index).classes:
                assert suite.split_of[suite.domains[number].classes[label].key] == split
    assert any((each.support.labels != each.support.truth).any() for each in found["test-id-noise"])
    path = tmp_path / "words" / "test-id-5.json"
    write_list(path, found["test-id-5"])
    assert read_list(path, suite).digest == found["test-id-5"].digest
    write_packed(tmp_path / "later", usual_suite(n_examples=13))
    with pytest.raises(InvalidSuite, match="another version"):
        read_list(path, read_packed(tmp_path / "later"))


def queries(network: LiveMixture, topic: str = "law") -> Queries:
    support = texts_support(topic, n_shot=6)
    assert isinstance(support.inputs, tuple)
    labels, n_classes = torch.tensor(support.labels), len(support.class_names)
    by_class = labels.argsort(stable=True).view(n_classes, 6)
    rows = torch.cat([by_class[:, :2].flatten(), by_class[:, 2:].flatten()])  # two examples of each, then four queries
    texts = [support.inputs[row] for row in rows.tolist()]
    return Queries(network.prepare(texts, "texts"), labels[rows], 2 * n_classes, n_classes)


def test_the_average_of_sources_is_the_network_where_they_are_one_and_its_slope_is_that_of_its_loss(tmp_path) -> None:
    library = topic_library(tmp_path)
    plain, averaging = LiveMixture(library), Averaging(library)
    for network in (plain, averaging):
        network.compose(Mixture.of({"law": 1.0}))
    asked = queries(plain)
    torch.testing.assert_close(averaging.read(asked), plain.read(asked))

    def loss(weights: torch.Tensor) -> float:
        averaging.compose(Mixture(library.names, (tuple(weights.tolist()),)))
        return averaging.loss(asked)

    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    averaging.compose(Mixture(library.names, (tuple(weights.tolist()),)))
    value = averaging.backward(asked)
    slopes = averaging.inner_products(library.names).sum(dim=0)
    assert value == pytest.approx(loss(weights), rel=1e-5)
    for one, other in ((0, 1), (1, 2), (2, 0)):
        step = torch.zeros(3, dtype=torch.float64)
        step[one], step[other] = 0.02, -0.02
        change = (loss(weights + step) - loss(weights - step)) / 2
        assert change == pytest.approx(float(slopes @ step), abs=2e-5, rel=0.02)


def test_texts_pass_each_source_once_however_often_they_are_asked_for(tmp_path: Path) -> None:
    library = topic_library(tmp_path)
    averaging = Averaging(library)
    asked = queries(averaging)
    averaging.compose(Mixture.of(dict.fromkeys(library.names, 1 / 3)))
    averaging.backward(asked)
    passed = averaging.n_forwards
    averaging.compose(Mixture.of({"base": 0.9, TOPICS[0]: 0.1}))
    averaging.backward(asked)
    averaging.read(asked)
    assert averaging.n_forwards == passed and averaging.n_backwards == 0


def test_a_router_is_trained_once_and_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch) -> None:
    router, library, words = tool("router"), topic_library(tmp_path).folder, tmp_path / "suite"
    write_packed(words, topic_suite())
    monkeypatch.setattr(router, "N_VALIDATION", 1)
    monkeypatch.setattr(router, "N_TEXTS", 12)
    settings = MetaSettings(RouterSettings(width=8), n_steps=60, validate_every=20)
    router.train(library, words, tmp_path / "whole", settings)
    stop = 30

    class Stopped(router.Trainee):
        def step(self, number: int, lessons: list) -> MetaStep:
            if number == stop:
                raise KeyboardInterrupt
            return super().step(number, lessons)

    with monkeypatch.context() as patch:
        patch.setattr(router, "Trainee", Stopped)
        with pytest.raises(KeyboardInterrupt):
            router.train(library, words, tmp_path / "parts", settings)
    assert not (tmp_path / "parts").exists()
    router.train(library, words, tmp_path / "parts", settings)
    one, other = read_router(tmp_path / "whole"), read_router(tmp_path / "parts")
    assert one.record["steps"] == other.record["steps"] == 60
    first = MetaSettings(settings.router, n_steps=1, learning_rate=1e-9)
    router.train(library, words, tmp_path / "first", first)
    mine, theirs, untrained = (
        torch.cat([each.flatten() for each in trained.router.parameters()])
        for trained in (one, other, read_router(tmp_path / "first"))
    )
    moved = float((mine - untrained).norm())
    assert moved > 0.1 and float((mine - theirs).norm()) < 0.01 * moved
    before = (tmp_path / "whole" / "router.json").stat().st_mtime_ns
    router.train(library, words, tmp_path / "whole", settings)
    assert (tmp_path / "whole" / "router.json").stat().st_mtime_ns == before
