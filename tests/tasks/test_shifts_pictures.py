"""Corruptions, renderings and the spurious cue, compared with independent answers."""

import io
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image
from test_shifts import generator, make_episode

from smatter.tasks.episode import Episode
from smatter.tasks.shifts.catalogue import SHIFTS
from smatter.tasks.shifts.colours import ColourJitter, Grayscale
from smatter.tasks.shifts.corruptions import Blur, GaussianNoise, Jpeg, LowContrast, Occlusion
from smatter.tasks.shifts.cue import SpuriousCue
from smatter.tasks.shifts.renderings import GrayOnColour, Halftone, Inverted, Outline, TexturedBackground
from smatter.tasks.shifts.shapes import Perspective, StrokeThickness, StrongRotation
from smatter.tasks.shifts.wear import Worn


def with_pictures(pictures: np.ndarray) -> Episode:
    """A task whose support has these pictures."""
    episode = make_episode(shots=(len(pictures),))
    return replace(episode, support=episode.support.with_inputs(pictures.astype(np.uint8)))


def plain(value: int | tuple[int, int, int], n: int = 4, size: tuple[int, int] = (32, 32)) -> np.ndarray:
    return np.broadcast_to(np.array(value, np.uint8), (n, *size, 3)).copy()


def changed(shift, pictures: np.ndarray, seed: int = 0) -> np.ndarray:
    return shift(with_pictures(pictures), generator(seed)).support.inputs


@pytest.mark.parametrize(
    "name", ["gaussian-noise", "blur", "jpeg", "occlusion", "low-contrast", "worn", "colour-jitter"]
)
def test_each_severity_does_more_harm_than_the_one_before(name: str) -> None:
    pictures = make_episode().support.inputs
    harm = [
        np.abs(changed(SHIFTS[name](severity=severity), pictures).astype(float) - pictures).mean()
        for severity in range(1, 6)
    ]
    assert harm[0] > 0 and all(more > less for less, more in pairwise(harm))


def test_noise_is_normal() -> None:
    noise = changed(GaussianNoise(severity=2), plain(128, n=50)).astype(float).ravel() - 128
    deviation = 0.08 * 255
    assert abs(noise.mean()) < 5 * deviation / np.sqrt(noise.size)
    assert abs(noise.std() / deviation - 1) < 0.01
    within = [(np.abs(noise) < k * deviation).mean() for k in (1, 2, 3)]
    assert np.allclose(within, (0.6827, 0.9545, 0.9973), atol=0.012)
    neighbours = (
        np.corrcoef(noise[:-1], noise[1:])[0, 1],
        np.corrcoef(noise[: noise.size // 2], noise[-(noise.size // 2) :])[0, 1],
    )
    assert np.abs(neighbours).max() < 0.02


@pytest.mark.parametrize("size", [(32, 32), (32, 24), (40, 64)])
def test_blur_agrees_with_a_direct_sum(size: tuple[int, int]) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (1, *size, 3))
    blurred = changed(Blur(severity=4), picture)
    expected = picture[0].astype(float)
    for axis, length in enumerate(size):
        deviation = 1.5 * length / 32
        reach = int(np.ceil(3 * deviation))
        weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / deviation) ** 2)
        wide = np.pad(expected, [(reach, reach) if each == axis else (0, 0) for each in range(3)], mode="edge")
        windows = [np.take(wide, range(start, start + length), axis) for start in range(2 * reach + 1)]
        expected = sum(weight * window for weight, window in zip(weights / weights.sum(), windows, strict=True))
    assert np.abs(blurred[0] - expected).max() <= 0.51


