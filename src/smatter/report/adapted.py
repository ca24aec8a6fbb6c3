"""A page on one task's model: its weights, what the task is like, how the weights moved, what was corrected."""

from smatter.adapted import Adapted
from smatter.report import page


def adapted_page(adapted: Adapted, title: str) -> str:
    """All that is known of a model, on one page that needs no network."""
    lead = f"For {len(adapted.class_names)} classes: {', '.join(adapted.class_names[:20])}"
    lead += " and more." if len(adapted.class_names) > 20 else "."
    return page.page(title, lead, *diagnostic_parts(adapted))


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
