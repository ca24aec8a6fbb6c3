"""Distillation: the formula, the solver as a teacher, what is kept on disk."""

from pathlib import Path

import pytest
import torch

from smatter.compose.mixture import Mixture
from smatter.errors import InvalidSettings
from smatter.library.library import Library
from smatter.live.episodes import episode_queries, prepared_support
from smatter.live.mixture import LiveMixture
from smatter.live.task import Task, leave_one_out
from smatter.methods.solver import solver
from smatter.route.encode import as_mixture
from smatter.route.probe import draw_probe
from smatter.settings.training import Imitation, MetaSettings, RouterSettings
from smatter.tasks.lists import TaskList
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.suite import Suite
from smatter.train.curriculum import Curriculum, Series
from smatter.train.lessons import Lesson, Timetable
from smatter.train.meta import meta_train
from smatter.train.objective import task_loss
from smatter.train.teacher import FLOOR, Teacher, better_experts, distillation
from smatter.train.trainee import SOLVED, MetaStep, Trainee


def tasks(suite: Suite) -> TaskList:
    return TaskList("some", Sampler(suite, SamplerSettings("router", n_way=(3, 3), n_shot=(3, 3), n_query=4)), 1000)


def test_distillation_is_the_divergence_of_tempered_softmaxes() -> None:
    weights, scores, tau = torch.tensor([0.7, 0.3, 0.0]), torch.tensor([[1.0, -1.0, 0.5], [0.0, 0.0, 0.0]]), 2.0
    logits = (weights + FLOOR).log()
    teacher = torch.softmax(logits / tau, dim=0)
    expected = [
        float((teacher * (teacher.log() - torch.log_softmax(row / tau, dim=0))).sum()) * tau**2 for row in scores
    ]
    assert float(distillation(weights, scores, tau)) == pytest.approx(sum(expected) / 2, rel=1e-5)
    assert float(distillation(weights, logits[None], tau)) == pytest.approx(0, abs=1e-6)


def test_the_teacher_is_the_solver_and_solves_once(
    tiny_library: Library, tiny_suite: Suite, tmp_path: Path, monkeypatch
) -> None:
    live = LiveMixture(tiny_library)
    episode = tasks(tiny_suite).episode(0)
    support, queries = prepared_support(live, episode), episode_queries(live, episode)
    teacher = Teacher(tmp_path)
    taught = teacher.teach(live, support, queries)
    mixture = solver(live, Task.of(live, support)).mixture
    found = dict(zip(mixture.sources, mixture.rows[0], strict=True))
    assert taught.weights.tolist() == pytest.approx([found.get(name, 0.0) for name in tiny_library.names], abs=1e-3)
    assert taught.probabilities.shape == (12, 3)
    n_backwards = live.n_backwards
    again = teacher.teach(live, support, queries)
    assert live.n_backwards == n_backwards and torch.equal(again.weights, taught.weights)
    torch.testing.assert_close(again.probabilities, taught.probabilities)
    for file in tmp_path.iterdir():
        file.write_text("[1, 2]")
    assert torch.equal(teacher.teach(live, support, queries).weights, taught.weights)
    assert live.n_backwards > n_backwards


def timetable(suite: Suite, folder: Path) -> Timetable:
    return Timetable((Series(tasks(suite), 1.0),), 2, 1.0, 0, Teacher(folder / SOLVED), 1.0)


def _far(trainee: Trainee, lesson: Lesson) -> float:
    """How far a router is from what its teacher says."""
    assert lesson.teaching
    with torch.no_grad():
        routing = trainee.router(lesson.encoded.statistics, trainee.descriptors, lesson.encoded.losses)
    return float(distillation(lesson.teaching.weights, routing.scores, 1.0))


def expert_trainee(library: Library, suite: Suite) -> Trainee:
    trainee = Trainee(LiveMixture(library), draw_probe(suite), MetaSettings(RouterSettings(width=8, n_experts=2), 4, 1))
    assert trainee.experts
    with torch.no_grad():
        trainee.experts.values.normal_(std=0.05, generator=torch.Generator().manual_seed(0))
    return trainee


