"""A page on a comparison of methods: how accurate each is, what it costs, and what the chosen one gets wrong."""

import io
import math
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from smatter.evaluate.compare import COLUMNS, Comparison
from smatter.evaluate.trials import Trial, Trials
from smatter.report import page
from smatter.report.adapted import LONGEST

MOST_MISTAKES = 24
SIDE = 96
"""Pixels of a picture on the page."""


def compared_page(compared: Comparison, trials: Trials | Sequence[Trial], title: str) -> str:
    """All methods on one page that needs no network.

    Args:
        compared: the scores.
        trials: the tasks that they are of.
        title: of the page.
    """
    standings = [each for each in compared.standings if each.accuracy is not None]
    accuracies = {each.name: each.accuracy for each in standings if each.accuracy is not None}
    halves = {name: each.half for name, each in accuracies.items() if math.isfinite(each.half)}
    choice = compared.choose()
    name = choice.name if choice else standings[0].name
    return page.page(
        title,
        f"{compared.told}. 95 % intervals over {compared.unit}.",
        page.section(
            f"Use {name}",
            choice.told + "." if choice else "",
            page.bar_chart({name: each.mean for name, each in accuracies.items()}, "accuracy, with intervals", halves),
        ),
        page.section(
            "What each gains and costs",
            "Differences are paired, in percent. Seconds and passes of the examples are those of adapting to a task.",
            page.table(COLUMNS, [each.cells for each in standings]),
        ),
        *(page.section(f"{each.name} has no scores", each.failure) for each in compared.standings if each.failure),
        *_mistakes(compared, trials, name),
    )


def _mistakes(compared: Comparison, trials: Trials | Sequence[Trial], name: str) -> list[str]:
    """Queries that a method named wrongly, the first few of them."""
    wrong = [
        (index, number)
        for index, hits in enumerate(compared.hits(name))
        for number, is_right in enumerate(hits)
        if not is_right
    ]
    if not wrong:
        return [page.section("Mistakes", f"{name} names every query as it should.")]
    shown: list[tuple[str, Any]] = []
    for index, number in islice(wrong, MOST_MISTAKES):
        task, named = compared.tasks[index], compared.complete[name][index].named[number]
        told = f"{task.class_names[task.truth[number]]}, named {task.class_names[named]} ({task.name}, {number})"
        shown.append((told, trials[index].queries[number]))
    text = f"{name} names {len(wrong)} of {sum(map(len, compared.hits(name)))} queries wrongly"
    text += f"; the first {MOST_MISTAKES} of them." if len(wrong) > MOST_MISTAKES else "."
    if all(isinstance(value, str) for _, value in shown):
        part = page.table(["is", "text"], [[told, value[:LONGEST]] for told, value in shown])
    else:
        part = page.pictures({told: _png(value) for told, value in shown if not hasattr(value, "numpy")}, SIDE)
    return [page.section("Mistakes", text, part)]


def _png(value: Any) -> bytes:
    """A small picture of a query."""
    from PIL import Image

    from smatter.backbones.images import open_image

    image = (open_image(value) if isinstance(value, Path) else value).convert("RGB")
    image.thumbnail((2 * SIDE, 2 * SIDE), Image.Resampling.BILINEAR)
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()
