"""Every command that writes, killed or stopped at any moment: the old state or the new, and nothing in the way."""

import json
import random
import re
import signal
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common import Rows, stage
from trust_world import Stand, World, state

State = dict[str, tuple[object, ...]]
N_KILLS, N_SLOW_KILLS = 18, 8
STORED = re.compile(r"(.+)/((?:sources|experts)/[0-9a-f]{64})(?:\.safetensors|/.*)?")
KEPT = re.compile(r"cache/[0-9a-f]{64}\.(?:json|safetensors)|trained\.work/(?:state\.safetensors|log\.jsonl)")
"""Results and trainings under way, which are kept as they come and may be deleted at any time."""
LOOSE = ("p2.json", "page.html", "p.html")
"""Written beside a result, each complete or absent."""


@dataclass(frozen=True)
class Kind:
    """A command that writes.

    Args:
        words: the command line.
        again: whether it can be repeated once it has succeeded.
        readers: commands that read what it wrote; all must succeed once it is there.
        before: what is done first, undisturbed.
        slow: whether it takes seconds.
    """

    words: Callable[[World], list[Any]]
    again: bool = False
    readers: Callable[[World], list[list[Any]]] = lambda _: []
    before: Callable[[World], list[list[Any]]] = lambda _: []
    slow: bool = False


def _add(form: str) -> Callable[[World], list[Any]]:
    return lambda world: ["library", "add", world.texts, world.candidate, "--name", "more", "--store", form]


def _checked(world: World) -> list[list[Any]]:
    return [["library", "check", world.texts]]


def _recipe(world: World) -> list[list[Any]]:
    return [["predict", world.out, world.inputs_txt, "--library", world.texts]]


def _opened(world: World) -> list[list[Any]]:
    return [["suite", "show", world.out]]


KINDS: dict[str, Kind] = {
    "library init": Kind(
        lambda world: ["library", "init", world.out, world.candidate], readers=lambda world: [["library", "check",
            world.out]]
    ),
    "library add": Kind(_add("whole"), readers=_checked),
    "library add, delta": Kind(_add("delta"), readers=_checked),
    "library add, int8": Kind(_add("int8"), readers=_checked),
    "library remove": Kind(
        lambda world: ["library", "remove", world.texts, "more"], before=lambda world: [_add("delta")(world)],
        readers=_checked,
    ),
    "library experts": Kind(
        lambda world: ["library", "experts", world.pictures, world.router], again=True,
        readers=lambda world: [["predict", world.picture_recipe, world.examples, "--library", world.pictures]],
    ),
    "library safe": Kind(lambda world: ["library", "safe", world.texts, "law"], again=True, readers=_checked),
    "compose": Kind(lambda world: [*world.compose(), "-o", world.out]),
    "compose, replacing": Kind(
        lambda world: ["compose", world.texts, "--weights", "food=1", "-o", world.export, "--replace"], again=True,
    ),
    "compose a recipe": Kind(
        lambda world: [*world.compose("--as", "recipe"), "-o", world.out],
        readers=lambda world: [["compose", world.texts, "--recipe", world.out]],
    ),
    "compose a merge": Kind(lambda world: [*world.compose("--as", "mergekit"), "-o", world.home / "out.yaml"],
                            readers=lambda world: [["compose", world.texts, "--recipe", world.home / "out.yaml"]]),
    "adapt": Kind(lambda world: [*world.adapt(), "-o", world.out], readers=_recipe),
    "adapt, replacing": Kind(
        lambda world: [*world.adapt("--head", "ridge"), "-o", world.recipe, "--replace"], again=True,
        readers=lambda world: [world.predict()],
    ),
    "adapt with a page": Kind(
        lambda world: [*world.adapt(), "-o", world.out, "--report", world.home / "page.html", "--replace"], again=True,
        readers=_recipe,
    ),
    "adapt with a cache": Kind(lambda world: [*world.adapt("--head", "ridge"), "--cache", world.home / "cache2"],
        again=True),
    "adapt by a router": Kind(
        lambda world: [*world.adapt_pictures("--router", str(world.router), "--cache", str(world.cache)), "-o",
            world.out],
        readers=lambda world: [["predict", world.out, world.examples, "--library", world.pictures, "--router",
            world.router]],
    ),
    "solve": Kind(lambda world: ["solve", world.texts, world.examples_csv, "--steps", "2", "-o", world.out],
        readers=_recipe),
    "predict": Kind(lambda world: [*world.predict(), "-o", world.out]),
    "suite task": Kind(lambda world: ["suite", "task", world.suite, "--split", "all", "-o", world.out]),
    "suite build": Kind(lambda world: ["suite", "build", world.examples, "-o", world.out], readers=_opened),
    "suite build, replacing": Kind(
        lambda world: ["suite", "build", world.examples, "-o", world.suite, "--replace"], again=True,
        readers=lambda world: [["suite", "show", world.suite]],
    ),
    "suite freeze": Kind(
        lambda world: ["suite", "freeze", world.suite, "--split", "all", "--tasks", "9", "-o", world.out],
        readers=lambda world: [["suite", "task", world.suite, "--list", world.out]],
    ),
    "profile": Kind(
        lambda world: ["profile", world.pictures, "--method", "bytes", "-o", world.out, "--report",
            world.home / "p.html",
                       "--replace"],
        again=True,
    ),
    "profile, measured": Kind(
        lambda world: ["profile", world.pictures, "--seconds", "1", "--batch", "1", "-o", world.out, "--replace"],
        again=True, slow=True,
        readers=lambda world: [["profile", world.pictures, "--from", world.out, "--batch", "1", "--margin", "2", "-o",
            world.home / "p2.json",
                                "--replace"]],
    ),
    "train": Kind(lambda world: world.train("--steps", "40", "--experts", "2"), slow=True,
                  readers=lambda world: [world.adapt_pictures("--router", str(world.home / "trained"))]),
    "train with a worker": Kind(
        lambda world: [*world.train("--steps", "30"), "--workers", "1"], slow=True,
        readers=lambda world: [world.adapt_pictures("--router", str(world.home / "trained"))],
    ),
}  # fmt: skip