@pytest.mark.parametrize(("n", "size"), [(5, (32, 32)), (4, (30, 21)), (3, (1, 1)), (130, (520, 8))])
def test_jpeg_is_what_pillow_makes_of_each_picture_alone(n: int, size: tuple[int, int]) -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (n, *size, 3)).astype(np.uint8)
    saved = changed(Jpeg(severity=3), pictures)
    for number in (0, n // 2, n - 1):
        file = io.BytesIO()
        Image.fromarray(pictures[number]).save(file, "JPEG", quality=18, subsampling=0)
        assert np.array_equal(saved[number], np.asarray(Image.open(file)))


@pytest.mark.parametrize("size", [(32, 32), (32, 24)])
def test_occlusion_hides_one_square_anywhere_within(size: tuple[int, int]) -> None:
    grey = (changed(Occlusion(severity=3), plain(255, n=300, size=size)) == 128).all(axis=-1)
    side = round(0.4 * min(size))
    assert (grey.sum(axis=(1, 2)) == side * side).all()
    tops, lefts = grey.any(axis=2).argmax(axis=1), grey.any(axis=1).argmax(axis=1)
    assert all(
        mask[top : top + side, left : left + side].all() for mask, top, left in zip(grey, tops, lefts, strict=True)
    )
    assert set(tops.tolist()) == set(range(size[0] - side + 1)) and set(lefts.tolist()) == set(
        range(size[1] - side + 1)
    )


def test_low_contrast_keeps_the_mean() -> None:
    pictures = make_episode().support.inputs
    pale = changed(LowContrast(severity=3), pictures)
    assert np.abs(pale.mean(axis=(1, 2, 3)) - pictures.mean(axis=(1, 2, 3))).max() < 0.5
    assert np.allclose(pale.std(axis=(1, 2, 3)) / pictures.std(axis=(1, 2, 3)), 0.25, atol=0.02)


def test_shades_of_grey_are_those_of_pillow() -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (20, 16, 16, 3)).astype(np.uint8)
    grey = changed(Grayscale(), pictures)
    assert (grey == grey[..., :1]).all()
    expected = np.stack([np.asarray(Image.fromarray(each).convert("L")) for each in pictures])
    assert np.abs(grey[..., 0].astype(int) - expected).max() <= 1
    assert np.array_equal(changed(Grayscale(), grey), grey)


def test_jitter_turns_hues_by_no_more_than_it_says_each_picture_its_own() -> None:
    """Seen in the plane across the greys, where 18 degrees in YIQ are nearly as many."""
    jittered = changed(ColourJitter(severity=2), plain((140, 115, 105), n=400)).astype(float)
    assert (jittered == jittered[:, :1, :1]).all(), "a plain picture stays plain"
    colour = np.concatenate([np.array([[140, 115, 105]]), jittered[:, 0, 0]])
    across = colour @ np.array([[2, -1, -1], [0, 3**0.5, -(3**0.5)]]).T
    angles = np.degrees(np.arctan2(across[:, 1], across[:, 0]))
    turned = (angles[1:] - angles[0] + 180) % 360 - 180
    assert 10 < np.abs(turned).max() < 30 and abs(turned.mean()) < 2 and (turned > 0).any() and (turned < 0).any()
    light = colour @ (0.299, 0.587, 0.114) / (np.array([140, 115, 105]) @ (0.299, 0.587, 0.114))
    assert 0.75 < light.min() < 0.85 and 1.15 < light.max() < 1.25


def test_jitter_leaves_grey_pictures_grey() -> None:
    grey = np.repeat(np.random.default_rng(0).integers(0, 256, (20, 16, 16, 1)), 3, axis=-1).astype(np.uint8)
    jittered = changed(ColourJitter(severity=5), grey).astype(int)
    assert np.ptp(jittered, axis=-1).max() <= 1


def test_jitter_is_a_contrast_around_the_mean_and_a_brightness() -> None:
    pictures = plain(100, n=200)
    pictures[:, :16] = 140
    dark, light = (changed(ColourJitter(severity=2), pictures)[:, row, 0, 0].astype(float) for row in (20, 4))
    brightness, contrast = (dark + light) / 240, (light - dark) / (dark + light) * 6
    for found in (brightness, contrast):
        assert 0.77 < found.min() < 0.83 and 1.17 < found.max() < 1.23 and abs(found.mean() - 1) < 0.03
    assert abs(np.corrcoef(brightness, contrast)[0, 1]) < 0.2


