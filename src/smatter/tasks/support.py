"""A support set: the labelled examples of a task, from a folder of images, a CSV or JSONL file, or Python."""

from __future__ import annotations

import operator
import shlex
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smatter.backbones.images import check_image
from smatter.compose.head import wrong_class_name
from smatter.errors import InvalidSupport, NotFound, SmatterWarning
from smatter.records import told_names
from smatter.tasks.given import Kind, check_inputs, gather, labelled
from smatter.tasks.rows import checked_label, loose_rows, raw_rows, text_and_label

if TYPE_CHECKING:
    from torch import Tensor

MAX_EXAMPLES = 10_000
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
LABELS = "labels.csv"
"""Names the class of each picture of a folder that has no class folders."""


@dataclass(frozen=True)
class Support:
    """Labelled examples of one task.

    Args:
        inputs: a picture (an image, or the path of one) or a text per example; or prepared tensors: pixels
            (n, channels, height, width) or token numbers (n, length).
        labels: the class of each example, as an index into `class_names`.
        class_names: names of the classes.
        kind: what the inputs are.
    """

    inputs: tuple[Any, ...] | Tensor
    labels: tuple[int, ...]
    class_names: tuple[str, ...]
    kind: Kind

    def __post_init__(self) -> None:
        n_examples = len(self.inputs)
        if n_examples != len(self.labels):
            raise InvalidSupport(f"{n_examples} inputs but {len(self.labels)} labels: give one label per input")
        if n_examples > MAX_EXAMPLES:
            raise InvalidSupport(f"{n_examples} examples, more than the limit of {MAX_EXAMPLES}: give fewer")
        if not n_examples:
            raise InvalidSupport("there are no examples: give at least one of each of two classes")
        if len(set(self.class_names)) != len(self.class_names):
            raise InvalidSupport("two classes have the same name: rename one")
        if mistake := wrong_class_name(self.class_names):
            raise InvalidSupport(f"the examples have {mistake}")
        if len(self.class_names) < 2:
            raise InvalidSupport(f"only one class, {self.class_names[0]!r}: a task needs examples of at least two")
        if set(self.labels) != set(range(len(self.class_names))):
            raise InvalidSupport("labels must number the classes from zero, each with at least one example")
        check_inputs(self.inputs, self.kind)

    def __repr__(self) -> str:
        n_inputs, n_classes = len(self.inputs), len(self.class_names)
        return f"Support of {n_inputs} {self.kind}, {n_classes} classes: {told_names(self.class_names)}"

    @classmethod
    def of(cls, inputs: Any, labels: Iterable[Any] | None = None) -> Support:
        """Examples from Python.

        Args:
            inputs: pictures (images, arrays of pixels or paths), texts, or prepared tensors, in whatever gives one
                after another. Strings are texts or paths, as the network takes them.
            labels: a string or integer for each; without them `inputs` is a dataset, whose rows are pairs of input and
                label, or mappings with `image` or `text` and `label`.

        >>> Support.of(["a fine day", "a sad day"], ["good", "bad"]).class_names
        ('bad', 'good')
        >>> Support.of([("a fine day", "good"), ("a sad day", "bad")]).labels
        (1, 0)
        """
        import torch

        if isinstance(inputs, str | Path):
            raise InvalidSupport(f"{str(inputs)[:80]!r} is one input, or a place: read a place with read_support")
        if labels is None:
            inputs, labels = labelled(inputs)
        values = [_label(value) for value in (labels.tolist() if isinstance(labels, torch.Tensor) else labels)]
        if len({type(value) for value in values}) > 1:
            raise InvalidSupport("some labels are strings and some are numbers: use one kind")
        classes = sorted(set(values))
        index = {value: number for number, value in enumerate(classes)}
        kept, kind = gather(inputs)
        return cls(kept, tuple(index[value] for value in values), tuple(map(str, classes)), kind)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def class_sizes(self) -> tuple[int, ...]:
        """Examples of each class."""
        return tuple(self.labels.count(number) for number in range(len(self.class_names)))

    def for_network(self, takes_images: bool) -> Support:
        """The same examples for a network that takes pictures or texts; to the first, names of pictures are paths."""
        if not takes_images or self.kind == "images" or not isinstance(self.inputs, tuple):
            return self
        if not all(value.lower().endswith(SUFFIXES) for value in self.inputs):
            return self
        return replace(self, inputs=tuple(map(Path, self.inputs)), kind="images")