@dataclass
class Killing:
    """One kind, killed again and again in a folder that is put back each time."""

    stand: Stand
    name: str
    kind: Kind
    faults: Rows = field(default_factory=list)
    old: State = field(default_factory=dict)
    new: State = field(default_factory=dict)
    varying: set[str] = field(default_factory=set)

    def reset(self) -> World:
        world = self.stand.fresh()
        for words in self.kind.before(world):
            assert self.run(words)["code"] == 0
        return world

    @property
    def home(self) -> Path:
        return self.stand.home

    def run(self, words: list[Any], **options: Any) -> dict[str, Any]:
        return self.stand.server.run(list(map(str, words)), self.home, **options)

    def references(self) -> tuple[int, float]:
        """Both states, what differs from run to run, how many disk calls there are, and how long it takes."""
        world = self.reset()
        self.old = visible(self.home)
        counted = self.run(self.kind.words(world), count=True)
        assert counted["code"] == 0, (self.name, counted["err"])
        self.new = visible(self.home)
        world = self.reset()
        timed = self.run(self.kind.words(world))
        other = visible(self.home)
        self.varying = {path for path in {*self.new, *other} if self.new.get(path) != other.get(path)}
        return counted["calls"], timed["seconds"]

    def fault(self, moment: str, what: str, left: bool = False) -> None:
        self.faults.append({"kind": self.name, "moment": moment, "fault": what, "only_left_files": left})
        print(self.faults[-1], file=sys.stderr)

    def kill(self, number: signal.Signals, moment: str, **options: Any) -> bool:
        """Kill once and look; returns whether the command was still running."""
        world = self.reset()
        told = f"{number.name} {moment}"
        done = self.run(self.kind.words(world), signal=int(number), **options)
        killed = done["code"] != 0
        if done["code"] not in (0, -number, 128 + number):
            self.fault(told, f"exit code {done['code']}: {done['err'][-200:]}")
        if done["code"] == 128 + number and not re.fullmatch(r"smatter: interrupted[^\n]*\n", done["err"]):
            self.fault(told, f"said {done['err'][-200:]!r}")
        if done["left"]:
            self.fault(told, "processes outlive the command")
        found = visible(self.home)
        if number != signal.SIGKILL and done["code"] == 128 + number and (left := partial(self.home)):
            self.fault(told, f"left {left[:3]}", left=True)
        is_new = self.whole(found, told)
        again = self.run(self.kind.words(World(self.home)))
        refused = is_new and not self.kind.again
        if again["code"] != (2 if refused else 0):
            self.fault(told, f"the next run ended with {again['code']}: {again['err'][-200:]}")
        after = visible(self.home)
        wrong = [
            path for path in {*after, *self.new} if after.get(path) != self.new.get(path) and not self.may_vary(path)
        ]
        if wrong:
            self.fault(told, f"the next run left {sorted(wrong)[:4]} other than an undisturbed one")
        if left := partial(self.home):
            self.fault(told, f"after the next run {left[:3]} are still there", left=True)
        for words in self.kind.readers(World(self.home)):
            read = self.run(words)
            if read["code"]:
                self.fault(told, f"what the next run wrote is not read: {read['err'][-200:]}")
        return killed

    def whole(self, found: State, told: str) -> bool:
        """Whether what is there is new; a state between old and new is a fault."""
        differs = {path for path in {*found, *self.old, *self.new} if not self.may_vary(path)}
        is_old = all(found.get(path) == self.old.get(path) for path in differs)
        is_new = all(found.get(path) == self.new.get(path) for path in differs)
        varying = [path for path in self.varying if not KEPT.fullmatch(path)]
        if is_old and is_new:  # all that it writes differs from run to run
            is_new = any(found.get(path) != self.old.get(path) for path in varying)
        if not (is_old or is_new):
            mixed = sorted(path for path in differs if found.get(path) != self.old.get(path))
            self.fault(told, f"neither old nor new: {mixed[:4]}")
        if is_new and not is_old:
            for words in self.kind.readers(World(self.home)):
                read = self.run(words)
                if read["code"]:
                    self.fault(told, f"what is there is not read: {read['err'][-200:]}")
        return is_new

    def may_vary(self, path: str) -> bool:
        return path in self.varying or bool(KEPT.fullmatch(path)) or path in LOOSE or path.startswith("cache2/")


