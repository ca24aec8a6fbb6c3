"""What the fuzzer feeds with bytes: each parser of files that strangers write, by name.

A target is made in a folder of its own and called with the content of a file. It may raise SmatterError and nothing
else, within seconds and without much memory.
"""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from smatter.errors import SmatterError

HERE = Path(__file__).parent
CORPUS, GROUND = HERE / "corpus", HERE / "ground"
SECONDS, MEGABYTES = 5, 2000
"""What one input may take; the memory is that of the whole process, torch and transformers included."""

Target = Callable[[bytes], object]


def header(folder: Path) -> Target:
    """The header of a safetensors file."""
    from smatter.files.reading import MappedFile

    def read(path: Path) -> None:
        file = MappedFile(path)
        for name in file.header.tensors:
            file.whole(name)

    return in_file(folder / "model.safetensors", read)


def json_text(folder: Path) -> Target:
    """JSON of any kind."""
    from smatter.files.reading import parse_json

    return lambda data: parse_json(data, folder / "x.json")


def manifest(folder: Path) -> Target:
    """library.json."""
    from smatter.library.library import open_library

    def read(path: Path) -> None:
        library = open_library(path.parent)
        library.manifest.to_json()
        assert library.partition.modules

    return in_file(folder / "library.json", read)


def recipe(folder: Path) -> Target:
    """A recipe, written again as it was read."""
    from smatter.library.recipes import read_recipe, write_recipe

    return in_file(folder / "recipe.safetensors", lambda path: write_recipe(folder / "again", read_recipe(path)))


def bank(folder: Path) -> Target:
    """experts.safetensors."""
    from smatter.library.banks import parse_bank

    return lambda data: parse_bank(data, folder / "experts.safetensors")


def router(folder: Path) -> Target:
    """router.json, beside sound weights that it tells the digests of."""
    from smatter.route.store import read_router

    shutil.copytree(GROUND / "router", folder, dirs_exist_ok=True)
    files = {"weights": "router.safetensors", "experts": "experts.safetensors"}
    digests = {key: hashlib.sha256((folder / file).read_bytes()).hexdigest() for key, file in files.items()}

    def read(data: bytes) -> None:
        table = _parsed(data)
        if isinstance(table, dict):
            data = json.dumps(table | {key: digest for key, digest in digests.items() if table.get(key)}).encode()
        (folder / "router.json").write_bytes(data)
        read_router(folder)

    return read


def profile(folder: Path) -> Target:
    """A profile of a device."""
    from smatter.devices.profile import read_profile

    return in_file(folder / "profile.json", read_profile)


def merge(folder: Path) -> Target:
    """A mergekit configuration, for a library of some sources."""
    from small_networks import make_tensors, write_checkpoint

    from smatter.library.edit import add_source, init_library
    from smatter.library.mergekit import read_merge

    base = make_tensors(0)
    library = init_library(folder / "library", write_checkpoint(folder / "base", base))
    for seed, name in enumerate(("law", "code"), 1):
        library, _ = add_source(folder / "library", write_checkpoint(folder / name, make_tensors(seed, near=base)))
    return in_file(folder / "merge.yaml", lambda path: library.plan(read_merge(path, library)))


def table(folder: Path) -> Target:
    """A CSV file of labelled texts."""
    return _rows(folder / "examples.csv")


def lines(folder: Path) -> Target:
    """A JSONL file of labelled texts."""
    return _rows(folder / "examples.jsonl")


def _rows(path: Path) -> Target:
    from smatter.tasks.assemble import Omissions
    from smatter.tasks.inputs import read_inputs
    from smatter.tasks.support import read_support
    from smatter.tasks.tables import read_table

    def read(path: Path) -> None:
        for reader in (read_support, lambda path: read_table(path, Omissions()), lambda path: list(read_inputs(path))):
            try:
                reader(path)
            except SmatterError:
                continue

    return in_file(path, read)


def task_list(folder: Path) -> Target:
    """A frozen list of tasks."""
    from small_suites import usual_suite

    from smatter.tasks.lists import read_list

    suite = usual_suite()
    return in_file(folder / "list.json", lambda path: read_list(path, suite))


