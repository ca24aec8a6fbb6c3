"""A user's folder with all that Smatter reads and writes, bystanders among it; and the server that runs commands in it.

Networks have a few thousand parameters, so that a command takes a fraction of a second.
"""

import hashlib
import io
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import PLAIN_PROCESS, ROOT

SEAL = ".smatter-seal.json"
MEMORY = Path("/dev/shm")
"""Where folders lie that are made hundreds of times; a killed process does not care what kind of disk it is."""

for folder in ("tests", "tests/library"):
    sys.path.insert(0, str(ROOT / folder))


class Server:
    """A process that has imported everything and forks: see `trust_server`.

    Args:
        warm: commands that it runs first.
        namespace: whether its processes are numbered apart, as in a container.
    """

    def __init__(self, warm: Sequence[Sequence[str]] = (), namespace: bool = False) -> None:
        environment = os.environ | PLAIN_PROCESS | {"NUMBA_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        environment |= {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests/library'}"}
        environment.pop("HF_HUB_OFFLINE", None)  # whoever goes to the network must be seen to do so
        apart = ["unshare", "--pid", "--fork", "--mount-proc"] if namespace else []
        self.process = subprocess.Popen(
            [*apart, sys.executable, str(Path(__file__).with_name("trust_server.py"))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, encoding="utf-8",
            errors="surrogateescape",
        )  # fmt: skip
        self.ask({"warm": [list(words) for words in warm]})

    def tell(self, request: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("the server that runs commands has ended")
        return json.loads(line)

    def ask(self, request: Any) -> Any:
        self.tell(request)
        return self.answer()

    def run(self, words: Sequence[str], folder: Path, **options: Any) -> dict[str, Any]:
        """Run one command; options are those of a job."""
        answer: dict[str, Any] = self.ask([{"words": list(words), "folder": str(folder), **options}])[0]
        return answer

    def close(self) -> None:
        self.process.communicate(timeout=20)


@dataclass(frozen=True)
class World:
    """One copy of the user's folder.

    Args:
        home: where it is.
    """

    home: Path

    def __getattr__(self, name: str) -> Path:
        """A place in it; `list_file` is `list-file`."""
        if name.startswith("__"):
            raise AttributeError(name)
        return self.home / PLACES.get(name, name)

    def adapt(self, *options: str) -> list[str]:
        return ["adapt", str(self.texts), str(self.examples_csv), *options]

    def adapt_pictures(self, *options: str) -> list[str]:
        return ["adapt", str(self.pictures), str(self.examples), *options]

    def predict(self, *options: str) -> list[str]:
        return ["predict", str(self.recipe), str(self.inputs_txt), "--library", str(self.texts), *options]

    def compose(self, *options: str) -> list[str]:
        return ["compose", str(self.texts), "--weights", "base=.5,law=.5", *options]

    def train(self, *options: str) -> list[str]:
        words = ["train", str(self.pictures), str(self.suite), "-o", str(self.home / "trained"), "--workers", "0"]
        return [*words, "--steps", "2", *options]


PLACES = {
    "examples_csv": "examples.csv", "examples_jsonl": "examples.jsonl", "inputs_txt": "inputs.txt",
    "recipe": "recipe.safetensors", "picture_recipe": "picture.safetensors", "list_file": "list.json",
    "profile": "profile.json", "weights": "weights.json", "out": "out",
}  # fmt: skip


def build_world(home: Path) -> World:
    """Libraries of texts and of pictures, their examples, recipes, router, suite, cache, profile, and bystanders."""
    from dataclasses import replace

    import torch
    from small_routers import make_router
    from small_suites import picture_suite, write_tree
    from tiny_libraries import random_library, texts_support, tiny_vit, topic_library
    from transformers.utils import logging

    from smatter.cli.main import main
    from smatter.library.library import open_library
    from smatter.tasks.packed import write_packed

    torch.set_num_threads(1)
    logging.disable_progress_bar()
    home.mkdir()
    world = World(home)
    made = home / "made"
    topic_library(made / "texts")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        random_library(made / "pictures", tiny_vit())
    for kind in ("texts", "pictures"):  # sources inside the library, so that all of it can be copied
        library = home / kind
        names = [path.name for path in (made / kind).iterdir() if path.name != "library"]
        for name in sorted(names, key=lambda name: name != "base"):
            shutil.copytree(made / kind / name, library / "checkpoints" / name)
            if kind == "pictures":
                (library / "checkpoints" / name / "vocab.txt").unlink()
                (library / "checkpoints" / name / "preprocessor_config.json").write_text(json.dumps(PREPROCESSOR))
            verb = "init" if name == "base" else "add"
            with redirect_stdout(io.StringIO()):
                assert main(["library", verb, str(library), str(library / "checkpoints" / name)]) == 0
    shutil.rmtree(made)
    shutil.copytree(world.texts / "checkpoints" / "law", home / "candidate")
    shutil.copytree(world.pictures / "checkpoints" / "source-0", home / "picture-candidate")
    support = texts_support("law", n_shot=2)
    rows = [(text, support.class_names[label]) for text, label in zip(support.inputs, support.labels, strict=True)]
    world.examples_csv.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    world.examples_jsonl.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows))
    world.inputs_txt.write_text("".join(f"{text}\n" for text, _ in rows[:3]))
    write_tree(home / "examples", {".": "abc"}, n_each=2)
    suite = picture_suite(n_classes=30, n_examples=12)
    suite = replace(suite, domains=tuple(replace(domain, role="id") for domain in suite.domains))
    write_packed(world.suite, suite)
    make_router(open_library(world.pictures), suite, world.router)
    world.weights.write_text(json.dumps({"base": 0.5, "law": 0.5}))
    for words in (
        world.adapt("-o", str(world.recipe), "--cache", str(world.cache)),
        world.adapt_pictures("--router", str(world.router), "-o", str(world.picture_recipe)),
        world.compose("-o", str(world.export)),
        ["suite", "freeze", str(world.suite), "-o", str(world.list_file), "--tasks", "3", "--split", "all"],
        ["profile", str(world.pictures), "-o", str(world.profile), "--method", "bytes"],
    ):
        with redirect_stdout(io.StringIO()):
            assert main(words) == 0, words
    _put_bystanders(world)
    return world