def partial(home: Path) -> list[str]:
    """Temporary files and folders, those apart that the user calls so."""
    return sorted(path for path in state(home) if ".partial-" in path and not path.startswith(".notes.partial-"))


def visible(home: Path) -> State:
    """The state as a reader sees it: files, without temporary names, and stored ones that no manifest lists."""
    found = state(home)
    listed: set[str] = set()
    for manifest in home.glob("*/library.json"):
        told, library = json.loads(manifest.read_text()), manifest.parent.name
        listed |= {f"{library}/{source['path']}" for source in told["sources"]}
        listed |= {f"{library}/experts/{bank['digest']}" for bank in told.get("experts", [])}

    def is_seen(path: str) -> bool:
        stored = STORED.fullmatch(path)
        return (
            found[path][0] != stat.S_IFDIR
            and ".partial-" not in path
            and (stored is None or f"{stored[1]}/{stored[2]}" in listed)
        )

    return {path: content for path, content in found.items() if is_seen(path)}


def kills(stand: Stand) -> dict[str, Any]:
    """Kill every kind of command at disk calls and at moments of its own duration, drawn uniformly."""
    quick = stand.quick
    rows: Rows = []
    faults: Rows = []
    chosen = {name: kind for name, kind in KINDS.items() if not (quick and kind.slow)}
    with stage("kills", len(chosen)) as tick:
        for position, (name, kind) in enumerate(chosen.items()):
            generator = random.Random(position)
            killing = Killing(stand, name, kind)
            calls, seconds = killing.references()
            count = 2 if quick else N_SLOW_KILLS if kind.slow else N_KILLS
            row = {"kind": name, "kills": 0, "SIGKILL": 0, "SIGTERM": 0, "disk_calls": calls, "seconds": seconds}
            row["never_the_same"] = " ".join(sorted(path for path in killing.varying if not KEPT.fullmatch(path)))
            for number in range(count):
                sent = (signal.SIGKILL, signal.SIGTERM)[number % 2]
                if number % 4 < 2 and calls:
                    step = generator.randrange(calls)
                    killed = killing.kill(sent, f"before disk call {step}", at=step)
                else:
                    moment = generator.random() * seconds
                    killed = killing.kill(sent, f"after {moment:.3f} s", after=moment)
                row["kills"] += killed
                row[sent.name] += killed
            rows.append(row | {"faults": len(killing.faults)})
            faults += killing.faults
            tick()
    figures = {"kills": sum(row["kills"] for row in rows), "kill_kinds": len(rows)}
    figures["kills_that_left_temporary_files"] = sum(fault["only_left_files"] for fault in faults)
    figures["kills_between_old_and_new"] = len(faults) - figures["kills_that_left_temporary_files"]
    figures |= {f"kills_by_{name}": sum(row[name] for row in rows) for name in ("SIGKILL", "SIGTERM")}
    trained = [fault for fault in faults if fault["kind"].startswith("train")]
    figures["trainings_resumed_otherwise"] = len(trained)
    return {"figures": figures, "tables": {"kills": rows, "kill_faults": faults}}
