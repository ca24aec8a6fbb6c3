"""What the documents speak of as somebody's own: libraries, pictures, texts, tasks, in one folder."""

import json
import shutil
import subprocess
from pathlib import Path

from common import ROOT

TEXTS = f"""
import csv, json, pathlib, sys
sys.path[:0] = [{str(ROOT / "tests")!r}]
from tiny_libraries import texts_support, topic_library
topic_library(pathlib.Path("words"))
other = pathlib.Path("words/law/config.json")
target = pathlib.Path("checkpoints/other")
target.mkdir(parents=True)
for file in other.parent.iterdir():
    (target / file.name).write_bytes(file.read_bytes())
(target / "config.json").write_text(json.dumps(json.loads(other.read_text()) | {{"layer_norm_eps": 1e-6}}))
for name, seed in (("shots", 1), ("asked", 2), ("texts", 3)):
    support = texts_support("law", seed=seed)
    with open(f"{{name}}.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label"])
        rows.writerows((text, support.class_names[label]) for text, label in zip(support.inputs, support.labels))
"""


def lay_out(demo: Path, place: Path, binaries: Path) -> None:
    """Fill an empty folder.

    Args:
        demo: folder of a demonstration.
        place: the folder.
        binaries: of the environment whose `smatter` makes libraries and recipes.
    """
    for name in ("library", "router", "tasks"):
        shutil.copytree(demo / name, place / name)
    shutil.copytree(demo / "library" / "latin", place / "checkpoints" / "novel")
    shutil.copytree(demo / "library" / "base", place / "base")  # what `hf download` brings
    thai, hand = place / "tasks" / "thai", place / "tasks" / "handwriting"
    for name, source in {"shots": thai, "ada": thai, "bob": hand}.items():
        shutil.copytree(source / "support", place / name)
    shutil.copytree(thai / "query", place / "pictures" / "thai")
    for number, picture in enumerate(sorted(place.glob("pictures/*/*/*.png"))):
        shutil.copy(picture, place / "pictures" / f"{number}.png")
        if number < 3:
            shutil.copy(picture, place / f"{('one', 'two', 'three')[number]}.png")
    shutil.copytree(hand / "query", place / "my-pictures")
    for domain, task in {"print": thai, "sketch": hand}.items():
        shutil.copytree(task / "query", place / "my-suite" / domain)
    modules = json.loads((place / "library" / "library.json").read_text())["modules"]
    (place / "weights.json").write_text(json.dumps({name: {"latin": 0.5, "emoji": 0.5} for name in modules}))
    subprocess.run([binaries / "python", "-c", TEXTS], cwd=place, check=True)
    for words in (
        "library init texts words/base words/law words/food",
        "adapt texts shots.csv -o words.safetensors",
        "library init shelf library/base library/latin library/emoji library/symbols",
        "adapt library tasks/thai/support --router router -o thai.safetensors",
        "library experts library router",
        "adapt shelf ada --weights base -o ada.safetensors",
        "adapt shelf bob --weights base -o bob.safetensors",
    ):
        done = subprocess.run([binaries / "smatter", *words.split()], cwd=place, capture_output=True, text=True)
        assert done.returncode == 0, (words, done.stderr)