def test_inverting_twice_gives_the_picture_back() -> None:
    pictures = make_episode().support.inputs
    negative = changed(Inverted(), pictures)
    assert negative[:, 0, 0].max() == 0 and np.array_equal(changed(Inverted(), negative), pictures)


@pytest.mark.parametrize(
    "colours",
    [
        ((255, 255, 255), (0, 0, 0)),
        ((0, 0, 0), (255, 255, 255)),
        ((0, 140, 0), (200, 0, 0)),
        ((200, 200, 200), (200, 200, 0)),
    ],
)
def test_outlines_are_dark_at_edges_and_white_in_shapes_whatever_the_colours(colours) -> None:
    ground, figure = colours
    pictures = plain(ground)
    pictures[:, 8:24, 8:24] = figure
    drawn = changed(Outline(), pictures)
    assert (drawn[:, 10:22, 10:22] == 255).all() and (drawn[:, :6] == 255).all() and (drawn[:, 26:] == 255).all()
    assert drawn[:, 7, 8:24].max() < 60 and drawn[:, 8:24, 23].max() < 60
    assert (drawn == drawn[..., :1]).all()


@pytest.mark.parametrize("ground", [(255, 255, 255), (0, 0, 0), (40, 90, 200)])
def test_texture_changes_the_ground_and_not_the_figure(ground: tuple[int, int, int]) -> None:
    figure = tuple(255 if value < 128 else 0 for value in ground)
    pictures = plain(ground, n=20)
    pictures[:, 10:22, 10:22] = figure
    textured = changed(TexturedBackground(), pictures).astype(int)
    assert (textured[:, 10:22, 10:22] == figure).all()
    around = np.concatenate([textured[:, :8], textured[:, 24:]], axis=1)
    assert (around.std(axis=(1, 2)).max(axis=-1) > 12).all(), "no texture"
    assert np.abs(around - np.array(figure)).max(axis=-1).min() > 80, "the figure drowns"
    assert len({picture.tobytes() for picture in textured}) == 20


def test_pictures_turn_by_45_to_135_degrees_to_either_side() -> None:
    """A dot to the right of the middle tells the angle."""
    pictures = plain(255, n=200, size=(65, 65))
    pictures[:, 29:36, 49:56] = 0
    ink = 255 - changed(StrongRotation(), pictures)[..., 0].astype(float)
    places = np.arange(65) - 32
    across, down = ((ink.sum(axis=axis) * places).sum(axis=1) for axis in (1, 2))
    angles = np.degrees(np.arctan2(-down, across))
    assert 44 < np.abs(angles).min() < 50 and 130 < np.abs(angles).max() < 136
    assert 60 < (angles > 0).sum() < 140 and len(np.unique(angles.round(3))) > 190


@pytest.mark.parametrize("shift", [StrongRotation(), Perspective()])
@pytest.mark.parametrize("colour", [(255, 255, 255), (0, 0, 0), (10, 200, 90)])
def test_what_comes_into_view_has_the_colour_of_the_border(shift, colour: tuple[int, int, int]) -> None:
    assert (changed(shift, plain(colour)) == colour).all()


@pytest.mark.parametrize("size", [(96, 96), (96, 64)])
def test_perspective_keeps_lines_straight_but_not_parallel(size: tuple[int, int]) -> None:
    """Diagonals meet where their crossing went; were it affine, that would be the middle of their ends."""
    middle = np.array(size) / 2
    places = [middle + np.array(way) * middle * 0.75 for way in ((-1, -1), (1, 1), (-1, 1), (1, -1), (0, 0))]
    seen = []
    for row, column in np.array(places).astype(int).tolist():
        pictures = plain(255, n=50, size=size)
        pictures[:, row - 3 : row + 3, column - 3 : column + 3] = 0
        ink = 255 - changed(Perspective(), pictures)[..., 0].astype(float)  # the same corners every time
        centres = (ink.sum(2) @ np.arange(size[0]), ink.sum(1) @ np.arange(size[1]))
        seen.append(np.stack(centres, axis=1) / ink.sum((1, 2))[:, None])
    first, second, third, fourth, crossing = seen
    ways = np.stack([second - first, third - fourth], axis=2)
    share = np.linalg.solve(ways, (third - first)[..., None])[:, :1, 0]
    assert np.abs(first + share * (second - first) - crossing).max() < 0.75
    off = np.linalg.norm((first + second + third + fourth) / 4 - crossing, axis=1)
    assert np.median(off) > 1.5 and len(np.unique(crossing.round(4), axis=0)) == 50


