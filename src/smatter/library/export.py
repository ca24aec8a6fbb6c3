"""An export: a Hugging Face folder that `AutoModel.from_pretrained` loads, with its recipe and a model card."""

import shutil
from pathlib import Path

from smatter.compose.execute import execute
from smatter.compose.mixture import Mixture
from smatter.compose.recipe import Recipe
from smatter.errors import AlreadyExists
from smatter.files.writing import check_free, new_folder
from smatter.library.checkpoint import SIDE_FILES, WEIGHTS
from smatter.library.library import Library
from smatter.library.recipes import write_recipe
from smatter.library.tensor_file import TensorFile
from smatter.records import Progress, silent

RECIPE = "recipe.safetensors"
CARD = "README.md"


def export(
    library: Library,
    what: Recipe | Mixture,
    folder: str | Path,
    threads: int = 1,
    replace: bool = False,
    progress: Progress = silent,
) -> Path:
    """Compose to disk, block by block; the folder appears when all of it is there.

    Args:
        library: the sources.
        what: a recipe, or a mixture to make one of.
        folder: where to; must not exist or be empty, unless `replace`.
        threads: workers on independent blocks; the result does not depend on it.
        replace: exchange an existing folder for the new one in one step.
        progress: told the bytes written.
    """
    folder = Path(folder)
    check_free(folder, replace)
    if folder.is_dir() and any(folder.iterdir()) and not (folder / RECIPE).is_file():
        raise AlreadyExists(f"{folder} is not an export of Smatter's, so it is not replaced; choose another name")
    recipe = what if isinstance(what, Recipe) else library.recipe(what)
    plan = library.plan(recipe)
    library.verify((*plan.sources, library.manifest.base))
    with new_folder(folder, replace) as temporary:
        with TensorFile(temporary / WEIGHTS, plan.specs, {"format": "pt"}) as file:
            execute(plan, library, file, threads, progress)
        for name in SIDE_FILES:
            if name in library.base.files:
                shutil.copyfile(library.base.folder / name, temporary / name)
        write_recipe(temporary / RECIPE, recipe)
        (temporary / CARD).write_text(model_card(library, recipe), encoding="utf-8")
    return folder


def model_card(library: Library, recipe: Recipe) -> str:
    """The text of an export's README.md: what it was made of, and how to make it again."""
    mixture = recipe.mixture
    header = ["---", "library_name: transformers", "tags:", "- smatter", "- merge", "---", ""]
    kind = "on the simplex" if mixture.rule == "simplex" else "off the simplex (task arithmetic)"
    scope = (
        f"one set for each of {len(mixture.modules)} modules (means shown)"
        if mixture.modules
        else "one for all modules"
    )
    lines = [
        f"# A mixture of {len(mixture.active_sources)} checkpoints",
        "",
        f"Composed by Smatter from checkpoints of `{recipe.architecture}`.",
        f"Weights: {kind}, {scope}.",
        "",
        "| source | weight | sha256 of contents |",
        "|---|---|---|",
    ]
    for column, name in enumerate(mixture.sources):
        mean = sum(row[column] for row in mixture.rows) / len(mixture.rows)
        lines.append(f"| {name} | {mean:.6g} | `{recipe.digests[name]}` |")
    correction = library.correction(recipe)
    corrected = "No residual." if correction is None else (
        f"Residual: {correction.n_nonzero} corrected parameters in "
        f"{len(correction.active_modules(library.partition))} of {len(library.partition.modules)} modules."
    )  # fmt: skip
    left_out = [f"Left out of the mixture: {', '.join(f'`{p}`' for p in library.manifest.exclude)}.", ""]
    rebuild = [
        corrected,
        "",
        *(left_out if library.manifest.exclude else []),
        f"Everything else (configuration, tokenizer) is the base's, `{library.manifest.base}`.",
        f"`{RECIPE}` rebuilds `{WEIGHTS}` bit for bit where the same sources are:",
        "",
        f"    smatter compose LIBRARY --recipe {RECIPE} -o OUT",
        "",
    ]
    return "\n".join([*header, *lines, "", *rebuild])
