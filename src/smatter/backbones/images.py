"""Pictures to pixels: safe decoding with Pillow, and the size and scale that a checkpoint wants."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from smatter.errors import IncompatibleSource, InvalidSupport, MissingExtra, NotFound

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

MAX_PIXELS = 64_000_000
MAX_IMAGE_BYTES = 256_000_000
FORMATS = ("PNG", "JPEG", "WEBP", "BMP")
"""Decoders that may run, by Pillow's names; a file's own first bytes say which, not its suffix."""

BAND = 64
"""Rows of a picture that are converted at a time."""

LARGEST_AREA = 1024 * 1024
"""Pixels of one input of a network: what the largest of the supported ones were trained with. Sixty-four of them in
colour, as many as are ever in memory to be predicted, take 0.8 GB."""

BEYOND = 20
"""Prepared pixels that are so many times larger than any can be are not prepared."""

_REMEDY = "copy the config.json and the preprocessor_config.json that belong to the base"

_LUMINANCE = (0.299, 0.587, 0.114)
"""Of red, green and blue, as Pillow makes a picture grey."""

_RESIZED_BY_PREPROCESSOR = frozenset({"convnext", "convnextv2"})
"""Networks without positions: their config's image_size is only a default, the preprocessor's is the one in use."""


def open_image(path: Path) -> Image:
    """Decode a PNG, JPEG, WebP or BMP file to grey or colour; anything else, and what is too large, is refused.

    Large pictures are in memory once, twice where they must be converted.
    """
    with _opened(path) as image:
        from PIL.ImageOps import exif_transpose

        image.load()
        exif_transpose(image, in_place=True)  # else it would be copied even where nothing is to be done
        plain = opaque(image)
        return plain if plain.mode in ("L", "RGB") else plain.convert("RGB")


def check_image(path: Path) -> None:
    """Refuse a file whose first bytes say that `open_image` would; its pixels are not decoded."""
    with _opened(path):
        pass


@contextmanager
def _opened(path: Path) -> Iterator[Image]:
    """A picture whose size and format are known; whatever goes wrong with it is told in one line."""
    try:
        import PIL.Image
    except ImportError:
        raise MissingExtra("images need Pillow: pip install pillow") from None
    try:
        if path.is_dir():
            raise InvalidSupport(f"{path} is a folder; give the paths of the images in it")
        if path.stat().st_size > MAX_IMAGE_BYTES:
            raise InvalidSupport(f"{path} is larger than {MAX_IMAGE_BYTES // 1_000_000} MB; give a smaller image")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # damaged metadata only
            warnings.simplefilter("error", PIL.Image.DecompressionBombWarning)
            with PIL.Image.open(path, formats=FORMATS) as image:
                most = MAX_PIXELS if image.mode in ("L", "RGB") else MAX_PIXELS // 2  # others are converted: two copies
                if image.width * image.height > most:
                    raise InvalidSupport(
                        f"{path} has {image.width} x {image.height} pixels, above {most // 1_000_000} megapixels; give "
                        "a smaller image"
                    )
                yield image
    except InvalidSupport:
        raise
    except FileNotFoundError:
        raise NotFound(f"{path} does not exist; check the path") from None
    except PIL.UnidentifiedImageError:
        raise InvalidSupport(
            f"{path} is not a PNG, JPEG, WebP or BMP image; convert it, or move it elsewhere"
        ) from None
    except (PIL.Image.DecompressionBombWarning, PIL.Image.DecompressionBombError):
        raise InvalidSupport(f"{path} has more than 64 megapixels; give a smaller image") from None
    except Exception as error:  # decoders raise whatever a damaged file makes them
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InvalidSupport(f"{path} cannot be read as an image ({reason}); save it again") from None


@dataclass(frozen=True)
class Preprocessing:
    """How pictures become `pixel_values`.

    Args:
        height: rows the network takes.
        width: columns it takes.
        n_channels: 1 for grey, 3 for colour.
        mean: subtracted from each channel, whose values lie in [0, 1].
        std: divides each channel afterwards.
        is_fixed: whether the network takes no other size.
    """

    height: int
    width: int
    n_channels: int = 3
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    is_fixed: bool = True

    def __post_init__(self) -> None:
        _check_size(self.height, self.width)
        _check_channels(self.n_channels)
        numbers = (*self.mean, *self.std)
        if not len(self.mean) == len(self.std) == self.n_channels or not all(map(math.isfinite, numbers)):
            raise IncompatibleSource(f"image_mean and image_std do not fit the network: {_REMEDY}")
        if min(self.std) <= 0:
            raise IncompatibleSource(f"image_std is not positive: {_REMEDY}")

    @classmethod
    def of(cls, config: Mapping[str, Any], preprocessor: Mapping[str, Any]) -> Preprocessing:
        """What config.json and preprocessor_config.json (empty when there is none) ask for."""
        try:
            is_fixed = config.get("model_type") not in _RESIZED_BY_PREPROCESSOR
            is_resized = not is_fixed and "size" in preprocessor
            height, width = picture_size({"image_size": preprocessor["size"]} if is_resized else config)
            n_channels = config.get("num_channels", 3)
            _check_channels(n_channels)
            plain = preprocessor.get("do_normalize") is False
            mean, std = (
                (float(values),) * n_channels if isinstance(values, int | float) else tuple(map(float, values))
                for values in (preprocessor.get(name, 0.5) for name in ("image_mean", "image_std"))
            )
            if plain:
                mean, std = (0.0,) * n_channels, (1.0,) * n_channels
            return cls(height, width, n_channels, mean=mean, std=std, is_fixed=is_fixed)
        except (TypeError, ValueError, OverflowError) as error:
            if isinstance(error, IncompatibleSource):
                raise
            raise IncompatibleSource(f"the scale of images makes no sense: {_REMEDY}") from None

    def pixels(self, images: Sequence[Image | Path]) -> Tensor:
        """Pictures as `pixel_values`, (n, channels, height, width): stretched to the network's size, scaled."""
        import torch
        from PIL.Image import Resampling

        result = torch.empty(len(images), self.n_channels, self.height, self.width)
        mean, std = (torch.tensor(values).reshape(-1, 1, 1) for values in (self.mean, self.std))
        for row, given in enumerate(images):
            image = open_image(given) if isinstance(given, Path) else opaque(given)
            mode = "L" if self.n_channels == 1 else "RGB"
            if image.mode not in ("L", mode):  # a copy takes memory: greys are converted when small
                image = image.convert(mode)
            small = image.resize((self.width, self.height), Resampling.BILINEAR).convert(mode)
            values = np.asarray(small, np.float32).reshape(self.height, self.width, self.n_channels) / 255
            result[row] = (torch.from_numpy(np.ascontiguousarray(values.transpose(2, 0, 1))) - mean) / std
        return result

    def scaled(self, pictures: np.ndarray[Any, np.dtype[np.uint8]]) -> Tensor:
        """Pictures of one size in an array, (n, height, width, 3), as `pixels` gives them one by one."""
        import torch
        from torch.nn.functional import interpolate

        values = torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 255
        if self.n_channels == 1:
            values = (values * torch.tensor(_LUMINANCE).reshape(-1, 1, 1)).sum(dim=1, keepdim=True)
        if values.shape[2:] != (self.height, self.width):
            values = interpolate(values, (self.height, self.width), mode="bilinear", antialias=True)
        mean, std = (torch.tensor(numbers).reshape(-1, 1, 1) for numbers in (self.mean, self.std))
        return (values - mean) / std

    def check(self, pixels: Tensor) -> None:
        """Refuse prepared pixels that the network cannot take."""
        if pixels.shape[1] != self.n_channels:
            raise InvalidSupport(
                f"pixels have {pixels.shape[1]} channels, the network takes {self.n_channels}: convert them"
            )
        if self.is_fixed and pixels.shape[2:] != (self.height, self.width):
            raise InvalidSupport(
                f"pixels are {pixels.shape[2]} x {pixels.shape[3]}, the network takes {self.height} x {self.width}: "
                "resize them, or give images"
            )
        if not pixels.numel():
            return
        low, high = float(pixels.min()), float(pixels.max())
        # A pixel of eight bits is never exactly the mean, so prepared ones are never zero; black is, from 0 to 1.
        if (low == 0 < high <= 1 and any(self.mean)) or high > BEYOND / min(self.std):
            raise InvalidSupport(
                f"pixels reach from {low:.3g} to {high:.3g}, so they are not scaled as the network wants: give images, "
                "or arrays (n, height, width, channels), which are scaled here"
            )


