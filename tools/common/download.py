"""Packages from the registries, at pinned versions, kept in a cache; what they say of their licence."""

import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

BATCH = 8
"""Packages asked of npm in one call: starting npm costs more than a small download."""


class DownloadFailed(RuntimeError):
    """A registry did not give a package; the text says which and what its tool said."""


@dataclass(frozen=True)
class Package:
    """One downloaded package file, opened on demand."""

    registry: str
    name: str
    version: str
    path: Path

    @cached_property
    def _opened(self) -> Mapping[str, bytes]:
        """Members by their path inside the package; those of wheels, which can be large, are read one at a time."""
        if self.registry == "npm":
            with tarfile.open(self.path) as archive:
                return {
                    member.name.partition("/")[2]: archive.extractfile(member).read()  # type: ignore[union-attr]
                    for member in archive
                    if member.isfile()
                }
        if self.registry == "pypi":
            return _Wheel(self.path)
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["dpkg-deb", "-x", str(self.path), folder], check=True)
            root = Path(folder)
            files = (path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
            return {str(path.relative_to(root)): path.read_bytes() for path in files}

    def __contains__(self, member: str) -> bool:
        return member in self._opened

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._opened))

    def read(self, member: str) -> bytes:
        """The bytes of one member."""
        return self._opened[member]

    def json(self, member: str) -> dict:
        """One member as JSON."""
        return json.loads(self.read(member))

    def close(self) -> None:
        """Forget the contents: a few hundred packages do not fit in memory together."""
        self.__dict__.pop("_opened", None)

    def licence(self) -> str:
        """The SPDX name in the package's own words."""
        if self.registry == "apt":
            text = self.read(f"usr/share/doc/{self.name}/copyright").decode()
            named = re.findall(r"^License: *(\S+)", text, flags=re.MULTILINE)
            return {"Expat": "MIT"}.get(named[0], named[0])
        if self.registry == "pypi":
            member = next(name for name in self if name.endswith(".dist-info/METADATA"))
            text = self.read(member).decode()
            found = re.search(r"^License(?:-Expression)?: *(.+)$", text, flags=re.MULTILINE)
            return found[1].strip() if found else "unknown"
        described = {}
        with tarfile.open(self.path, "r|gz") as archive:
            for member in archive:
                name = member.name.partition("/")[2]
                if name in ("package.json", "info.json"):
                    described[name] = json.load(archive.extractfile(member))  # type: ignore[arg-type]
                if "package.json" in described and ("info.json" in described or "iconify" not in self.name):
                    break
        about = described.get("info.json", {}).get("license", {})
        return about.get("spdx") or described["package.json"].get("license", "unknown")


@dataclass(frozen=True)
class Cache:
    """A folder of package files; a file under its final name is complete."""

    folder: Path
    pins: dict[str, dict[str, str]]

    @classmethod
    def at(cls, folder: Path, pins: Path) -> "Cache":
        """The cache in a folder, with the versions that a file pins."""
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder, json.loads(pins.read_text()))

    def package(self, registry: str, name: str) -> Package:
        """A package that `fetch` brought."""
        version = self.pins[registry][name]
        return Package(registry, name, version, self._path(registry, name, version))

    def fetch(self, progress: Callable[[int], None]) -> int:
        """Download whatever is pinned and missing; the bytes of the whole cache."""
        for registry, get in (("npm", self._npm), ("pypi", self._pypi), ("apt", self._apt)):
            pinned = self.pins.get(registry, {}).items()
            missing = [(name, version) for name, version in pinned if not self._path(registry, name, version).exists()]
            progress(len(pinned) - len(missing))
            for start in range(0, len(missing), BATCH):
                get(missing[start : start + BATCH])
                progress(len(missing[start : start + BATCH]))
        return sum(
            self._path(registry, name, version).stat().st_size
            for registry, names in self.pins.items()
            for name, version in names.items()
        )

    def _path(self, registry: str, name: str, version: str) -> Path:
        return self.folder / f"{registry}-{name.strip('@').replace('/', '-')}-{version.replace(':', '_')}.package"

    def _npm(self, wanted: list[tuple[str, str]]) -> None:
        names = [f"{name}@{version}" for name, version in wanted]
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            _run(["npm", "pack", "--silent", "--pack-destination", folder, *names])
            for name, version in wanted:
                flat = name.strip("@").replace("/", "-")
                self._keep(Path(folder) / f"{flat}-{version}.tgz", "npm", name, version)

    def _pypi(self, wanted: list[tuple[str, str]]) -> None:
        for name, version in wanted:
            with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                _run(
                    [
                        sys.executable,
                        "-m",
                        "pip",
                        "download",
                        "--quiet",
                        "--no-deps",
                        "--dest",
                        folder,
                        f"{name}=={version}",
                    ]
                )
                self._keep(next(Path(folder).glob("*.whl")), "pypi", name, version)

    def _apt(self, wanted: list[tuple[str, str]]) -> None:
        for name, version in wanted:
            with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                _run(["apt-get", "download", "--quiet", f"{name}={version}"], folder)
                self._keep(next(Path(folder).glob("*.deb")), "apt", name, version)

    def _keep(self, path: Path, registry: str, name: str, version: str) -> None:
        shutil.move(path, self._path(registry, name, version))


class _Wheel(Mapping[str, bytes]):
    """The members of a zip file."""

    def __init__(self, path: Path) -> None:
        self._archive = zipfile.ZipFile(path)

    def __getitem__(self, member: str) -> bytes:
        return self._archive.read(member)

    def __iter__(self) -> Iterator[str]:
        return iter(self._archive.namelist())

    def __len__(self) -> int:
        return len(self._archive.namelist())


def _run(command: Iterable[str], folder: str | None = None) -> None:
    done = subprocess.run(list(command), cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DownloadFailed(f"{' '.join(command)}\n{done.stderr.strip()[-2000:]}")
