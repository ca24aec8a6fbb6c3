"""Inputs as people have them: arrays, pictures, paths, texts, tensors or rows of a dataset, several or one alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from smatter.errors import InvalidSupport
from smatter.tasks.rows import MAX_CHARACTERS

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

Kind = Literal["images", "texts"]

Pixels = np.ndarray[Any, np.dtype[Any]]

KEYS = ("image", "img", "text")
"""Where the input stands in a row of a dataset."""
LABEL = "label"
CHANNELS = (1, 3, 4)
WHITE = 255
DIM = 8.0
"""Float pixels that reach above one but not above this have no range that could be told."""


def several(inputs: Any) -> tuple[Any, ...] | Tensor:
    """Inputs as a tuple or a tensor: one alone is put into a row, a generator or dataset is read without its labels.

    >>> several("a fine day"), several(text for text in ("a", "b")), several([("a", 0), ("b", 1)])
    (('a fine day',), ('a', 'b'), ('a', 'b'))
    """
    import torch

    inputs = _input_of(inputs) if isinstance(inputs, Mapping) else inputs
    inputs = _sorted_out(inputs)
    if isinstance(inputs, torch.Tensor):
        n_of_one = 3 if inputs.is_floating_point() else 1
        return inputs.unsqueeze(0) if inputs.ndim == n_of_one else inputs
    if isinstance(inputs, np.ndarray):
        return _rows_of(inputs)
    if isinstance(inputs, str | Path) or is_picture(inputs):
        return (inputs,)
    return tuple(_unlabelled(row) for row in _iterated(inputs))


def labelled(dataset: Any) -> tuple[list[Any], list[Any]]:
    """Inputs and labels of a dataset: pairs, or mappings with `image` or `text` and `label`, or one of such columns.

    Labels that are numbers become names where the dataset knows them, as torchvision's and Hugging Face's do.
    """
    if isinstance(dataset, Mapping):
        inputs, labels = list(_input_of(dataset)), list(_label_of(dataset))
    else:
        inputs, labels = [], []
        for row in _iterated(dataset):
            is_pair = isinstance(row, tuple) and len(row) == 2
            if not is_pair and not isinstance(row, Mapping):
                raise InvalidSupport("the examples have no labels: give pairs of input and label, or the labels too")
            inputs.append(_unlabelled(row))
            labels.append(row[1] if is_pair else _label_of(row))
    names = _class_names(dataset)
    if names and all(hasattr(label, "__index__") and 0 <= label < len(names) for label in labels):
        labels = [names[label] for label in labels]
    return inputs, labels


def gather(inputs: Iterable[Any] | Tensor, takes_images: bool = False) -> tuple[tuple[Any, ...] | Tensor, Kind]:
    """Inputs as a support set holds them, and what they are; arrays become pictures, tensors of one shape one tensor.

    Args:
        inputs: several of one kind; see `several`.
        takes_images: whether they are for a network that takes pictures, so that strings are paths.
    """
    import torch

    inputs = _sorted_out(inputs)
    if not isinstance(inputs, torch.Tensor):
        values = _pictures([_sorted_out(value) for value in inputs])
        if takes_images:
            values = tuple(Path(value) if isinstance(value, str) else value for value in values)
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
            if not isinstance(value, Path) and not is_picture(value):
                name = type(value).__name__
                raise InvalidSupport(f"input {index} is {name}, not an image: give images, texts or one tensor")
            continue
        if not isinstance(value, str) or not value.strip():
            raise InvalidSupport(f"input {index} is not a text, or an empty one: give texts or images, not both")
        if len(value) > MAX_CHARACTERS:
            raise InvalidSupport(f"input {index} has {len(value)} characters, above {MAX_CHARACTERS}: shorten it")


def is_picture(value: Any) -> bool:
    """Whether this is one of Pillow's images, which arrays and tensors resemble."""
    return hasattr(value, "resize") and hasattr(value, "convert")


def _check_tensor(inputs: Tensor, kind: Kind) -> None:
    import torch

    wanted = 4 if kind == "images" else 2
    if inputs.ndim != wanted:
        raise InvalidSupport(
            f"inputs of shape {list(inputs.shape)}: give pixels (n, channels, height, width) or tokens (n, length)"
        )
    if not bool(torch.isfinite(inputs).all()):
        raise InvalidSupport("inputs have NaN or Inf: prepare them again")


def _sorted_out(value: Any) -> Any:
    """Token numbers as a tensor, and pixels that no network has prepared as an array; all else as it is."""
    import torch

    if isinstance(value, torch.Tensor) and not value.is_floating_point():
        is_pixels = value.dtype == torch.uint8 or value.ndim > 2
        return value.detach().cpu().numpy() if is_pixels else value
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.dtype != np.uint8 and value.ndim <= 2:
        return torch.from_numpy(value.astype(np.int64))
    return value


