"""The router on board: it fits its library, and does what was promised of sources that are strange to it."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import smatter
from smatter import methods
from smatter.errors import InvalidSupport
from smatter.library.edit import add_source
from smatter.library.library import Library, open_library
from smatter.live.episodes import episode_queries, prepared_support
from smatter.live.mixture import LiveMixture
from smatter.live.task import Task
from smatter.methods import Fit
from smatter.methods.router import RoutedSettings
from smatter.route.certificates import sources_digest
from smatter.route.store import TrainedRouter, read_router
from smatter.tasks.episode import Episode
from smatter.tasks.export import support_of
from smatter.tasks.open import SHIPPED, open_list, open_suite
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.support import Support

N_TASKS = 4
MODES = ("told", "untold")


@pytest.fixture(scope="module")
def router() -> TrainedRouter:
    return read_router(SHIPPED / "signs-router")


@pytest.fixture(scope="module")
def live() -> LiveMixture:
    return LiveMixture(open_library(SHIPPED / "signs-library"))


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """The shipped library with a near-duplicate of one specialist and a source of noise."""
    folder = tmp_path_factory.mktemp("strange") / "library"
    shutil.copytree(SHIPPED / "signs-library", folder)
    library, generator = open_library(folder), torch.Generator().manual_seed(0)

    def add(name: str, tensors: dict[str, torch.Tensor], *accept: str) -> None:
        place = folder / name
        place.mkdir()
        save_file(tensors, place / "model.safetensors", metadata={"format": "pt"})
        shutil.copy(library.base.folder / "config.json", place)
        add_source(folder, place, accept=accept)

    def noise(like: torch.Tensor) -> torch.Tensor:
        return like.std(correction=0) * torch.randn(like.shape, generator=generator)

    whole = {name: library.tensor("latin", name).clone() for name in library.specs}
    add("latin-twin", {name: tensor + 0.01 * noise(tensor) for name, tensor in whole.items()})
    base = load_file(library.base.folder / "model.safetensors")
    add("noise", {name: tensor.mean() + noise(tensor) for name, tensor in base.items()}, "unrelated")
    return open_library(folder)


def some_episodes() -> list[Episode]:
    names = ("validation-id-2", "validation-ood-1", "validation-mixed-5")
    return [open_list("signs", name).episode(index) for name in names for index in range(N_TASKS)]


def routed(live: LiveMixture, trained: TrainedRouter, episode: Episode, mode: str) -> tuple[Fit, float]:
    task = Task.of(live, prepared_support(live, episode))
    found = methods.find("router")(live, task, RoutedSettings(trained, evidence=mode == "told"))
    live.compose(found.recipe(live.library))
    queries = episode_queries(live, episode)
    return found, queries.accuracy(live.read(queries))


def test_it_fits_its_library(live: LiveMixture, router: TrainedRouter) -> None:
    router.check_fits(live)
    assert router.sources == live.library.manifest.digests
    assert router.bank is not None and router.record["suite"] == "signs"


def test_its_certificate_is_of_what_it_does_now(live: LiveMixture, router: TrainedRouter) -> None:
    """Scores of the first tasks of its list are what they were: neither the router nor the program has changed."""
    (certificate,) = router.certificates
    tasks = open_list("signs", certificate.tasks)
    assert certificate.sources == sources_digest(live.library.manifest) and certificate.digest == tasks.digest
    for index in range(2):
        adapted = smatter.adapt(live.library, support_of(tasks.episode(index)), router=router)
        assert adapted.certificates == (certificate,) and adapted.recipe.notes.sets == certificate.sets
        for name, value in adapted.uncertainty.items():
            assert certificate.watched[name][index] == pytest.approx(value, rel=1e-3, abs=1e-4), name


@pytest.mark.parametrize("mode", MODES)
def test_twins_share_their_weight_and_noise_gets_none(
    live: LiveMixture, strange: Library, router: TrainedRouter, mode: str
) -> None:
    more = LiveMixture(strange)
    noises, lost = [], []
    for episode in some_episodes():
        found, with_strangers = routed(more, router, episode, mode)
        weights = found.mixture.mean_weights
        noises.append(weights.get("noise", 0.0))
        one, twin = weights["latin"], weights["latin-twin"]
        assert abs(one - twin) < 0.02 + 0.15 * (one + twin)
        lost.append(routed(live, router, episode, mode)[1] - with_strangers)
    assert sum(noises) / len(noises) < 0.05
    assert sum(lost) / len(lost) < 0.02


@pytest.mark.parametrize("n_way", [2, 14])
def test_numbers_of_classes_that_it_never_saw_work(live: LiveMixture, router: TrainedRouter, n_way: int) -> None:
    settings = SamplerSettings("validation", n_way=(n_way, n_way), n_shot=(2, 2), n_query=5)
    episode = Sampler(open_suite("signs"), settings).episode(0)
    _, accuracy = routed(live, router, episode, "untold")
    assert accuracy > 2 / n_way if n_way > 2 else accuracy > 0.5


def test_one_shot_is_not_refined_and_one_class_is_refused(router: TrainedRouter) -> None:
    folder = Path(SHIPPED / "signs-library")
    live = LiveMixture(open_library(folder))
    support = prepared_support(live, open_list("signs", "validation-id-1").episode(0))
    adapted = smatter.adapt(folder, support, "refined", router=router)
    assert "none can be held out" in " ".join(adapted.fit.notes)
    with pytest.raises(InvalidSupport, match="only one class"):
        Support.of(support.inputs, ["same"] * len(support))
