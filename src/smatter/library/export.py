"""An export: a Hugging Face folder that `AutoModel.from_pretrained` loads, with its recipe and a model card.

Where transformers has a classifier that takes the recipe's head, its class for classification loads it with that.
"""

import dataclasses
import json
from pathlib import Path

from smatter.compose.execute import execute
from smatter.compose.mixture import Mixture
from smatter.compose.recipe import Recipe
from smatter.errors import AlreadyExists
from smatter.files.writing import check_free, new_folder
from smatter.library.card import CARD, RECIPE, model_card
from smatter.library.checkpoint import SIDE_FILES, WEIGHTS
from smatter.library.export_head import export_head
from smatter.library.library import Library
from smatter.library.recipes import write_recipe
from smatter.library.side_files import copy_side_files, side_files
from smatter.library.tensor_file import TensorFile
from smatter.records import Progress, silent

CONFIG = "config.json"


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
    _check_ours(library, folder)
    recipe = what if isinstance(what, Recipe) else library.recipe(what)
    plan = library.plan(recipe)
    head = export_head(recipe.head, library.base.config, plan.specs)
    library.verify((*plan.sources, library.manifest.base))
    names = head.names if head else {name: name for name in plan.specs}
    plan = dataclasses.replace(plan, steps=tuple(step for step in plan.steps if step.tensor in names))
    specs = {names[name]: spec for name, spec in plan.specs.items()} | (dict(head.specs) if head else {})
    with new_folder(folder, replace) as temporary:
        with TensorFile(temporary / WEIGHTS, specs, {"format": "pt"}, names) as file:
            execute(plan, library, file, threads, progress)
            for name, values in head.arrays.items() if head else ():
                file.write(name, 0, values)
        library.check_untouched(plan.sources)
        files = side_files(library, recipe.mixture_in(library.manifest.digests))
        copy_side_files(library, files, temporary)
        if head:
            (temporary / CONFIG).write_text(json.dumps(head.config, indent=2), encoding="utf-8")
        write_recipe(temporary / RECIPE, recipe)
        (temporary / CARD).write_text(model_card(library, recipe, head, files), encoding="utf-8")
    return folder


def _check_ours(library: Library, folder: Path) -> None:
    """Refuse to exchange a folder that is no export, holds something of somebody else's, or is a source."""
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not (folder / RECIPE).is_file():
        raise AlreadyExists(f"{folder} is not an export of Smatter's, so it is not replaced; choose another name")
    own = {WEIGHTS, RECIPE, CARD, CONFIG, *SIDE_FILES}
    for path in sorted(folder.rglob("*")):
        if not path.is_dir() and str(path.relative_to(folder)) not in own:
            raise AlreadyExists(f"{path} was not written by an export: move it away, or choose another name")
    place = folder.resolve()
    for entry in library.manifest.sources:
        source = library.path_of(entry).resolve()
        if source.is_relative_to(place) or place.is_relative_to(source):
            raise AlreadyExists(f"{folder} is where source {entry.name!r} lies: choose another name")
    if library.folder.resolve().is_relative_to(place):
        raise AlreadyExists(f"{folder} holds the library: choose another name")