def test_experts_are_taught_by_gradient_steps_on_the_examples(tiny_library: Library, tiny_suite: Suite) -> None:
    trainee = expert_trainee(tiny_library, tiny_suite)
    experts, live, alpha = trainee.experts, trainee.live, torch.tensor([0.2, 0.3])
    assert experts
    episode, gates = tasks(tiny_suite).episode(0), experts.gates().detach()
    mixture = Mixture.of({tiny_library.names[0]: 1.0})
    rows = leave_one_out(live, prepared_support(live, episode))

    def loss(weights: torch.Tensor) -> float:
        live.compose(mixture, live.numbering.residual(experts.residual(weights, gates).detach()))
        return live.loss(rows)

    better = better_experts(live, episode, mixture, experts, gates, alpha)
    assert (
        better is not None
        and better.shape == (3,)
        and float(better.sum()) == pytest.approx(1, abs=1e-6)
        and bool((better >= -1e-6).all())
    )
    assert loss(better[:2]) < loss(alpha)
    one_shot = TaskList(
        "one", Sampler(tiny_suite, SamplerSettings("router", n_way=(3, 3), n_shot=(1, 1), n_query=4)), 9
    )
    assert better_experts(live, one_shot.episode(0), mixture, experts, gates, alpha) is None


def test_weights_of_experts_unlike_their_teacher_have_a_price(tiny_library: Library, tiny_suite: Suite) -> None:
    trainee = expert_trainee(tiny_library, tiny_suite)
    live, router, experts = trainee.live, trainee.router, trainee.experts
    assert experts
    timetable = Timetable((Series(tasks(tiny_suite), 1.0),), 1, 1.0, 0, taught_share=1.0)
    (lesson,) = timetable.lessons(live, 0)
    assert lesson.is_taught and lesson.teaching is None  # no task need be solved
    gates = experts.gates().detach()
    found = [
        task_loss(
            live,
            router,
            experts=experts,
            gates=gates,
            lesson=lesson,
            descriptors=trainee.descriptors,
            imitation=Imitation(experts=price),
        )
        for price in (0.0, 3.0)
    ]
    routing = found[0].routing
    mixture = as_mixture(live, routing.weights.detach(), tiny_library.names)
    better = better_experts(live, lesson.episode, mixture, experts, gates, routing.experts)
    assert better is not None
    far = distillation(better, routing.expert_scores[None], 1.0)
    assert float(far.detach()) > 0.01
    torch.testing.assert_close(found[1].slope - found[0].slope, 3 * far, atol=1e-4, rtol=1e-4)
    far.backward()
    assert all(parameter.grad is not None for parameter in router.choose.parameters())


@pytest.mark.parametrize("imitation", [Imitation(weights=5.0, share=1.0), Imitation(predictions=1.0, share=1.0)])
def test_a_router_learns_from_its_teacher(
    tiny_library: Library, tiny_suite: Suite, tmp_path: Path, imitation: Imitation
) -> None:
    settings = MetaSettings(
        RouterSettings(width=8), 12, 2, learning_rate=0.03, evidence_share=1.0, warm_up=0.01, imitation=imitation
    )
    trainee = Trainee(LiveMixture(tiny_library), draw_probe(tiny_suite), settings)
    curriculum = Curriculum((Series(tasks(tiny_suite), 1.0),))
    told: list[MetaStep] = []
    meta_train(trainee, curriculum, tmp_path, watch=told.append)  # type: ignore[arg-type]
    assert len(list((tmp_path / SOLVED).iterdir())) == 24
    lessons = timetable(tiny_suite, tmp_path).lessons(trainee.live, 0)
    before, after = (
        sum(_far(each, lesson) for lesson in lessons)
        for each in (Trainee(trainee.live, draw_probe(tiny_suite), settings), trainee)
    )
    assert after < before and len(told) == 12
    with pytest.raises(InvalidSettings, match="folder"):
        meta_train(trainee, curriculum)


@pytest.mark.parametrize("change", [{"weights": -1.0}, {"predictions": 2.0}, {"temperature": 0.0}])
def test_impossible_imitations_are_refused(change: dict) -> None:
    with pytest.raises(InvalidSettings):
        Imitation(**change)
