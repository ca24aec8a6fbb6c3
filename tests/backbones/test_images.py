"""Pictures in an array become what pictures one by one become."""

import numpy as np
import pytest
import torch
from PIL import Image

from smatter.backbones.images import Preprocessing


@pytest.mark.parametrize("side", [32, 16, 40])
@pytest.mark.parametrize("n_channels", [1, 3])
def test_an_array_is_scaled_as_its_pictures_are(side: int, n_channels: int) -> None:
    generator = np.random.default_rng(0)
    coarse = generator.integers(0, 256, (5, 8, 8, 3), np.uint8)
    pictures = coarse.repeat(4, axis=1).repeat(4, axis=2)
    mean, std = (0.2, 0.4, 0.6)[:n_channels], (0.5, 0.25, 0.1)[:n_channels]
    wanted = Preprocessing(side, side, n_channels, mean, std)
    one_by_one = wanted.pixels([Image.fromarray(picture) for picture in pictures])
    # Pillow rounds to bytes twice on the way.
    torch.testing.assert_close(wanted.scaled(pictures), one_by_one, atol=2 / 255 / min(std), rtol=0)
