"""A support set: the labelled examples of a task, from a folder of images, a CSV or JSONL file, or Python."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from smatter.backbones.images import check_image
from smatter.compose.head import wrong_class_name
from smatter.errors import InvalidSupport, NotFound
from smatter.tasks.rows import MAX_CHARACTERS, raw_rows, text_and_label

if TYPE_CHECKING:
    from torch import Tensor

Kind = Literal["images", "texts"]

MAX_EXAMPLES = 10_000
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")


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

    @classmethod
    def of(cls, inputs: Sequence[Any] | Tensor, labels: Iterable[Any]) -> Support:
        """Examples from Python: images, texts or prepared tensors, and a string or integer for each.

        >>> Support.of(["a fine day", "a sad day"], ["good", "bad"]).class_names
        ('bad', 'good')
        """
        import torch

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


def read_support(path: str | Path) -> Support:
    """Read labelled examples.

    Args:
        path: a folder with a folder of images per class, a CSV file with the columns `text` and `label`, or a JSONL
            file of objects with these keys. Order on disk does not matter: examples are sorted. Of images only the
            first bytes are looked at; a picture that is cut short is refused when its pixels are needed.
    """
    path = Path(path)
    if not path.exists():
        raise NotFound(f"{path} does not exist; give a folder of class folders, a .csv or a .jsonl file")
    if path.is_dir():
        pairs: list[tuple[str, Any]] = sorted(_images(path))
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
    n_seen = 0
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        if not entry.is_dir():
            if entry.suffix.lower() in SUFFIXES:
                raise InvalidSupport(f"{entry} is in no class folder; put the images of each class in a folder")
            continue
        before = n_seen
        for file in entry.iterdir():
            if file.name.startswith("."):
                continue
            n_seen += 1
            if n_seen > MAX_EXAMPLES:
                raise InvalidSupport(f"{folder} holds more than {MAX_EXAMPLES} examples; give fewer")
            if file.is_dir():
                raise InvalidSupport(
                    f"{file} is a folder where images should be; give the folder of the class folders, perhaps {entry}"
                )
            if not file.is_file() or file.suffix.lower() not in SUFFIXES:
                raise InvalidSupport(f"{file} is not an image ({', '.join(SUFFIXES)}); remove it from the class folder")
            check_image(file)  # what is no image is found now; its pixels are decoded once, when they are needed
            yield entry.name, file
        if n_seen == before:
            raise InvalidSupport(f"class folder {entry} is empty; add images or delete it")
    if not n_seen:
        raise InvalidSupport(f"{folder} has no class folders; put the images of each class in a folder")


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


def gather(inputs: Sequence[Any] | Tensor) -> tuple[tuple[Any, ...] | Tensor, Kind]:
    """Inputs as a support set holds them, and what they are; tensors of one shape become one tensor."""
    import torch

    if not isinstance(inputs, torch.Tensor):
        values = tuple(inputs)
        if not values or not all(isinstance(value, torch.Tensor) for value in values):
            return values, "texts" if values and isinstance(values[0], str) else "images"
        if len({value.shape for value in values}) > 1:
            raise InvalidSupport("the input tensors have different shapes: prepare them alike")
        inputs = torch.stack(values)
    return inputs, "images" if inputs.is_floating_point() else "texts"


def check_inputs(inputs: tuple[Any, ...] | Tensor, kind: Kind) -> None:
    """Refuse inputs that are not of one kind."""
    if not isinstance(inputs, tuple):
        _check_tensor(inputs, kind)
        return
    for index, value in enumerate(inputs):
        if kind == "images":
            if not isinstance(value, Path) and not hasattr(value, "resize"):
                name = type(value).__name__
                raise InvalidSupport(f"input {index} is {name}, not an image: give images, texts or one tensor")
            continue
        if not isinstance(value, str) or not value.strip():
            raise InvalidSupport(f"input {index} is not a text, or an empty one: give texts or images, not both")
        if len(value) > MAX_CHARACTERS:
            raise InvalidSupport(f"input {index} has {len(value)} characters, above {MAX_CHARACTERS}: shorten it")


def _check_tensor(inputs: Tensor, kind: Kind) -> None:
    import torch

    wanted = 4 if kind == "images" else 2
    if inputs.ndim != wanted:
        raise InvalidSupport(
            f"inputs of shape {list(inputs.shape)}: give pixels (n, channels, height, width) or tokens (n, length)"
        )
    if not bool(torch.isfinite(inputs).all()):
        raise InvalidSupport("inputs have NaN or Inf: prepare them again")
