"""A page on one task's model: its weights, what the task is like, how the weights moved, what was corrected."""

import math
from collections import Counter
from typing import Any

import numpy as np

from smatter.adapted import Adapted
from smatter.report import page
from smatter.report.pictures import contact_sheet, thumbnail

MOST_CLASSES, MOST_SHOWN, MOST_CONFUSIONS = 20, 5, 12
SIDE = 48
"""Pixels of an example on the page."""
LONGEST = 200
"""Characters of a text on the page."""


def adapted_page(adapted: Adapted, title: str) -> str:
    """All that is known of a model, on one page that needs no network."""
    lead = f"For {len(adapted.class_names)} classes: {', '.join(adapted.class_names[:20])}"
    lead += " and more." if len(adapted.class_names) > 20 else "."
    return page.page(title, lead, *_result_parts(adapted), *_example_parts(adapted), *diagnostic_parts(adapted))


def _result_parts(adapted: Adapted) -> list[str]:
    """How good it is beside what one would do instead, which classes it takes for which, and what it cost."""
    rows = [("this model", adapted.held_out_accuracy, adapted.loss)]
    rows += [
        (each.name if each.source in (None, each.name) else f"{each.name}, {each.source}", *each.numbers)
        for each in adapted.alternatives
    ]
    n_judged, passes = len(adapted.held_out_names), adapted.fit.passes
    has_accuracy = all(math.isfinite(accuracy) for _, accuracy, _ in rows)
    chart = page.bar_chart({name: accuracy for name, accuracy, _ in rows}, "held-out examples named correctly")
    parts = [
        page.section(
            "How good it is",
            f"On {n_judged} of the examples, each held out of the head that names it. They chose the weights, so "
            "others are harder; and they are few, so small differences are luck. Compare on more with smatter evaluate."
            if has_accuracy
            else "No class has an example to spare, so there are losses of altered views and no accuracy.",
            chart if has_accuracy else "",
            page.table(["", "leave-one-out loss"], [[name, f"{loss:.4f}"] for name, _, loss in rows]),
        )
    ]
    counts = Counter(adapted.held_out_names)
    if wrong := {pair: count for pair, count in counts.items() if pair[0] != pair[1]}:
        lines = [[name, named, str(count)] for (name, named), count in sorted(wrong.items(), key=_by_count)]
        parts.append(
            page.section(
                "What it confuses",
                f"{sum(wrong.values())} of {n_judged} held-out examples are named wrongly"
                + (f"; the {MOST_CONFUSIONS} most frequent confusions." if len(lines) > MOST_CONFUSIONS else "."),
                page.table(["an example of", "is named", "times"], lines[:MOST_CONFUSIONS]),
            )
        )
    cost = (
        f"{passes.forwards} forward and {passes.backwards} backward passes of the examples in "
        f"{adapted.fit.seconds:.1f} s to find it; each input takes as much as {adapted.query_passes:.3g} "
        f"{'pass' if adapted.query_passes == 1 else 'passes'} of one network."
    )
    return [*parts, page.section("What it costs", cost)]


def _by_count(item: tuple[tuple[str, str], int]) -> tuple[int, tuple[str, str]]:
    return -item[1], item[0]


def _example_parts(adapted: Adapted) -> list[str]:
    """The first examples of each class as they were given."""
    support = adapted.support
    if support is None or not isinstance(support.inputs, tuple):
        return []
    shown: dict[str, list[Any]] = {name: [] for name in support.class_names[:MOST_CLASSES]}
    for value, label in zip(support.inputs, support.labels, strict=True):
        if (name := support.class_names[label]) in shown and len(shown[name]) < MOST_SHOWN:
            shown[name].append(value)
    if support.kind == "texts":
        rows = [[name, value[:LONGEST]] for name, values in shown.items() for value in values]
        part = page.table(["class", "text"], rows)
    else:
        sheets = {
            name: contact_sheet(np.stack([thumbnail(value, SIDE) for value in values]), len(values))
            for name, values in shown.items()
        }
        part = page.pictures(sheets, MOST_SHOWN * SIDE)
    text = ", ".join(f"{name} {count}" for name, count in list(adapted.examples.items())[:MOST_CLASSES])
    return [page.section("The examples", f"How many of each class: {text}.", part)]


def diagnostic_parts(adapted: Adapted) -> list[str]:
    """Sections with a picture each; those about which nothing is known are left out. Reads every source once."""
    found, fit = adapted.diagnostics, adapted.fit
    weights = dict.fromkeys(adapted.sources, 0.0) | adapted.shares
    steadiness, spreads = "", {}
    if spread := fit.spread():
        steadiness = f" With other examples {found.unsteadiness:.0%} of the weight at the start would move"
        if len(set(fit.trace.path)) == 1:  # nothing moved the weights since, so the spreads are theirs
            spreads = dict(zip(adapted.sources, spread, strict=True))
        steadiness += "; whiskers show where." if spreads else "."
    parts = [
        page.section(
            "Weights of the sources",
            f"{found.effective_sources:.1f} sources in effect.{steadiness}",
            page.bar_chart(weights, "weight, mean over modules" if adapted.mixture.modules else "weight", spreads),
        ),
        *_fit_parts(adapted),
        page.section(
            "How far the mixture is from each source",
            f"In parameters it is nearest to {found.nearest}.",
            page.bar_chart(found.distances, "distance, as a share of that between the two sources farthest apart"),
        ),
    ]
    if found.corrected:
        parts.append(
            page.section(
                "What the residual corrects",
                "A residual adds to some of the parameters after mixing.",
                page.bar_chart(found.corrected, "share of the parameters of each module that it touches"),
            )
        )
    return parts


def _fit_parts(adapted: Adapted) -> list[str]:
    fit, parts = adapted.fit, list[str]()
    if fit.decision:
        parts.append(page.section("Decision", f"{fit.decision.told[:1].upper()}{fit.decision.told[1:]}."))
    if fit.likeness:
        likest = dict(sorted(fit.likeness.items(), key=lambda pair: -pair[1])[:8])
        parts.append(
            page.section(
                "What the task is like",
                "The router compares the examples with groups of its probe set, in the features of the base.",
                page.bar_chart(likest, "likeness to groups of the probe set"),
            )
        )
    losses, path = fit.trace.losses, fit.trace.path
    if losses and path:
        series = {name: [point[index] for point in path] for index, name in enumerate(adapted.sources)}
        has_moved = len(set(path)) > 1
        chart = page.line_chart(series, range(len(path)), "step", "weight of each source") if has_moved else ""
        parts.append(
            page.section(
                "What the steps did",
                f"The loss of the examples was {losses[0]:.3f} at the start and {losses[-1]:.3f} in the end."
                + ("" if has_moved else " The weights stayed where they were."),
                chart,
            )
        )
    if shares := fit.expert_weights:
        parts.append(
            page.section(
                "Experts",
                "Weights of the residual experts, by what each has learnt; the null expert is none of them.",
                page.bar_chart(shares | {"null expert": max(0.0, 1 - sum(shares.values()))}, "weight"),
            )
        )
    if fit.notes:
        parts.append(page.section("To know", " ".join(f"{note[:1].upper()}{note[1:]}." for note in fit.notes)))
    return parts