PREPROCESSOR = {"size": {"height": 8, "width": 8}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}


def _put_bystanders(world: World) -> None:
    """Files of the user's own, where a careless program might tidy up."""
    for place in (
        "notes.txt", ".hidden", "texts/notes.txt", "texts/.hidden", "texts/sources/mine.txt",
        "texts/sources/keep/model.safetensors", "texts/experts/mine.txt", "texts/checkpoints/notes.txt",
        "texts/checkpoints/law/notes.txt", "cache/mine.txt", "cache/.hidden", "taken/thesis.txt", "taken/.hidden",
        "outside/diary.txt", "outside/deep/letter.txt", "trained.work/mine.txt", ".notes.partial-draft",
    ):  # fmt: skip
        path = world.home / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"mine: {place}\n")
    (world.home / "texts" / "linked").symlink_to(world.home / "outside")
    (world.home / "link").symlink_to(world.home / "outside")


def state(home: Path) -> dict[str, tuple[object, ...]]:
    """Everything under a folder: kind and hash, or where a link leads; seals, a convenience, apart."""
    found: dict[str, tuple[object, ...]] = {}
    for folder, folders, files in os.walk(home):
        for name in (*folders, *files):
            path = Path(folder, name)
            status = path.lstat()
            content: object = None
            if stat.S_ISREG(status.st_mode):
                content = hashlib.sha256(path.read_bytes()).hexdigest() if status.st_mode & 0o400 else None
            elif stat.S_ISLNK(status.st_mode):
                content = str(path.readlink())
            if name != SEAL:
                found[os.path.relpath(path, home)] = (stat.S_IFMT(status.st_mode), content)
    return found


def n_bytes(home: Path) -> int:
    """Of all files, links apart."""
    return sum(path.lstat().st_size for path in home.rglob("*") if path.is_file() and not path.is_symlink())


def warm_commands(world: World) -> list[list[str]]:
    """What loads most of the program and of its libraries; nothing of it writes."""
    return [
        world.compose(),
        world.adapt("--head", "ridge"),
        world.adapt("--head", "logistic"),
        world.adapt_pictures("--router", str(world.router)),
        world.predict(),
        ["solve", str(world.texts), str(world.examples_csv), "--steps", "1"],
        ["library", "check", str(world.texts)],
        ["suite", "task", str(world.suite), "--split", "all"],
        ["methods"],
    ]


@dataclass(frozen=True)
class Stand:
    """What the sections share.

    Args:
        scratch: a folder for everything.
        template: a user's folder to copy.
        server: runs commands.
        quick: whether a few of everything will do.
        cases: hostile cases whose family and name hold this text.
    """

    scratch: Path
    template: World
    server: Server
    quick: bool
    cases: str = ""

    @property
    def home(self) -> Path:
        """Where the copy lies that commands work on."""
        return self.scratch / "home"

    def fresh(self, template: Path | None = None) -> World:
        """Put the copy back as the template is, or make it one of another."""
        for folder, _, _ in os.walk(self.home):
            Path(folder).chmod(0o700)
        shutil.rmtree(self.home, ignore_errors=True)
        shutil.copytree(template or self.template.home, self.home, symlinks=True)
        return World(self.home)
