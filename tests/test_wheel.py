"""The wheel installs into a fresh environment, and works there outside of the repository."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

import smatter

ROOT = Path(__file__).parents[1]


def run(*words: object, where: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([str(word) for word in words], cwd=where, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_installs_and_tells_its_story(tmp_path: Path) -> None:
    """What it depends on is taken from the environment of the tests: downloading torch again would prove nothing."""
    tree, env, place = tmp_path / "tree", tmp_path / "env", tmp_path / "elsewhere"
    tree.mkdir()
    place.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path, tree, where=place)
    (wheel,) = tmp_path.glob("smatter-*.whl")
    assert smatter.__version__ in wheel.name and wheel.stat().st_size < 100_000_000
    venv.create(env, with_pip=False)
    (packages,) = (env / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    run(*pip, "--python", env / "bin" / "python", "install", "--no-deps", "--no-index", wheel, where=place)
    where = run(env / "bin" / "python", "-c", "import smatter; print(smatter.__file__)", where=place).strip()
    assert Path(where).is_relative_to(env)
    assert run(env / "bin" / "smatter", "--version", where=place) == f"smatter {smatter.__version__}\n"
    told = run(env / "bin" / "smatter", "demo", where=place)
    assert "named correctly" in told and (place / "smatter-demo" / "index.html").is_file()
