"""Pictures that come as arrays: clothes photographed for a shop, digits written by hand."""

import gzip

import numpy as np
from download import Cache
from PIL import Image
from tiles import INK_SIDE, SIDE, Domain, Draft, Pixels, limited, quantise, without_doubles

CLOTHES = ("T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
FOLDER = "usr/share/datasets/fashion-mnist"
N_EXAMPLES = 60


def fashion_domain(cache: Cache) -> Domain:
    """Ten kinds of clothes, dark on white like everything else here."""
    package = cache.package("apt", "dataset-fashion-mnist")
    content = gzip.decompress(package.read(f"{FOLDER}/t10k-images-idx3-ubyte.gz"))
    labels = gzip.decompress(package.read(f"{FOLDER}/t10k-labels-idx1-ubyte.gz"))[8:]
    images = np.frombuffer(content, np.uint8, offset=16).reshape(-1, 28, 28)
    draft = Draft()
    for image, label in zip(images, labels, strict=True):
        if len(draft.tiles.get(f"fashion-{label}", ())) < N_EXAMPLES:
            tile = np.full((SIDE, SIDE), 255, np.uint8)
            tile[2:30, 2:30] = 255 - image
            draft.add(f"fashion-{label}", CLOTHES[label], "fashion-mnist", quantise(tile))
    package.close()
    return _domain("fashion", "Photographs of clothes", draft, package.name)


def digit_domain(cache: Cache) -> Domain:
    """Digits of the optical recognition data that scikit-learn carries: 13 writers, 8 by 8 cells of 17 levels."""
    package = cache.package("pypi", "scikit-learn")
    rows = gzip.decompress(package.read("sklearn/datasets/data/digits.csv.gz")).decode().split()
    by_label: dict[int, list[list[int]]] = {}
    for row in rows:
        *cells, label = (int(float(value)) for value in row.split(","))
        by_label.setdefault(label, []).append(cells)
    draft = Draft()
    for label, drawn in sorted(by_label.items()):
        # Neighbours in the list are by one writer: take them evenly spread.
        for number in range(N_EXAMPLES):
            cells = drawn[number * len(drawn) // N_EXAMPLES]
            draft.add(f"digit-{label}", f"handwritten {label}", "optdigits", _smooth(cells))
    package.close()
    return _domain("digits", "Digits written by hand", draft, package.name)


def _smooth(cells: list[int]) -> Pixels:
    coarse = Image.fromarray((np.array(cells, np.uint8).reshape(8, 8) * 15).astype(np.uint8))
    fine = np.asarray(coarse.resize((INK_SIDE, INK_SIDE), Image.Resampling.BICUBIC), np.float64)
    sharp = np.clip((fine - 60) * 255 / 120, 0, 255)
    tile = np.full((SIDE, SIDE), 255.0)
    tile[3:29, 3:29] = 255 - sharp
    return quantise(tile)


def _domain(name: str, title: str, draft: Draft, package: str) -> Domain:
    groups = sorted(draft.groups(), key=lambda group: group.key)
    return Domain(name, title, "ood", tuple(limited(without_doubles(groups), N_EXAMPLES, least=8)), (package,))
