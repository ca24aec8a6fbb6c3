"""Meta-training: it learns, it goes on after a kill to the bit, it keeps what experts may change."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from smatter.compose.mixture import Mixture
from smatter.errors import InvalidSettings
from smatter.library.library import Library
from smatter.live.episodes import episode_queries
from smatter.live.mixture import LiveMixture
from smatter.route.probe import draw_probe
from smatter.settings.training import MetaSettings, RouterSettings
from smatter.tasks.lists import TaskList
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.splits import Split
from smatter.tasks.suite import Suite
from smatter.train.curriculum import Curriculum, Series
from smatter.train.lessons import Lesson, Timetable
from smatter.train.meta import LOG, STATE, meta_train
from smatter.train.trainee import MetaStep, Trainee, Validation

SETTINGS = MetaSettings(RouterSettings(width=8, n_experts=2), n_steps=6, n_tasks=2, delta_rate=1e-2, validate_every=2)


def tasks(suite: Suite, name: str, split: Split, shots: int, n_tasks: int = 10_000) -> TaskList:
    return TaskList(
        name, Sampler(suite, SamplerSettings(split, n_way=(3, 3), n_shot=(shots, shots), n_query=4)), n_tasks
    )


def series(suite: Suite) -> tuple[Series, ...]:
    return tuple(Series(tasks(suite, name, "router", shots), 1.0) for name, shots in {"few": 1, "more": 3}.items())


def curriculum(suite: Suite) -> Curriculum:
    return Curriculum(series(suite), (tasks(suite, "validation", "validation", 2, 3),))


def trainee(library: Library, suite: Suite, settings: MetaSettings = SETTINGS) -> Trainee:
    return Trainee(LiveMixture(library), draw_probe(suite), settings)


Told = MetaStep | Validation


@pytest.mark.parametrize("last_step", [1, 3, 5])
def test_a_run_that_was_killed_goes_on_to_the_bit(
    tiny_library: Library, tiny_suite: Suite, tmp_path: Path, last_step: int
) -> None:
    whole: list[Told] = []
    first = trainee(tiny_library, tiny_suite)
    outcome = meta_train(first, curriculum(tiny_suite), tmp_path / "whole", 2, watch=whole.append)

    class Killed(Exception):
        pass

    def killed_after(told: Told) -> None:
        if isinstance(told, MetaStep) and told.step == last_step:
            raise Killed

    folder = tmp_path / "parts"
    with pytest.raises(Killed):
        meta_train(trainee(tiny_library, tiny_suite), curriculum(tiny_suite), folder, 2, watch=killed_after)
    parts: list[Told] = []
    last = trainee(tiny_library, tiny_suite)
    assert meta_train(last, curriculum(tiny_suite), folder, 2, 1, parts.append) == outcome  # by another process, too
    kept = last_step // 2 * 2
    assert parts == [told for told in whole if told.step > kept]
    assert (folder / LOG).read_bytes() == (tmp_path / "whole" / LOG).read_bytes()
    for name, tensor in first.state.items():
        assert torch.equal(tensor, last.state[name]), name


@pytest.mark.parametrize("when", [1, 3, "validating"])
def test_a_run_that_was_asked_to_end_keeps_every_step(
    tiny_library: Library, tiny_suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: int | str
) -> None:
    whole: list[Told] = []
    first = trainee(tiny_library, tiny_suite)
    outcome = meta_train(first, curriculum(tiny_suite), tmp_path / "whole", 100, watch=whole.append)

    def asked(told: Told) -> None:
        if told.step == when and isinstance(told, MetaStep):
            raise KeyboardInterrupt

    def never_ends(*_: object) -> Validation:
        raise KeyboardInterrupt

    stopped = trainee(tiny_library, tiny_suite)
    if when == "validating":
        monkeypatch.setattr(stopped, "validate", never_ends)
    with pytest.raises(KeyboardInterrupt) as end:
        meta_train(stopped, curriculum(tiny_suite), tmp_path / "parts", 100, watch=asked)
    done = when if isinstance(when, int) else SETTINGS.validate_every
    assert end.value.__notes__ == [f"{done} steps are kept: run the same command again to go on"]
    parts: list[Told] = []
    last = trainee(tiny_library, tiny_suite)
    assert meta_train(last, curriculum(tiny_suite), tmp_path / "parts", 100, watch=parts.append) == outcome
    assert [told for told in parts if isinstance(told, MetaStep)] == [
        told for told in whole if isinstance(told, MetaStep) and told.step > done
    ]
    assert (tmp_path / "parts" / LOG).read_bytes() == (tmp_path / "whole" / LOG).read_bytes()
    assert all(torch.equal(tensor, last.state[name]) for name, tensor in first.state.items())


def test_more_steps_extend_a_finished_training(tiny_library: Library, tiny_suite: Suite, tmp_path: Path) -> None:
    meta_train(trainee(tiny_library, tiny_suite), curriculum(tiny_suite), tmp_path)
    longer, told = trainee(tiny_library, tiny_suite, replace(SETTINGS, n_steps=8)), list[Told]()
    outcome = meta_train(longer, curriculum(tiny_suite), tmp_path, watch=told.append)
    assert outcome.n_steps == 8 and [each.step for each in told] == [7, 8, 8]
    with pytest.raises(InvalidSettings, match="training of 8 steps: ask for more"):
        meta_train(trainee(tiny_library, tiny_suite), curriculum(tiny_suite), tmp_path)


def test_the_log_is_whole_after_every_step_and_forgives_half_a_line(
    tiny_library: Library, tiny_suite: Suite, tmp_path: Path
) -> None:
    lines: list[int] = []

    def count(_: Told) -> None:
        lines.append(len((tmp_path / LOG).read_text().splitlines()))

    meta_train(trainee(tiny_library, tiny_suite), curriculum(tiny_suite), tmp_path, watch=count)
    assert lines == list(range(1, len(lines) + 1))
    with (tmp_path / LOG).open("a") as file:
        file.write('{"what": "MetaSt')
    meta_train(trainee(tiny_library, tiny_suite), curriculum(tiny_suite), tmp_path)
    assert len((tmp_path / LOG).read_text().splitlines()) == lines[-1]


def test_a_validation_says_what_needs_no_training(tiny_library: Library, tiny_suite: Suite) -> None:
    learner, told = trainee(tiny_library, tiny_suite, replace(SETTINGS, n_steps=2)), list[Told]()
    outcome = meta_train(learner, curriculum(tiny_suite), watch=told.append)
    found = told[-1]
    assert isinstance(found, Validation) and outcome.validation and outcome.validation.references == found.references
    live, accuracies = learner.live, dict.fromkeys(("base", "average"), 0.0)
    names = tiny_library.names
    mixtures = {"base": {names[0]: 1.0}, "average": dict.fromkeys(names, 1 / len(names))}
    for name, weights in mixtures.items():
        for number in range(3):
            queries = episode_queries(live, curriculum(tiny_suite).validation[0].episode(number))
            live.compose(Mixture.of(weights))
            accuracies[name] += queries.accuracy(live.read(queries)) / 3
    assert {name: found.references[name] for name in accuracies} == pytest.approx(accuracies)
    assert 0 <= found.references["evidence"] <= 1


def test_another_run_is_not_gone_on_with(tiny_library: Library, tiny_suite: Suite, tmp_path: Path) -> None:
    settings = replace(SETTINGS, n_steps=1)
    meta_train(trainee(tiny_library, tiny_suite, settings), curriculum(tiny_suite), tmp_path)
    before = (tmp_path / STATE).read_bytes()
    with pytest.raises(InvalidSettings, match="another training"):
        meta_train(trainee(tiny_library, tiny_suite, replace(settings, seed=1)), curriculum(tiny_suite), tmp_path)
    other_probe = Trainee(LiveMixture(tiny_library), draw_probe(tiny_suite, split="source"), settings)
    with pytest.raises(InvalidSettings, match="another training"):
        meta_train(other_probe, curriculum(tiny_suite), tmp_path)
    assert (tmp_path / STATE).read_bytes() == before


def test_a_limit_on_sources_can_be_trained_with(tiny_library: Library, tiny_suite: Suite) -> None:
    settings = replace(SETTINGS, router=RouterSettings(width=8, max_sources=2), entropy=0.1)
    outcome = meta_train(trainee(tiny_library, tiny_suite, settings), curriculum(tiny_suite))
    assert outcome.n_steps == 6 and outcome.validation is not None


def test_training_ends_when_validation_gets_no_better_and_keeps_the_best(
    tiny_library: Library, tiny_suite: Suite, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    learner = trainee(tiny_library, tiny_suite, replace(SETTINGS, n_steps=20, validate_every=1, patience=3))
    losses = iter([3.0, 1.0, 2.0, 2.0, 2.0, 2.0])
    seen: list[torch.Tensor] = []

    def validate(step: int, _: object) -> Validation:
        seen.append(learner.router.sharpness.detach().clone())
        loss = next(losses)
        return Validation(step, loss, loss, 0.5, 0.5)

    monkeypatch.setattr(learner, "validate", validate)
    outcome = meta_train(learner, curriculum(tiny_suite), tmp_path)
    assert (tmp_path / STATE).exists() and len((tmp_path / LOG).read_text().splitlines()) == 10
    assert outcome.n_steps == 5 and outcome.validation and outcome.validation.numbers == (2, 1.0, 1.0, 0.5, 0.5)
    assert torch.equal(learner.router.sharpness, seen[1]) and not torch.equal(seen[1], seen[-1])


def timetable(suite: Suite, evidence_share: float = 0.5) -> Timetable:
    return Timetable(series(suite), SETTINGS.n_tasks, evidence_share, SETTINGS.seed)


def test_lessons_of_a_step_depend_on_seed_and_step_alone(tiny_library: Library, tiny_suite: Suite) -> None:
    live = LiveMixture(tiny_library)
    one, two, other = (timetable(tiny_suite).lessons(live, step) for step in (3, 3, 4))

    def pictures(lessons: list[Lesson]) -> list[bytes]:
        return [lesson.episode.support.inputs.tobytes() for lesson in lessons]  # type: ignore[union-attr]

    assert pictures(one) == pictures(two) != pictures(other)
    assert [each.sources for each in one] == [each.sources for each in two]
    for a, b in zip(one, two, strict=True):
        assert torch.equal(a.encoded.statistics.prototypes, b.encoded.statistics.prototypes)
    many = [lesson for step in range(20) for lesson in timetable(tiny_suite).lessons(live, step)]
    assert all(0 in lesson.sources for lesson in many) and len({lesson.sources for lesson in many}) > 2
    told = [lesson.encoded.losses for lesson in many]
    assert 5 < sum(losses is not None for losses in told) < 35
    assert all(losses is None or len(losses) == len(each.sources) for losses, each in zip(told, many, strict=True))


def test_the_loss_of_the_same_tasks_falls(tiny_library: Library, tiny_suite: Suite) -> None:
    learner = trainee(tiny_library, tiny_suite, replace(SETTINGS, n_steps=40, warm_up=0.01))
    lessons = timetable(tiny_suite, 1.0).lessons(learner.live, 0)
    losses = [learner.step(number, lessons).loss for number in range(25)]
    assert sum(losses[-5:]) < sum(losses[:5])


def test_what_experts_may_change_falls_to_their_share() -> None:
    settings = replace(SETTINGS, n_steps=100, expert_share=0.2)
    allowed = [settings.allowed_share(step) for step in range(100)]
    assert allowed[0] == 1 and allowed == sorted(allowed, reverse=True)
    assert allowed[60:] == pytest.approx([0.2] * 40)


@pytest.mark.parametrize(
    "change",
    [{"n_steps": 0}, {"learning_rate": 0.0}, {"expert_share": 1.5}, {"validate_every": 0}, {"tightening": 0.0}],
)
def test_impossible_settings_are_refused(change: dict) -> None:
    with pytest.raises(InvalidSettings):
        replace(SETTINGS, **change)
