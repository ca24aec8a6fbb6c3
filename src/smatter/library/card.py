"""An export's model card: what it was made of, how to make it again, and how it names classes."""

from collections.abc import Mapping
from dataclasses import replace

from smatter.backbones.linear_classifiers import pipeline_of
from smatter.compose.head import ClassHead
from smatter.compose.recipe import Recipe
from smatter.compose.residual import Residual
from smatter.library.checkpoint import WEIGHTS
from smatter.library.export_head import ExportHead
from smatter.library.library import Library
from smatter.records import printable

RECIPE = "recipe.safetensors"
CARD = "README.md"
MAX_SHOWN = 100
"""Classes that a card lists; config.json has all."""

INPUTS = {"image-classification": "pixel_values", "text-classification": "**tokens"}


def model_card(
    library: Library, recipe: Recipe, head: ExportHead | None = None, files: Mapping[str, str] | None = None
) -> str:
    """The text of an export's README.md.

    Args:
        library: the sources.
        recipe: what was composed.
        head: the classifier that stands in for the recipe's head, if any.
        files: side files and the source of each; all are the base's by default.
    """
    mixture = recipe.mixture
    own = recipe.head is not None and recipe.head.kind == "linear"
    architecture = head.family.architecture if head else library.base.architecture if own else ""
    pipeline = pipeline_of(architecture)
    tag = [f"pipeline_tag: {pipeline[1]}"] if pipeline else []
    header = ["---", "library_name: transformers", *tag, "tags:", "- smatter", "- merge", "---", ""]
    kind = "on the simplex" if mixture.rule == "simplex" else "off the simplex (task arithmetic)"
    scope = (
        f"one set for each of {len(mixture.modules)} modules (means shown)"
        if mixture.modules
        else "one for all modules"
    )
    lines = [
        f"# A mixture of {len(mixture.active_sources)} checkpoints",
        "",
        f"Composed by Smatter from checkpoints of {_code(recipe.architecture)}.",
        f"Weights: {kind}, {scope}.",
        "",
        "| source | weight | sha256 of contents |",
        "|---|---|---|",
    ]
    for column, name in enumerate(mixture.sources):
        mean = sum(row[column] for row in mixture.rows) / len(mixture.rows)
        lines.append(f"| {name} | {mean:.6g} | `{recipe.digests[name]}` |")
    and_experts = " and experts" if recipe.experts and not recipe.experts.is_idle else ""
    other_heads = sorted({f"{name.partition('.')[0]}.*" for name in head.left_out}) if head else []
    left_out = [*library.manifest.exclude, *other_heads]
    rebuild = [
        *_corrections(library, recipe),
        "",
        *([f"Left out of the mixture: {', '.join(map(_code, left_out))}.", ""] if left_out else []),
        f"Everything else (configuration{' but for labels' if head else ''}, tokenizer) is the base's, "
        f"`{library.manifest.base}`.{_carried(library, files or {})}",
        *_accepted(recipe),
        f"`{RECIPE}` rebuilds `{WEIGHTS}` bit for bit where the same sources{and_experts} are:",
        "",
        f"    smatter compose LIBRARY --recipe {RECIPE} -o OUT",
        "",
    ]
    classes = _classes(library, recipe.head, head, pipeline) if recipe.head else []
    return "\n".join([*header, *lines, "", *rebuild, *classes])


def _carried(library: Library, files: Mapping[str, str]) -> str:
    """Side files that are not the base's."""
    others = {file: source for file, source in files.items() if source != library.manifest.base}
    return "".join(f" `{file}` is of `{source}`, since the base has none." for file, source in others.items())


def _accepted(recipe: Recipe) -> list[str]:
    """Differences of sources from the base that were known when they were added."""
    told = recipe.notes.accepted.items()
    return [f"`{name}` was added in spite of: {', '.join(map(_code, keys))}." for name, keys in told]


def _classes(library: Library, told: ClassHead, head: ExportHead | None, pipeline: tuple[str, str] | None) -> list[str]:
    """How it names classes."""
    names = told.class_names
    shown = [f"    {number}  {name}" for number, name in enumerate(names[:MAX_SHOWN])]  # code: no name is Markdown
    more = ["", f"and {len(names) - MAX_SHOWN} more."] if len(names) > MAX_SHOWN else []
    example = [] if pipeline is None else [
        "",
        f"    from transformers import {pipeline[0]}",
        f'    model = {pipeline[0]}.from_pretrained("OUT", dtype="float32").eval()',
        f"    model.config.id2label[int(model({INPUTS[pipeline[1]]}).logits.argmax())]",
    ]  # fmt: skip
    if head is not None:
        text = [
            f"The classifier, `{head.family.layer}`, is the task's {told.kind} head, in the dtype of the network:",
            *example,
            "",
            f"{_difference(told)} `AutoModel` loads the backbone alone and says that it did not expect the classifier.",
        ]
        if head.adds_prefix:
            text += ["", f"Names of the backbone's tensors begin with `{head.family.prefix}.`; the sources' do not."]
    elif told.kind == "linear":
        text = [
            "The classifier is the mixture of the sources' own, with all of its classes; the task has those below. "
            f"`smatter predict` names no others.{' To load it:' if example else ''}",
            *example,
        ]
    else:
        kind = _code(library.base.model_type or "unknown")
        text = [
            f"The task's {told.kind} head is in `{RECIPE}` alone, since no classifier of {kind} checkpoints like these "
            "takes its features. Name classes with `smatter predict`. A classifier that came with the sources does not "
            "know this task.",
        ]
    title = f"The {len(names)} classes, in the order of predictions:"
    return ["## Classes", "", *text, "", title, "", *shown, *more, ""]


def _difference(told: ClassHead) -> str:
    """How the classifier's answers differ from those of `smatter predict`."""
    mean = f"{told.length:.4g}, their mean over the task's examples"
    start = f"`smatter predict` divides features by their lengths; this classifier divides all by {mean}."
    if told.bias is None:
        return f"{start} But for rounding, both name the same class; probabilities differ a little."
    return f"{start} Probabilities differ a little, and now and then the class."


def _corrections(library: Library, recipe: Recipe) -> list[str]:
    """What is added to the mixture."""

    def extent(residual: Residual) -> str:
        n_touched, n_modules = len(residual.active_modules(library.partition)), len(library.partition.modules)
        return f"{residual.n_nonzero} corrected parameters in {n_touched} of {n_modules} modules."

    lines = []
    if recipe.experts is not None and not recipe.experts.is_idle:
        opened = library.correction(replace(recipe, residual=None)) or Residual()
        lines = [f"Experts of bank `{recipe.experts.bank}`: {extent(opened)}"]
    return [*lines, "No residual." if recipe.residual is None else f"Residual: {extent(recipe.residual)}"]


def _code(text: str) -> str:
    """A stranger's words as one piece of code."""
    return f"`{printable(text).replace('`', chr(39))}`"