def suite(folder: Path) -> Target:
    """The table of a built suite, beside sound texts of two domains."""
    from smatter.tasks.packed import read_packed

    shutil.copytree(GROUND / "suite", folder, dirs_exist_ok=True)

    def read(path: Path) -> None:
        for domain in read_packed(path.parent).domains:
            domain.store.take(range(min(2, len(domain.store))))

    return in_file(folder / "suite.json", read)


def cached(folder: Path) -> Target:
    """What a cache says of a result."""
    from pydantic import ValidationError

    from smatter.cache import _Kept
    from smatter.files.reading import read_small_json

    def read(path: Path) -> None:
        try:
            _Kept.model_validate(read_small_json(path))
        except ValidationError:  # is none, as `Cache.get` has it
            return

    return in_file(folder / "facts.json", read)


def weights(folder: Path) -> Target:
    """Weights in a JSON file."""
    from smatter.cli.compose import _mixture_file

    return in_file(folder / "weights.json", _mixture_file)


def seal(folder: Path) -> Target:
    """The seal of a library, which forgets rather than complains."""
    from smatter.files.hashing import SEAL, Seal

    file = folder / "file"
    file.write_bytes(b"content")

    def read(path: Path) -> None:
        found = Seal(folder)
        assert found.digest(file) == hashlib.sha256(b"content").hexdigest()
        found.save()

    return in_file(folder / SEAL, read)


def config(folder: Path) -> Target:
    """The config.json of a checkpoint, on its way to a network."""
    from smatter.backbones.configs import checked_settings

    def read(data: bytes) -> None:
        told = _parsed(data)
        if isinstance(told, dict):
            checked_settings(told, 100)

    return read


def tokenizer(folder: Path) -> Target:
    """The tokenizer.json of a checkpoint, and a text cut into tokens with it."""
    from smatter.backbones.texts import Tokenizer

    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    told = {"model_type": "bert", "vocab_size": 50, "max_position_embeddings": 32}

    def read(path: Path) -> None:
        Tokenizer.of(told, folder).tokens(["a b c", "[PAD] law"])

    return in_file(folder / "tokenizer.json", read)


def posterior(folder: Path) -> Target:
    """posterior.safetensors of a router."""
    from smatter.posterior.learnt import read_posterior

    return in_file(folder / "posterior.safetensors", read_posterior)


def catalogue(folder: Path) -> Target:
    """A catalogue of mixtures that stay in memory."""
    from smatter.route.kept import read_catalogue

    return in_file(folder / "catalogue", lambda path: read_catalogue(path).mixtures)


def drift(folder: Path) -> Target:
    """A file that watches for drift, and one more task for it."""
    from smatter.route.watch import read_watch

    def read(path: Path) -> None:
        found = read_watch(path)
        found.after(dict.fromkeys(found.states, 0.5))

    return in_file(folder / "drift.json", read)


def in_file(path: Path, read: Callable[[Path], object]) -> Target:
    """Put the bytes in a file and read that."""

    def target(data: bytes) -> None:
        path.write_bytes(data)
        read(path)

    return target


def _parsed(data: bytes) -> Any:
    from smatter.files.reading import parse_json

    return parse_json(data, Path("x.json"))


TARGETS: dict[str, Callable[[Path], Target]] = {
    "header": header, "json": json_text, "manifest": manifest, "recipe": recipe, "bank": bank, "router": router,
    "profile": profile, "merge": merge, "csv": table, "jsonl": lines, "list": task_list, "suite": suite,
    "cache": cached, "weights": weights, "seal": seal, "config": config, "tokenizer": tokenizer,
    "posterior": posterior, "catalogue": catalogue, "drift": drift,
}  # fmt: skip


def refused_or_read(target: Target, data: bytes) -> None:
    """Call a target as its contract has it."""
    try:
        target(data)
    except SmatterError as error:
        text = str(error)
        assert text and "internal error" not in text