@pytest.mark.parametrize("ground", [(255, 255, 255), (0, 0, 0), (40, 90, 200)])
def test_the_ground_gets_a_hue_of_its_own_and_the_figure_shades_of_grey(ground: tuple[int, int, int]) -> None:
    pictures = plain(ground, n=20)
    pictures[:, 8:16, 8:24], pictures[:, 16:24, 8:24] = (250, 160, 20), (150, 0, 20)
    after = changed(GrayOnColour(), pictures).astype(int)
    figure, around = after[:, 8:24, 8:24], np.concatenate([after[:, :8], after[:, 24:]], axis=1)
    assert (np.ptp(figure, axis=-1) == 0).all()
    assert (figure[:, :8].mean((1, 2, 3)) > figure[:, 8:].mean((1, 2, 3)) + 20).all()
    assert (np.ptp(around, axis=-1) > 70).all() and around.mean(-1).min() > figure[:, :8].mean(-1).max() + 60
    assert len({picture[0, 0].tobytes() for picture in after}) == 20


@pytest.mark.parametrize("size", [32, 64])
def test_dots_of_a_halftone_are_larger_where_it_is_darker(size: int) -> None:
    """Equally far from each other at every darkness and size, in every direction, and never solid."""
    ink = []
    for value in (255, 192, 128, 64, 0):
        printed = changed(Halftone(), plain(value, n=30, size=(size, size)))
        assert (printed == printed[..., :1]).all()
        ink.append(1 - printed.mean() / 255)
    assert ink[0] == 0 and all(more > 1.3 * less for less, more in pairwise(ink)) and 0.4 < ink[-1] < 0.9
    printed = changed(Halftone(), plain(128, n=30, size=(size, size)))[..., 0].astype(float)
    waves = np.abs(np.fft.rfft2(printed - printed.mean((1, 2), keepdims=True))).reshape(30, -1).argmax(axis=1)
    down, across = np.fft.fftfreq(size, 1 / size)[waves // (size // 2 + 1)], waves % (size // 2 + 1)
    assert (np.abs(np.hypot(down, across) - 9) < 1).mean() > 0.8 and len({*zip(down, across, strict=True)}) > 10


@pytest.mark.parametrize("side", [32, 64])
@pytest.mark.parametrize(("ground", "figure"), [((255, 255, 255), (20, 60, 200)), ((0, 0, 0), (250, 240, 10))])
def test_strokes_get_thick_or_thin_and_keep_their_colour(side: int, ground, figure) -> None:
    reach = side // 32
    pictures = plain(ground, n=100, size=(side, side))
    pictures[:, 6:-6, 10:15] = figure
    after = changed(StrokeThickness(), pictures)
    is_figure, is_ground = ((after == colour).all(axis=-1) for colour in (figure, ground))
    assert (is_figure | is_ground).all()
    widths = is_figure[:, side // 2].sum(axis=1)
    assert set(widths.tolist()) == {5 - 2 * reach, 5 + 2 * reach} and 30 < (widths > 5).sum() < 70


def test_a_thin_stroke_does_not_vanish() -> None:
    pictures = plain(255, n=40)
    pictures[:, 5:25, 8] = pictures[:, 12, 12:28] = pictures[:, 20:24, 18:22] = 0
    dark = changed(StrokeThickness(), pictures)[..., 0] == 0
    assert dark[:, 6:24, 8].all() and dark[:, 12, 13:27].all() and dark[:, 21:23, 19:21].any((1, 2)).all()


def cue_colours(examples) -> list[tuple[int, ...]]:
    return [tuple(picture[0, 0].tolist()) for picture in examples.inputs]


@pytest.mark.parametrize("query", ["shuffled", "reversed"])
def test_the_cue_tells_the_class_in_the_support_only(query: str) -> None:
    before = make_episode(n_query=20)
    after = SpuriousCue(query=query)(before, generator())
    told = dict(zip(after.support.labels.tolist(), cue_colours(after.support), strict=True))
    assert cue_colours(after.support) == [told[label] for label in after.support.labels.tolist()]
    assert len(set(told.values())) == 5
    right = np.mean([told[t] == c for t, c in zip(after.query.truth.tolist(), cue_colours(after.query), strict=True)])
    assert right == 0 if query == "reversed" else 0.05 < right < 0.35
    assert sorted(set(cue_colours(after.query))) == sorted(told.values())
    assert np.array_equal(after.support.inputs[:, 8:], before.support.inputs[:, 8:])


def test_a_weaker_cue_is_right_less_often() -> None:
    right = []
    for seed in range(40):
        support = SpuriousCue(strength=0.5)(make_episode(), generator(seed)).support
        colours = np.array([hash(colour) for colour in cue_colours(support)]).reshape(5, 5)
        right.append(np.mean([max(np.unique(row, return_counts=True)[1]) for row in colours]) / 5)
    assert 0.5 < np.mean(right) < 0.8


@pytest.mark.parametrize("name", [name for name in SHIFTS if name not in ("template", "casing", "typos")])
def test_small_and_large_pictures_work(name: str) -> None:
    for size in ((1, 1), (5, 3), (50, 70)):
        episode = make_episode()
        parts = {
            part: getattr(episode, part).with_inputs(
                np.random.default_rng(0).integers(0, 256, (len(getattr(episode, part)), *size, 3)).astype(np.uint8)
            )
            for part in ("support", "query")
        }
        after = SHIFTS[name]()(replace(episode, **parts), generator())
        assert after.support.inputs.shape[1:] == after.query.inputs.shape[1:] == (*size, 3)


@pytest.mark.parametrize("colour", [(255, 255, 255), (0, 0, 0), (200, 40, 90)])
def test_wear_leaves_an_empty_picture_empty_but_for_its_grain(colour: tuple[int, int, int]) -> None:
    worn = changed(Worn(severity=4), plain(colour, n=40)).astype(float)
    noise = 0.1 * 255
    inside = [channel for channel, value in enumerate(colour) if 90 <= value <= 200]
    for channel in inside:
        assert abs(worn[..., channel].mean() - colour[channel]) < 2
        assert abs(worn[..., channel].std() / noise - 1) < 0.1
    assert np.abs(np.median(worn, axis=(0, 1, 2)) - colour).max() < 3


def test_wear_moves_a_dot_no_further_than_it_says_and_fades_it_no_more() -> None:
    pictures = plain(255, n=300)
    pictures[:, 14:18, 14:18] = 0
    worn = 255 - changed(Worn(severity=1), pictures).astype(float).mean(axis=-1)
    dark = np.where(worn > 100, worn, 0)
    mass = dark.sum(axis=(1, 2))
    rows, columns = (dark * np.arange(32)[:, None]).sum((1, 2)) / mass, (dark * np.arange(32)).sum((1, 2)) / mass
    # A shift of up to .03 of the side, seen through a zoom of at most 1.05.
    assert np.abs(rows - 15.5).max() < 1.4 and np.abs(columns - 15.5).max() < 1.4
    assert np.abs(rows - 15.5).max() > 0.7 and abs(rows.mean() - 15.5) < 0.1 and abs(columns.mean() - 15.5) < 0.1
    darkest = worn.max(axis=(1, 2))
    assert darkest.min() > 0.85 * 255 and darkest.mean() < 0.99 * 255
