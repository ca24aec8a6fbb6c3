"""The documents: links lead somewhere, commands exist, Python in the README runs."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from small_networks import make_tensors, write_checkpoint

import smatter
from smatter.cli.main import main
from smatter.library.edit import add_source, init_library

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tools" / "docs"))
from pages import anchor  # noqa: E402

FINDINGS = [*(ROOT / "benchmarks" / "findings").glob("*.md")]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *FINDINGS]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert "://" in target or (page.parent / target).exists(), f"{page.name} links to {target}"


def anchors(page: Path) -> set[str]:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    return {anchor(title) for title in re.findall(r"^#+ (.*)$", text, re.M)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_headings_lead_to_some(page: Path) -> None:
    for file, place in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text()):
        if "://" not in file:
            target = page.parent / file if file else page
            assert place in anchors(target), f"{page.name} links to {file}#{place}"


def test_every_document_becomes_a_page_whose_links_lead_somewhere(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, ROOT / "tools/docs/pages.py", "-o", tmp_path / "site"], capture_output=True)
    assert done.returncode == 0, done.stderr
    site = tmp_path / "site"
    names = {path.stem for path in (ROOT / "docs").glob("*.md")} | {f"findings-{path.stem}" for path in FINDINGS}
    assert names | {"reference"} == {path.stem for path in site.glob("*.html")}
    for page in site.glob("*.html"):
        text = page.read_text()
        assert "<script" not in text and ' src="http' not in text
        for target in re.findall(r'(?:href|src)="([^"#]+)', text):
            assert "://" in target or (site / target).exists() or (ROOT / "docs" / target).is_dir(), (page.name, target)
    reference = (site / "reference.html").read_text()
    assert all(f"smatter.{name}" in reference for name in smatter.__all__)


def commands(page: Path) -> list[str]:
    lines = re.findall(r"^ {4}(?:\$ )?(smatter .*)$", page.read_text(), re.M)
    return [re.split(r"#|   | \| | && ", line)[0].strip() for line in lines]


@pytest.mark.parametrize("command", sorted({line for page in PAGES for line in commands(page)}))
def test_commands_and_their_options_exist(command: str, capsys) -> None:
    words = shlex.split(command.replace("[", "").replace("]", ""))[1:]
    for name in words[1].split("|") if words[0] in ("library", "suite") else [""]:
        assert main([words[0], *([name] if name else []), "--help"]) == 0
        help_text = capsys.readouterr().out
        for option in (word for word in words if word.startswith("-")):
            assert option in help_text or option in ("-o",), f"{option} in {command!r}"


def test_the_readme_runs(tmp_path: Path, monkeypatch) -> None:
    base = make_tensors(0)
    library = init_library(tmp_path / "library", write_checkpoint(tmp_path / "base", base))
    for seed, name in enumerate(("latin", "emoji"), 1):
        add_source(library.folder, write_checkpoint(tmp_path / name, make_tensors(seed, near=base)))
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    ours = [block for block in blocks if "import smatter" in block]
    assert ours
    for block in ours:
        names: dict = {}
        exec(block, names)
        assert names["tensors"].keys() == base.keys()
