"""The documents as a static site: every page of docs/, the measurements of benchmarks/findings, and a reference.

No network and no scripts: pages are what `markdown-it-py` makes of the files, with one style and one list of links.
"""

import argparse
import inspect
import re
import shutil
from html import escape
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt

import smatter

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "repository"
"""Files outside docs/ that pages link to are copied here."""

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --paper: #fff; --line: #d9dee5; --link: #1f66b8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8ecf2; --soft: #9aa6b5; --paper: #14181e; --line: #333c47; --link: #7db4f2; } }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0; display: grid;
  grid-template-columns: 14rem minmax(0, 50rem); gap: 2rem; padding: 1rem 2rem; }
nav { font-size: .9rem; } nav a { display: block; padding: .15rem 0; } a { color: var(--link); text-decoration: none; }
main { min-width: 0; } img { max-width: 100%; } code, pre { font: .85rem/1.5 ui-monospace, monospace; }
pre, table { display: block; overflow-x: auto; }
pre { border: 1px solid var(--line); border-radius: 6px; padding: .7rem; }
table { border-collapse: collapse; } td, th { border-bottom: 1px solid var(--line); padding: .3rem .6rem;
  text-align: left; } h1 { margin-top: 0; } h3 code { font-size: 1rem; }
@media (max-width: 50rem) { body { display: block; padding: 1rem; } nav { columns: 2; margin-bottom: 1.5rem; } }
"""


def anchor(title: str) -> str:
    """The name of a heading in links, as the forges make it."""
    return re.sub(r"[^\w\- ]", "", re.sub(r"[`*]|\]\([^)]*\)|\[", "", title).lower()).strip().replace(" ", "-")


def title_of(text: str) -> str:
    """The first heading."""
    return text.partition("\n")[0].lstrip("# ").strip()


def reference() -> str:
    """Every public name with its signature and documentation, in Markdown."""
    parts = ["# Reference", "", "The public names of `import smatter`. Everything else is found by its folder."]
    for name in smatter.__all__:
        thing = getattr(smatter, name)
        try:
            signature = re.sub(r"<[^<>]* at 0x[0-9a-f]+>", "...", str(inspect.signature(thing)))
        except (TypeError, ValueError):  # what is no function or class has none
            signature = ""
        parts += ["", f"## {name}", "", "```python", f"smatter.{name}{signature}", "```", ""]
        parts += ["```text", inspect.getdoc(thing) or "", "```"]
    return "\n".join(parts)


def page_files() -> dict[str, Path]:
    """The file of each page by its name, the first one first; that of the reference is not there."""
    docs = {path.stem: path for path in sorted((ROOT / "docs").glob("*.md"))}
    findings = {f"findings-{path.stem}": path for path in sorted((ROOT / "benchmarks" / "findings").glob("*.md"))}
    return {"index": docs.pop("index"), **docs, "reference": ROOT / "docs" / "reference.md", **findings}


def rendered(name: str, files: dict[str, Path], pages: dict[str, str], out: Path) -> str:
    """A page as HTML; links to other pages lead to theirs, and other files are copied beside them."""
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = markdown.parse(pages[name])
    for token, inline in pairwise(tokens):
        if token.type == "heading_open":
            token.attrSet("id", anchor(inline.content))
    for token in (child for each in tokens for child in each.children or ()):
        key = {"link_open": "href", "image": "src"}.get(token.type)
        target = str(token.attrs.get(key, "")) if key else ""
        if key and target and "://" not in target and not target.startswith("#"):
            token.attrSet(key, _moved(target, files[name].parent, files, out))
    body = markdown.renderer.render(tokens, markdown.options, {})
    links = "".join(
        f'<a href="{each}.html"{" aria-current=page" if each == name else ""}>{escape(title_of(text))}</a>'
        for each, text in pages.items()
    )
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{escape(title_of(pages[name]))} - Smatter</title><style>{STYLE}</style>"
        f"<nav><strong>Smatter {smatter.__version__}</strong>{links}</nav><main>{body}</main></html>\n"
    )


def _moved(target: str, folder: Path, files: dict[str, Path], out: Path) -> str:
    """Where a link of a page in a folder leads in the site."""
    path, mark, place = target.partition("#")
    file = (folder / path).resolve()
    for name, page in files.items():
        if page == file:
            return f"{name}.html{mark}{place}"
    inside = file.relative_to(ROOT)
    copy = out / (inside.relative_to("docs") if inside.is_relative_to("docs") else Path(REPOSITORY) / inside)
    if file.is_dir():
        return target
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, copy)
    return f"{copy.relative_to(out).as_posix()}{mark}{place}"


def main() -> None:
    """Build the site anew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / ".build" / "site")
    out = parser.parse_args().output
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    files = page_files()
    pages = {name: reference() if name == "reference" else file.read_text("utf-8") for name, file in files.items()}
    for name in pages:
        (out / f"{name}.html").write_text(rendered(name, files, pages, out), encoding="utf-8")
    print(f"{len(pages)} pages in {out}; open {out / 'index.html'}")


if __name__ == "__main__":
    main()
