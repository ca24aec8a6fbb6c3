"""Hostile cases: what is spoiled in a user's folder, the commands that meet it, and changes to JSON documents."""

import copy
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trust_world import World

Words = Sequence[str | Path]
CONTROL = "\x1b[31mred\x07\u202e\n\x9b2J"
"""What makes a terminal change colour, ring, turn text around, begin a line and clear the screen."""

ODD: tuple[Any, ...] = (
    None, True, -1, 0, 10**12, 2**70, 1e308, 0.5, "", "x" * 5000, CONTROL, "../../notes.txt", [], [[[]]], {},
    {"a": {"b": []}}, [1, "a", None],
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One hostile input.

    Args:
        family: what kind of file or request it is.
        name: tells it from others of its family.
        lay_out: spoils something and returns commands, which run one after another until one is refused.
        refused: whether one of them must be.
        codes: exit codes that are right.
    """

    family: str
    name: str
    lay_out: Callable[[World], Sequence[Words]]
    refused: bool = False
    codes: tuple[int, ...] = (0, 2)


def mutations(document: Any, count: int, seed: int = 0) -> Iterator[tuple[str, Any]]:
    """Copies of a document, each with one value replaced or dropped or a key renamed; no two alike."""
    choices = [(place, odd) for place in _places(document) for odd in range(len(ODD) + 2)]
    for place, odd in random.Random(seed).sample(choices, min(count, len(choices))):
        changed = copy.deepcopy(document)
        parent = changed
        for key in place[:-1]:
            parent = parent[key]
        if odd < len(ODD):
            parent[place[-1]] = copy.deepcopy(ODD[odd])
        elif odd == len(ODD) or isinstance(parent, list):
            del parent[place[-1]]
        else:
            parent[f"{place[-1]}{CONTROL}"] = parent.pop(place[-1])
        what = repr(ODD[odd])[:20] if odd < len(ODD) else ("dropped", "renamed")[odd - len(ODD)]
        yield f"{'.'.join(map(str, place))[-60:]} = {what}", changed


def _places(node: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if above:
        yield above
    if isinstance(node, dict | list):
        keys = list(node) if isinstance(node, dict) else range(len(node))
        for key in list(keys)[:12]:
            yield from _places(node[key], (*above, key))


def load(path: Path) -> Any:
    return json.loads(path.read_text())


def save(path: Path, document: Any) -> None:
    path.write_text(json.dumps(document))


def json_cases(
    family: str,
    place: str,
    count: int,
    commands: Callable[[World], Sequence[Sequence[Words]]],
    template: World,
    after: Callable[[World], None] = lambda _: None,
) -> list[Case]:
    """A file of JSON changed in `count` ways; each meets one of the chains of commands, in turn.

    Args:
        family: of the cases.
        place: of the file, in the user's folder.
        count: how many.
        commands: chains to choose from.
        template: a sound folder.
        after: mends what would hide the change, such as a checksum.
    """
    cases = []
    for number, (name, changed) in enumerate(mutations(load(template.home / place), count, seed=len(family))):

        def lay_out(world: World, changed: Any = changed, number: int = number) -> Sequence[Words]:
            save(world.home / place, changed)
            after(world)
            chains = commands(world)
            return chains[number % len(chains)]

        cases.append(Case(family, f"{place}: {name}", lay_out))
    return cases


def read_tensors(path: Path) -> tuple[dict[str, Any], bytes]:
    """The header of a safetensors file and what follows."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    return json.loads(raw[8 : 8 + length]), raw[8 + length :]


def write_tensors(path: Path, header: Any, data: bytes) -> None:
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
