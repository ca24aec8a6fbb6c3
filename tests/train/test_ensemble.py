"""The ensemble of sources as a teacher: against a direct computation, where it is silent, and goes on after a kill."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from smatter.compose.mixture import Mixture
from smatter.errors import InvalidSettings
from smatter.library.library import Library
from smatter.live.episodes import episode_queries, prepared_support
from smatter.live.mixture import LiveMixture
from smatter.live.task import leave_one_out
from smatter.route.encode import source_losses
from smatter.route.probe import draw_probe
from smatter.settings.training import Imitation, MetaSettings, RouterSettings
from smatter.tasks.episode import Episode
from smatter.tasks.lists import TaskList
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.suite import Suite
from smatter.train.curriculum import Curriculum, Series
from smatter.train.ensemble import EnsembleTeacher
from smatter.train.lessons import Timetable
from smatter.train.meta import LOG, meta_train
from smatter.train.objective import task_loss
from smatter.train.trainee import MetaStep, Trainee, Validation


def tasks(suite: Suite, n_shot: int = 3) -> TaskList:
    settings = SamplerSettings("router", n_way=(3, 3), n_shot=(n_shot, n_shot), n_query=4)
    return TaskList("some", Sampler(suite, settings), 1000)


def series(suite: Suite) -> tuple[Series, ...]:
    return Series(tasks(suite), 1.0), Series(tasks(suite, 1), 1.0, variant=0)


def timetable(suite: Suite, teacher: EnsembleTeacher | None) -> Timetable:
    return Timetable(series(suite), n_tasks=3, evidence_share=0.5, seed=0, teacher=teacher, taught_share=0.7)


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def _log_probabilities(scores: np.ndarray) -> np.ndarray:
    return scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))


def by_hand(live: LiveMixture, episode: Episode) -> tuple[np.ndarray, np.ndarray]:
    """Weights of the sources and probabilities of the queries, in plain loops over features of whole examples."""
    labels, n_way = episode.support.labels, episode.n_way
    losses, scores = [], []
    for name in live.library.names:
        live.compose(Mixture.of({name: 1.0}))
        support, query = (
            _unit(live.features(live.examples(each.inputs)).double().numpy())
            for each in (episode.support, episode.query)
        )
        own = []
        for row, label in enumerate(labels):
            others = np.arange(len(labels)) != row
            prototypes = [support[others & (labels == each)].sum(axis=0) for each in range(n_way)]
            own.append(-_log_probabilities(10 * _unit(np.stack(prototypes)) @ support[row])[label])
        losses.append(own)
        prototypes = [support[labels == each].sum(axis=0) for each in range(n_way)]
        scores.append(10 * query @ _unit(np.stack(prototypes)).T)
    table = np.array(losses)
    means = table.mean(axis=1)
    spread = np.delete(table, means.argmin(), axis=0) - table[means.argmin()]
    error = np.sort(spread.std(axis=1) / np.sqrt(len(labels) - 1))[(len(spread) - 1) // 2]
    weights = np.exp(_log_probabilities(-means / (3 * error)))
    return weights, np.exp(_log_probabilities(np.tensordot(weights, np.stack(scores), 1)))


def test_the_ensemble_agrees_with_a_computation_by_hand(tiny_library: Library, tiny_suite: Suite) -> None:
    live = LiveMixture(tiny_library)
    for number in range(3):
        episode = tasks(tiny_suite).episode(number)
        queries, objective = episode_queries(live, episode), leave_one_out(live, prepared_support(live, episode))
        found = EnsembleTeacher().teach(live, tiny_library.names, objective, queries)
        weights, probabilities = by_hand(live, episode)
        np.testing.assert_allclose(found.weights.numpy(), weights, atol=2e-3)
        np.testing.assert_allclose(found.probabilities.numpy(), probabilities, atol=1e-3)
        known = source_losses(live, objective, tiny_library.names)
        n_forwards = live.n_forwards
        again = EnsembleTeacher().teach(live, tiny_library.names, objective, queries, known)
        assert torch.equal(again.probabilities, found.probabilities)
        assert live.n_forwards == n_forwards + len(tiny_library.names)  # one pass of each source, nothing is solved


def test_one_source_alone_teaches_its_own_predictions(tiny_library: Library, tiny_suite: Suite) -> None:
    live, name = LiveMixture(tiny_library), tiny_library.names[1]
    episode = tasks(tiny_suite, n_shot=1).episode(0)
    queries, objective = episode_queries(live, episode), leave_one_out(live, prepared_support(live, episode))
    found = EnsembleTeacher().teach(live, [name], objective, queries)
    live.compose(Mixture.of({name: 1.0}))
    torch.testing.assert_close(found.probabilities, queries.logits(live.read(queries)).softmax(dim=1))


def test_the_ensemble_teaches_clean_tasks_and_leaves_lessons_as_they_are(
    tiny_library: Library, tiny_suite: Suite
) -> None:
    live = LiveMixture(tiny_library)
    alone, taught = (
        [lesson for step in range(6) for lesson in timetable(tiny_suite, teacher).lessons(live, step)]
        for teacher in (None, EnsembleTeacher())
    )
    untaught = Timetable(series(tiny_suite), n_tasks=3, evidence_share=0.5, seed=0)
    drawn = [lesson for step in range(6) for lesson in untaught.lessons(live, step)]
    for bare, lesson, plain in zip(alone, taught, drawn, strict=True):
        assert lesson.episode.support.labels.tolist() == plain.episode.support.labels.tolist()
        assert lesson.sources == plain.sources and lesson.is_taught == bare.is_taught  # sources may be missing
        assert lesson.encoded.features is not None and plain.encoded.features is not None
        assert torch.equal(lesson.encoded.features, plain.encoded.features)
        assert (lesson.encoded.losses is None) == (plain.encoded.losses is None)
        assert (lesson.teaching is not None) == (lesson.is_taught and lesson.variant is None)
    assert {lesson.variant for lesson in taught if lesson.is_taught} == {None, 0}


def test_a_lesson_that_is_not_taught_has_the_loss_of_its_labels(tiny_library: Library, tiny_suite: Suite) -> None:
    imitation = Imitation(predictions=0.8, teacher="ensemble")
    trainee = Trainee(LiveMixture(tiny_library), draw_probe(tiny_suite), MetaSettings(RouterSettings(width=8)))
    lessons = [
        lesson for step in range(6) for lesson in timetable(tiny_suite, EnsembleTeacher()).lessons(trainee.live, step)
    ]

    def loss(lesson, how: Imitation) -> float:
        found = task_loss(
            trainee.live,
            trainee.router,
            experts=None,
            gates=None,
            lesson=lesson,
            descriptors=trainee.descriptors,
            imitation=how,
        )
        return found.value

    for lesson in lessons:
        assert (loss(lesson, imitation) == loss(lesson, Imitation())) == (lesson.teaching is None)


def test_a_training_with_the_ensemble_goes_on_to_the_bit(
    tiny_library: Library, tiny_suite: Suite, tmp_path: Path
) -> None:
    imitation = Imitation(predictions=0.8, share=0.7, teacher="ensemble")
    settings = MetaSettings(RouterSettings(width=8, n_experts=2), 5, 2, imitation=imitation, validate_every=2)
    curriculum = Curriculum(series(tiny_suite), (replace(tasks(tiny_suite), n_tasks=2),))

    def trainee(how: MetaSettings = settings) -> Trainee:
        return Trainee(LiveMixture(tiny_library), draw_probe(tiny_suite), how)

    whole, plain = trainee(), trainee(replace(settings, imitation=Imitation()))
    outcome = meta_train(whole, curriculum, tmp_path / "whole", 2)
    meta_train(plain, curriculum)

    class Killed(Exception):
        pass

    def killed(told: MetaStep | Validation) -> None:
        if told.step == 3:
            raise Killed

    with pytest.raises(Killed):
        meta_train(trainee(), curriculum, tmp_path / "parts", 2, watch=killed)
    last = trainee()
    assert meta_train(last, curriculum, tmp_path / "parts", 2, n_workers=1) == outcome  # another process teaches
    for name, tensor in whole.state.items():
        assert torch.equal(tensor, last.state[name]), name
    assert (tmp_path / "parts" / LOG).read_bytes() == (tmp_path / "whole" / LOG).read_bytes()
    assert any(not torch.equal(tensor, plain.state[name]) for name, tensor in whole.state.items())


@pytest.mark.parametrize("change", [{}, {"weights": 0.5}, {"weights": 0.5, "predictions": 0.5}])
def test_an_ensemble_teaches_predictions_alone(change: dict) -> None:
    with pytest.raises(InvalidSettings, match="predictions"):
        Imitation(teacher="ensemble", **change)
    with pytest.raises(InvalidSettings, match="unknown teacher"):
        Imitation(predictions=0.5, teacher="parrot")  # type: ignore[arg-type]