def read_support(path: str | Path) -> Support:
    """Read labelled examples.

    Args:
        path: a folder with a folder of images per class; a folder of images and labels.csv, with the columns `file` and
            `label`; a CSV file with the columns `text` and `label`, or a JSONL file of objects with these keys. Order
            on disk does not matter: examples are sorted. Of images only the first bytes are looked at; a picture that
            is cut short is refused when its pixels are needed. Other files are left out with a warning.
    """
    path = Path(path)
    if not path.exists():
        raise NotFound(f"{path} does not exist; give a folder of class folders, a .csv or a .jsonl file")
    if path.is_dir():
        pairs: list[tuple[str, Any]] = sorted(_flat(path) if _is_flat(path) else _images(path))
        kind: Kind = "images"
    else:
        pairs, kind = sorted(_rows(path)), "texts"
    if not pairs:
        raise InvalidSupport(f"{path} holds no examples; add at least one of each of two classes")
    classes = sorted({label for label, _ in pairs})
    if len(classes) < 2:
        raise InvalidSupport(f"{path} holds only one class, {classes[0][:80]!r}; a task needs at least two")
    index = {label: number for number, label in enumerate(classes)}
    return Support(tuple(value for _, value in pairs), tuple(index[label] for label, _ in pairs), tuple(classes), kind)


def _images(folder: Path) -> Iterator[tuple[str, Path]]:
    """Class and path of each image in class folders."""
    n_seen = 0
    for entry in _visible(folder):
        if not entry.is_dir():
            if _is_image(entry):
                raise InvalidSupport(
                    f"{entry} is in no class folder; put the images of each class in one, or name their classes in "
                    f"{LABELS} with the columns file and label"
                )
            continue
        before, strays = n_seen, list[Path]()
        for file in _visible(entry):
            if file.is_dir():
                raise InvalidSupport(f"{file} is a folder where images should be; {_meant(folder, entry)}")
            if not file.is_file() or not _is_image(file):
                strays.append(file)
                continue
            n_seen += 1
            if n_seen > MAX_EXAMPLES:
                raise InvalidSupport(f"{folder} holds more than {MAX_EXAMPLES} examples; give fewer")
            check_image(file)  # what is no image is found now; its pixels are decoded once, when they are needed
            yield entry.name, file
        if n_seen == before:
            if strays:
                raise InvalidSupport(f"class folder {entry} holds no images ({', '.join(SUFFIXES)}); convert its files")
            raise InvalidSupport(f"class folder {entry} is empty; add images or delete it")
        if strays:
            more = f" and {len(strays) - 1} more of its files" if strays[1:] else ""
            told = f"left out: {strays[0]}{more}: not an image ({', '.join(SUFFIXES)})"
            warnings.warn(told, SmatterWarning, stacklevel=3)
    if not n_seen:
        raise InvalidSupport(f"{folder} has no class folders; {_meant(folder)}")


def _visible(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES


def _meant(folder: Path, entry: Path | None = None) -> str:
    """What to give instead of a folder that has no images in class folders."""
    for home in filter(None, (folder, entry)):
        for place in (home / "support", home / "support.csv"):  # as `smatter suite task` writes them
            if place.exists():
                return f"{home} is a task with its queries: give {shlex.quote(str(place))}"
    return f"give the folder of the class folders, perhaps {entry}" if entry else "put the images of each class in one"


def _is_flat(folder: Path) -> bool:
    """Whether a file tells the classes of a folder's images."""
    entries = _visible(folder)
    return folder / LABELS in entries and (any(map(_is_image, entries)) or not any(each.is_dir() for each in entries))


def _flat(folder: Path) -> Iterator[tuple[str, Path]]:
    """Class and path of each image that the file of labels names."""
    table, home = folder / LABELS, folder.resolve()
    for number, row in enumerate(loose_rows(table, ("file", "label"))):
        if number >= MAX_EXAMPLES:
            raise InvalidSupport(f"{table} holds more than {MAX_EXAMPLES} examples; give fewer")
        where, name = f"{table}, {row.where}", str(row.cells["file"] or "")
        path = folder / name
        if not name or not path.resolve().is_relative_to(home):
            raise InvalidSupport(f"{where}: {name[:80]!r} is no file of the folder; give the name of an image in it")
        check_image(path)
        yield checked_label(where, row.cells["label"]), path


def _rows(path: Path) -> Iterator[tuple[str, str]]:
    """Label and text of each row, checked."""
    for number, raw in enumerate(raw_rows(path)):
        if number >= MAX_EXAMPLES:
            raise InvalidSupport(f"{path} holds more than {MAX_EXAMPLES} examples; give fewer")
        text, label = text_and_label(path, raw)
        yield label, text


def _label(value: Any) -> str | int:
    if isinstance(value, str):
        if not value.strip():
            raise InvalidSupport("a label is empty: name the class")
        return value
    try:
        return operator.index(value)
    except TypeError:
        raise InvalidSupport(
            f"label {str(value)[:80]!r} is neither a string nor an integer: give one of these"
        ) from None