def picture_size(config: Mapping[str, Any]) -> tuple[int, int]:
    """Height and width that a config's `image_size` asks for, 224 by default; what no network can take is refused."""
    size = config.get("image_size", 224)
    if isinstance(size, Mapping):
        edge = size.get("shortest_edge", 224)
        size = [size.get("height", edge), size.get("width", edge)]
    sides = [size, size] if isinstance(size, int) else size
    if not (isinstance(sides, list | tuple) and len(sides) == 2 and all(isinstance(side, int) for side in sides)):
        raise IncompatibleSource(f"the size of images makes no sense: {_REMEDY}")
    height, width = sides
    _check_size(height, width)
    return height, width


def _check_size(height: int, width: int) -> None:
    if not (height > 0 and width > 0 and height * width <= LARGEST_AREA):
        raise IncompatibleSource(
            f"images of {height} x {width} pixels are not possible, at most {LARGEST_AREA} pixels are: {_REMEDY}"
        )


def _check_channels(n_channels: int) -> None:
    if n_channels not in (1, 3):
        raise IncompatibleSource(
            f"the network takes {str(n_channels)[:20]} channels, pictures have 1 or 3: prepare the tensors yourself"
        )


def opaque(image: Image) -> Image:
    """Transparent pictures on white; sixteen-bit greys, which `convert` would clip, in eight bits."""
    import PIL.Image

    is_deep = image.mode.startswith("I")
    if not is_deep and not image.has_transparency_data:
        return image
    page = PIL.Image.new("L" if is_deep else "RGB", image.size, "white")
    for top in range(0, image.height, BAND):  # few rows at a time: a copy of a large picture takes much memory
        band = image.crop((0, top, image.width, min(top + BAND, image.height)))
        if is_deep:
            greys = np.asarray(band).astype(np.int64).clip(0, 65535) // 257
            page.paste(PIL.Image.fromarray(greys.astype(np.uint8)), (0, top))
        else:
            layer = band.convert("RGBA")
            page.paste(PIL.Image.alpha_composite(PIL.Image.new("RGBA", layer.size, "white"), layer), (0, top))
    return page
