"""A page on a profile: what was predicted beside what was measured, and what each module costs."""

from smatter.devices.profile import Profile
from smatter.report import page


def profile_page(profile: Profile) -> str:
    """All that a profile says, on one page that needs no network."""
    at, unit = profile.fingerprint, profile.unit
    lead = (
        f"{at.device}; threads: {at.threads}, rows: {at.batch}, length: {at.length}, {at.dtype}, torch {at.torch}. "
        f"A forward pass takes {profile.base:.3g} {unit}."
    )
    if profile.method != "stacks":
        lead += f" Costs are not from whole networks ({profile.method}): nothing is promised."
    if not profile.is_quiet:
        lead += " The machine was not quiet meanwhile, so the bound is wider than it need be: measure again."
    parts = []
    if profile.points and profile.quality:
        found = profile.quality
        parts.append(
            page.section(
                "Predicted and measured",
                "Each point is a network with random active groups, to which neither costs nor bound were fitted. "
                f"{found.within_10_percent:.0%} are within 10 % of the prediction; {found.coverage:.0%} are "
                f"below the bound, which promises {1 - profile.delta:.0%}.",
                page.scatter_chart(
                    profile.points,
                    {"as predicted": (1.0, 0.0), "bound": (profile.kappa, profile.epsilon)},
                    f"predicted ({unit})",
                    f"measured ({unit}), the median; the bound is for the quantile {profile.quantile:g}",
                ),
            )
        )
    totals = {name: float(profile.model.relative({name: 1.0})[0]) - 1 for name in profile.costs}
    parts.append(
        page.section(
            "What modules cost",
            "What a module adds with all of its groups active, as a share of the network without any. A rest is "
            "what lies outside of groups: norms, convolutions, biases.",
            page.bar_chart(totals, "share of the base", most=max(*totals.values(), 1e-9)),
        )
    )
    if profile.composing:
        costs = profile.composing
        everything = list(costs.module_bytes)
        mixed, corrected = (sum(cost(module) for module in everything) for cost in (costs.c_mix, costs.c_res))
        rows = [
            ["whatever is composed", f"{costs.fixed:.3g} ms"],
            ["each source that is mixed", f"{mixed:.3g} ms"],
            ["a residual in every module", f"{corrected:.3g} ms"],
            ["packing such a residual for a shared base", f"{costs.packing_cost(everything):.3g} ms"],
        ]
        parts.append(
            page.section("What composing costs", "Time until a task can be served.", page.table(["", ""], rows))
        )
    return page.page("What this device takes", lead, *parts)