def _rows_of(array: Pixels) -> tuple[Any, ...]:
    """An array cut into inputs; one picture alone stays whole."""
    if array.ndim == 3 and array.shape[0] == 3 and array.shape[2] not in CHANNELS:
        raise InvalidSupport(
            f"an array of shape {list(array.shape)} is one picture in colour or three grey ones: give [array] for one, "
            "list(array) for three"
        )
    is_one = array.ndim == 3 and array.shape[2] in CHANNELS
    is_one = is_one or (array.ndim == 2 and array.dtype.kind in "uifb")
    return (array,) if is_one else tuple(_iterated(array))


def _iterated(values: Any) -> Iterator[Any]:
    """What a sequence, a generator or a dataset holds, one after another."""
    if not hasattr(values, "__iter__") and hasattr(values, "__len__") and hasattr(values, "__getitem__"):
        return (values[index] for index in range(len(values)))  # torch asks no more of a dataset
    try:
        return iter(values)
    except TypeError:
        raise InvalidSupport(f"inputs are {type(values).__name__}: give pictures, texts, paths or a tensor") from None


def _unlabelled(row: Any) -> Any:
    """The input of a row of a dataset; what is no such row is the input itself."""
    if isinstance(row, Mapping):
        return _input_of(row)
    return row[0] if isinstance(row, tuple) and len(row) == 2 else row


def _input_of(row: Mapping[str, Any]) -> Any:
    for key in KEYS:
        if key in row:
            return row[key]
    raise InvalidSupport(f"a row with the keys {_told(row)} has no input: call the one that holds it image or text")


def _label_of(row: Mapping[str, Any]) -> Any:
    if LABEL not in row:
        raise InvalidSupport(f"a row with the keys {_told(row)} has no label: call the one that holds it {LABEL}")
    return row[LABEL]


def _told(row: Mapping[str, Any]) -> str:
    return ", ".join(map(str, row))[:80] or "(none)"


def _class_names(dataset: Any) -> list[str]:
    """Names of a dataset's classes, where it has them."""
    while hasattr(dataset, "dataset"):  # a part of another
        dataset = dataset.dataset
    features = getattr(dataset, "features", None)
    kept = features.get(LABEL) if isinstance(features, Mapping) else None
    names = getattr(dataset, "classes", None) or getattr(kept, "names", None)
    is_list = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    return list(names) if names and is_list else []


def _pictures(values: Sequence[Any]) -> tuple[Any, ...]:
    """Arrays of pixels as pictures; their range is that of all of them, for one may be dark."""
    floats = [value for value in values if isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size]
    factor = 1.0
    if floats:
        low, high = float(min(map(np.min, floats))), float(max(map(np.max, floats)))
        if not (low >= 0 and high <= WHITE) or 1 < high < DIM:  # also rejects NaN
            raise InvalidSupport(
                f"pixels of a float array reach from {low:.3g} to {high:.3g}: give them from 0 to 1 or from 0 to 255; "
                "prepared ones as a torch tensor"
            )
        factor = WHITE if high <= 1 else 1.0
    return tuple(_picture(each, factor) if isinstance(each, np.ndarray) else each for each in values)


def _picture(array: Pixels, factor: float) -> Image:
    from PIL.Image import fromarray

    pixels = _channels_last(array)
    if pixels.dtype.kind in "fb":
        pixels = np.rint(pixels * np.float32(factor if pixels.dtype.kind == "f" else WHITE))
    elif pixels.dtype.kind not in "iu" or pixels.min() < 0 or pixels.max() > WHITE:
        raise InvalidSupport(f"an array of {array.dtype} is no picture of pixels from 0 to 255: scale it to these")
    return fromarray(np.ascontiguousarray(pixels, np.uint8))


def _channels_last(array: Pixels) -> Pixels:
    """A picture as (height, width), or (height, width, channels) with three or four of these."""
    if array.ndim == 2 and array.size:
        return array
    if array.ndim == 3 and array.size:
        is_last, is_first = array.shape[2] in CHANNELS, array.shape[0] in CHANNELS[:2]
        if is_last and is_first:
            raise InvalidSupport(
                f"an array of shape {list(array.shape)} may have its channels first or last: give it as an image"
            )
        if is_last or is_first:
            array = array if is_last else array.transpose(1, 2, 0)
            return array[:, :, 0] if array.shape[2] == 1 else array
    raise InvalidSupport(
        f"an array of shape {list(array.shape)} is no picture: give (height, width) or (height, width, channels)"
    )
