"""Calibration of a router's rules: errors by hand, choices that pay, resumption, whose certificates are believed."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_routers import make_router

import smatter
from smatter.certify.mean import mean_bound_betting
from smatter.errors import InvalidCertificate, InvalidRouter, InvalidSettings
from smatter.evaluate.calibrated import calibrate_router
from smatter.evaluate.run import Scorer
from smatter.evaluate.trials import trials_of
from smatter.library.library import Library
from smatter.library.recipes import read_recipe
from smatter.methods.router import RoutedSettings
from smatter.posterior.amortised import Amortised, PosteriorSettings
from smatter.posterior.catalogue import usual_catalogue
from smatter.posterior.learnt import LearntPosterior
from smatter.posterior.prior import uniform_prior
from smatter.route.certificates import CalibrationSettings
from smatter.route.class_sets import class_sets
from smatter.route.store import read_router, write_router
from smatter.route.table import row_names
from smatter.tasks.lists import TaskList
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.suite import Suite

N_TASKS = 20
BOTH = CalibrationSettings(("router", "map"), delta=0.2)


def task_list(suite: Suite, split: str = "calibration", n_tasks: int = N_TASKS) -> TaskList:
    settings = SamplerSettings(split, n_way=(2, 2), n_shot=(2, 2), n_query=4)
    return TaskList("mine", Sampler(suite, settings, 3), n_tasks)


@pytest.fixture(scope="module")
def made(tiny_library: Library, tiny_suite: Suite, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TaskList]:
    """A router with a posterior, with two rules calibrated, and the list; scores are kept beside it."""
    place = tmp_path_factory.mktemp("calibrated")
    folder, _ = make_router(tiny_library, tiny_suite, place / "bare")
    bare = read_router(folder)
    catalogue = usual_catalogue(tiny_library.names, bare.expert_names)
    posterior = LearntPosterior(
        Amortised(PosteriorSettings(width=4), torch.Generator().manual_seed(0)),
        catalogue,
        log_prior=uniform_prior(len(row_names(catalogue))),
        sources={name: tiny_library.manifest.digests[name] for name in tiny_library.names},
    )
    write_router(place / "router", replace(bare, posterior=posterior))
    tasks = task_list(tiny_suite)
    calibrate_router(place / "router", tasks, tiny_library, BOTH, cache=place / "scores")
    return place / "router", tasks


def errors_of(library: Library, tasks: TaskList, **how: object) -> np.ndarray:
    found = []
    for trial in trials_of(tasks, "by hand"):
        named = smatter.adapt(library, trial.support, **how).predict(trial.queries).names
        wanted = [trial.support.class_names[label] for label in trial.truth]
        found.append(np.mean([one != other for one, other in zip(named, wanted, strict=True)]))
    return np.array(found)


def test_bounds_are_of_what_adapt_makes_and_a_choice_pays(tiny_library, made) -> None:
    folder, tasks = made
    router, _ = read_router(folder).certificates
    errors = errors_of(tiny_library, tasks, router=folder)
    assert router.bounds[0].estimate == pytest.approx(errors.mean())
    assert router.bounds[0].value == pytest.approx(mean_bound_betting(errors, 0.1).value), "two rules share delta 0.2"
    assert (router.rule, router.tasks, router.digest, router.n) == ("router", "mine", tasks.digest, N_TASKS)
    drawn = {pair for index in range(N_TASKS) for pair in tasks.sampler.draw(index).classes}
    assert sum(map(len, router.domains.values())) == len(drawn)
    assert set(router.watched) == {"weight-entropy", "weight-divergence", "support-loss"}


def test_a_posterior_knows_thresholds_for_its_rule_and_keeps_them(tiny_library, made, tmp_path: Path) -> None:
    folder, tasks = made
    posterior = read_router(folder).posterior
    assert posterior and set(posterior.calibrations) == {"map"}
    known = posterior.calibration("map")
    assert known.digest == tasks.digest and known.errors.shape == (N_TASKS,) and "near-prior" in known.scores
    write_router(tmp_path / "again", read_router(folder))
    assert [each.rule for each in read_router(tmp_path / "again").certificates] == ["router", "map"]


def test_adapt_tells_the_certificate_of_its_rule_and_of_no_other(tiny_library, made) -> None:
    folder, tasks = made
    support = trials_of(tasks, "one")[0].support
    told = smatter.adapt(tiny_library, support, router=folder).to_dict()["certificates"]
    assert [each["rule"] for each in told] == ["router"] and "not for other classes" in told[0]["promise"]
    assert all(each["told"] for each in told[0]["bounds"])
    others: list[dict[str, object]] = [
        {"method": "evidence"}, {"router": folder, "head": "ridge"}, {"router": folder, "queries": support.inputs},
    ]  # fmt: skip
    for how in others:
        assert not smatter.adapt(tiny_library, support, **how).certificates, how
    fewer = tiny_library.only(tiny_library.names[:2])
    assert not smatter.adapt(fewer, support, router=folder).certificates


def test_sets_are_calibrated_with_what_adapt_predicts_and_a_recipe_carries_them(
    tiny_library, made, tmp_path: Path
) -> None:
    folder, tasks = made
    certificate = read_router(folder).certificates[0]
    misses, domains = [], []
    for trial in trials_of(tasks, "by hand"):
        told = smatter.adapt(tiny_library, trial.support, router=folder).predict(trial.queries).probabilities
        misses.append(1 - told.double().numpy()[np.arange(len(trial.truth)), list(trial.truth)])
        domains.append(trial.domain)
    wanted = class_sets(misses, domains, "mine", choices=2)
    assert certificate.sets and certificate.sets.domains.keys() == wanted.domains.keys() == set(domains)
    assert certificate.sets.limits == pytest.approx(wanted.limits, abs=3e-6)
    support = trials_of(tasks, "one")[0].support
    adapted = smatter.adapt(tiny_library, support, router=folder)
    adapted.save(tmp_path / "task.safetensors")
    assert read_recipe(tmp_path / "task.safetensors").notes.sets == certificate.sets
    assert adapted.to_dict()["sets"]["tasks"] == "mine"
    for how in ({"head": "ridge"}, {"queries": support.inputs}, {"settings": RoutedSettings(max_sources=1)}):
        assert smatter.adapt(tiny_library, support, router=folder, **how).recipe.notes.sets is None, how


def test_kept_scores_are_not_computed_again(tiny_library, made, monkeypatch) -> None:
    folder, tasks = made
    before = read_router(folder).certificates

    def refuse(*_: object) -> None:
        raise AssertionError("it was computed")

    monkeypatch.setattr(Scorer, "score", refuse)
    assert calibrate_router(folder, tasks, tiny_library, BOTH, cache=folder.parent / "scores") == before
    assert read_router(folder).certificates == before, "older ones on the same list give way"


def test_certificates_of_other_weights_are_refused(made, tmp_path: Path) -> None:
    shutil.copytree(made[0], tmp_path / "router")
    table = json.loads((tmp_path / "router" / "router.json").read_text())
    table["certificates"][0]["router"] = "0" * 64
    (tmp_path / "router" / "router.json").write_text(json.dumps(table))
    with pytest.raises(InvalidRouter, match="of other weights") as caught:
        read_router(tmp_path / "router")
    assert "\n" not in str(caught.value)
    table["certificates"][0]["delta"] = 7
    (tmp_path / "router" / "router.json").write_text(json.dumps(table))
    with pytest.raises(InvalidRouter, match=r"certificates\.0\.delta"):
        read_router(tmp_path / "router")


def test_a_router_that_was_trained_on_has_no_certificate(made, tmp_path: Path) -> None:
    trained = read_router(made[0])
    assert trained.certificates and trained.posterior
    other = replace(trained.posterior, temperature=2.0)
    write_router(tmp_path / "other", replace(trained, posterior=other))
    assert [each.rule for each in read_router(tmp_path / "other").certificates] == ["router"], (
        "which no posterior decides"
    )
    state = {name: 1.01 * each for name, each in trained.router.state_dict().items()}
    trained.router.load_state_dict(state)
    write_router(tmp_path / "further", trained)
    assert not read_router(tmp_path / "further").certificates
    assert "certificates" not in json.loads((tmp_path / "further" / "router.json").read_text())


def test_drift_switches_the_decision_and_withdraws_certificates(tiny_library, made, tmp_path: Path) -> None:
    """A certificate with the values of sixty tasks that are all unlike the one that is adapted to."""
    folder, tasks = made
    trained, support = read_router(folder), trials_of(tasks, "one")[0].support
    far = {name: tuple(np.linspace(1e3, 2e3, 60).tolist()) for name in trained.certificates[0].watched}
    told = trained.certificates[0].model_copy(update={"watched": far})
    write_router(tmp_path / "router", replace(trained, certificates=(told,)))
    file, found = tmp_path / "drift.json", None
    for _ in range(60):
        found = smatter.adapt(tiny_library, support, router=tmp_path / "router", drift=file, on_drift="base")
        if found.watch and found.watch.alarms:
            break
        assert found.certificates and len(found.recipe.mixture.mean_weights) > 1
    assert found and found.watch and {each.kind for each in found.watch.alarms} == {"fall"}
    assert not found.certificates and found.to_dict()["drift"]["alarms"] and found.recipe.notes.sets is None
    assert found.shares == {tiny_library.manifest.base: 1.0}
    assert found.recipe.notes.decision and found.recipe.notes.decision.outcome == "abstained"
    warned = smatter.adapt(tiny_library, support, router=tmp_path / "router", drift=file, on_drift="warn")
    assert warned.recipe.notes.sets is None, "not where the model is the usual one either"
    assert len(warned.shares) > 1 and any("no longer like" in note for note in warned.fit.notes)


def test_what_cannot_be_calibrated_is_refused(tiny_library, tiny_suite, made, tmp_path: Path) -> None:
    folder, tasks = made
    bare, _ = make_router(tiny_library, tiny_suite, tmp_path / "bare")
    for given, settings, said in (
        (task_list(tiny_suite, "router"), CalibrationSettings(), "drawn from the split 'router'"),
        (task_list(tiny_suite, n_tasks=10), CalibrationSettings(), "has 10 tasks, and 20 are needed"),
        (tasks, CalibrationSettings(n_tasks=30), "has 20 tasks, and 30 are needed"),
    ):
        with pytest.raises(InvalidCertificate, match=said):
            calibrate_router(folder, given, tiny_library, settings)
    with pytest.raises(InvalidSettings, match="no posterior, which map decides by"):
        calibrate_router(bare, tasks, tiny_library, BOTH)
