"""A task as files or as a support set: what a method reads is what was drawn."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_suites import picture_suite, usual_suite

from smatter.errors import AlreadyExists
from smatter.tasks.episode import Episode
from smatter.tasks.export import NO_CLASS, is_task, support_of, write_task
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.support import read_support


def pictures(**more) -> Episode:
    return Sampler(picture_suite(), SamplerSettings("all", n_way=(3, 3), n_shot=(2, 2), **more)).episode(0)


def test_pictures_come_back_bit_for_bit(tmp_path: Path) -> None:
    episode = pictures()
    for path, examples in zip(write_task(tmp_path / "task", episode), (episode.support, episode.query), strict=True):
        support = read_support(path)
        assert set(support.class_names) == set(episode.class_names)
        told = {support.class_names[label]: [] for label in support.labels}
        for file, label in zip(support.inputs, support.labels, strict=True):
            told[support.class_names[label]].append(np.asarray(Image.open(file)))
        for number, name in enumerate(episode.class_names):
            assert np.array_equal(np.stack(told[name]), examples.inputs[examples.truth == number])


def test_texts_come_back_as_they_were(tmp_path: Path) -> None:
    episode = Sampler(usual_suite(), SamplerSettings("test", n_way=(4, 4), n_domains=(2, 2))).episode(0)
    path, _ = write_task(tmp_path / "task", episode)
    support = read_support(path)
    told = {(text, support.class_names[label]) for text, label in zip(support.inputs, support.labels, strict=True)}
    names = [episode.class_names[label] for label in episode.support.labels]
    assert told == set(zip(episode.support.inputs, names, strict=True))


def test_a_support_set_in_memory_is_the_one_on_disk(tmp_path: Path) -> None:
    episode = pictures()
    support = support_of(episode)
    assert support.labels == tuple(episode.support.labels.tolist()) and support.class_names == episode.class_names
    assert all(map(np.array_equal, map(np.asarray, support.inputs), episode.support.inputs))


def test_support_tells_labels_as_they_are_told_queries_as_they_are(tmp_path: Path) -> None:
    episode = pictures()
    wrong = np.roll(episode.support.labels, 1)
    outside = episode.query.truth.copy()
    outside[0] = -1
    shifted = replace(
        episode, support=replace(episode.support, labels=wrong), query=replace(episode.query, truth=outside)
    )
    support, query = write_task(tmp_path / "task", shifted)
    first = np.asarray(Image.open(sorted((support / episode.class_names[wrong[0]]).iterdir())[0]))
    assert np.array_equal(first, shifted.support.inputs[np.flatnonzero(wrong == wrong[0])[0]])
    assert len(list((query / NO_CLASS).iterdir())) == 1


def test_a_class_without_support_is_dropped() -> None:
    episode = pictures()
    kept = episode.support.select(np.flatnonzero(episode.support.labels != 1))
    support = support_of(replace(episode, support=kept))
    assert support.class_names == (episode.class_names[0], episode.class_names[2]) and set(support.labels) == {0, 1}


@pytest.mark.parametrize(
    "names", [("a/b", ".hidden", ".."), ("A", "a", "a-1"), ("é: x", "\x1b[2J", NO_CLASS), ("x" * 300, "x" * 301, "/")]
)
def test_any_class_name_makes_a_folder_of_its_own(tmp_path: Path, names: tuple[str, ...]) -> None:
    support, _ = write_task(tmp_path / "task", replace(pictures(), class_names=names))
    made = [path.name for path in support.iterdir()]
    assert len({name.casefold() for name in made}) == 3 and len(read_support(support)) == 6
    assert {path.name for path in tmp_path.iterdir()} == {"task"}


def test_only_an_older_task_may_be_replaced(tmp_path: Path) -> None:
    write_task(tmp_path / "task", pictures())
    assert is_task(tmp_path / "task") and not is_task(tmp_path) and not is_task(tmp_path / "nowhere")
    with pytest.raises(AlreadyExists):
        write_task(tmp_path / "task", pictures())
    write_task(tmp_path / "task", pictures(), replace=True)
