"""A task as files or as a support set, so that whatever takes labelled examples takes it."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from smatter.files.writing import new_folder
from smatter.tasks.episode import Episode, Examples
from smatter.tasks.support import Support

NO_CLASS = "(none of these)"
"""Where queries go that belong to no class of their task."""


def support_of(episode: Episode) -> Support:
    """The support set of an episode as `smatter.adapt` takes it; classes without examples are dropped."""
    from PIL import Image

    present = sorted(set(episode.support.labels.tolist()))
    number = {label: index for index, label in enumerate(present)}
    inputs = episode.support.inputs
    values = inputs if isinstance(inputs, tuple) else tuple(Image.fromarray(picture) for picture in inputs)
    labels = tuple(number[label] for label in episode.support.labels.tolist())
    names = tuple(episode.class_names[label] for label in present)
    return Support(values, labels, names, "texts" if isinstance(inputs, tuple) else "images")


def write_task(folder: Path, episode: Episode, replace: bool = False) -> tuple[Path, Path]:
    """Write a task: `support` and `query`, folders of class folders, or CSV files of text and label.

    Args:
        folder: where to; it appears at once, or not at all.
        episode: the task.
        replace: exchange an older folder for it.

    Returns:
        Where the support set and the queries are.
    """
    is_text = isinstance(episode.support.inputs, tuple)
    names = episode.class_names if is_text else _folder_names(episode.class_names)
    parts = {"support": (episode.support, episode.support.labels), "query": (episode.query, episode.query.truth)}
    with new_folder(folder, replace) as new:
        for part, (examples, labels) in parts.items():
            told = [names[label] if label >= 0 else NO_CLASS for label in labels.tolist()]
            if is_text:
                _write_texts(new / f"{part}.csv", examples, told)
            else:
                _write_pictures(new / part, examples, told)
    suffix = ".csv" if is_text else ""
    return folder / f"support{suffix}", folder / f"query{suffix}"


def is_task(folder: Path) -> bool:
    """Whether a folder holds a task and nothing else, so that it may be replaced."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    return names in ({"support", "query"}, {"support.csv", "query.csv"})


def _write_texts(path: Path, examples: Examples, labels: Sequence[str]) -> None:
    assert isinstance(examples.inputs, tuple)
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["text", "label"])
    writer.writerows(zip(examples.inputs, labels, strict=True))
    path.write_bytes(text.getvalue().encode())


def _write_pictures(folder: Path, examples: Examples, labels: Sequence[str]) -> None:
    from PIL import Image

    folder.mkdir()
    counts: dict[str, int] = {}
    for picture, label in zip(np.asarray(examples.inputs), labels, strict=True):
        number = counts[label] = counts.get(label, -1) + 1
        (folder / label).mkdir(exist_ok=True)
        Image.fromarray(picture).save(folder / label / f"{number:03d}.png")


def _folder_names(names: Sequence[str]) -> tuple[str, ...]:
    """Names of classes as names of folders: no two alike on any system, none hidden or with a slash."""
    result: list[str] = []
    taken = {NO_CLASS}
    for number, name in enumerate(names):
        plain = name.replace(": ", " - ")
        safe = "".join("_" if letter in '/\\:*?"<>|' or not letter.isprintable() else letter for letter in plain)
        safe = safe[:60].strip(" .") or "class"
        while safe.casefold() in taken:
            safe = f"{safe}-{number}"
        taken.add(safe.casefold())
        result.append(safe)
    return tuple(result)
