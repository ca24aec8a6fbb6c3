"""What `smatter adapt` and `smatter solve` print of a task's model."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from smatter.cli.output import human_size, print_table, say, shell
from smatter.cli.refit import tell_loss
from smatter.compose.records import Decision
from smatter.records import told_names

if TYPE_CHECKING:
    from smatter.library.diagnostics import Diagnostics


def tell_model(data: dict[str, Any], folder: Path, found: "Diagnostics | None") -> None:
    """All of it, for people."""
    _tell_examples(data["examples"])
    _tell_weights(data)
    _tell_fit(data, found)
    if "refit" in data:
        tell_loss(data["refit"])
    _tell_places(data, folder)


def _tell_weights(data: dict[str, Any]) -> None:
    """The sources, and how the losses of the task moved."""
    weights, losses, best = data["weights"], data["losses"], data["best_single_source"]
    order = sorted(weights, key=lambda name: (-weights[name], losses.get(name) or 0.0))
    weight = "mean weight" if "weights_per_module" in data else "weight"
    columns, rows = ["source", weight], [[name, f"{weights[name]:.4f}"] for name in order]
    if losses:
        columns.append("leave-one-out loss")
        rows = [[*row, "-" if losses[row[0]] is None else f"{losses[row[0]]:.4f}"] for row in rows]
    print_table(columns, rows)
    if data["likeness"]:
        likest = sorted(data["likeness"].items(), key=lambda pair: -pair[1])[:3]
        say("like " + ", ".join(f"{name} {share:.0%}" for name, share in likest))
    path = data["steps"]
    if len(path) > 1:
        say(f"loss {path[0]:.4f} at the start, {path[-1]:.4f} after {len(path) - 1} steps")
    elif best and data["loss"] is not None:
        say(f"loss of the mixture {data['loss']:.4f}, of {best} alone {losses[best]:.4f}")
    for line in (*data["advice"], *data["notes"]):
        say(line)


def _tell_fit(data: dict[str, Any], found: "Diagnostics | None") -> None:
    """What the model is, and how good."""
    _tell_networks(data)
    if data["corrected_parameters"]:
        say(f"{data['corrected_parameters']} parameters corrected")
    for budget in data["budget"]:
        _tell_budget(budget, data["units"])
    if found:
        _tell_diagnostics(found)
    if data["held_out_accuracy"] is not None:
        is_fitted = len(data["steps"]) > 1 or "weights_per_module" in data
        seen = ", though the fit has: expect less on others" if is_fitted else ""
        share = f"{data['held_out_accuracy']:.0%}"
        say(f"the {data['head']} head recognises {share} of examples that it has not seen{seen}")
    _tell_alternatives(data["alternatives"], sum(data["examples"].values()))
    _tell_certificates(data)


def _tell_examples(examples: dict[str, int]) -> None:
    """What was read; of private weights nothing."""
    if examples:
        least, most = min(examples.values()), max(examples.values())
        each = f"{least} each" if least == most else f"{least} to {most} each"
        n_examples = sum(examples.values())
        say(f"read {n_examples} examples of {len(examples)} classes, {each}: {told_names(list(examples))}")


def _tell_alternatives(alternatives: list[dict[str, Any]], n_examples: int) -> None:
    """What the same examples say of doing without."""
    told = []
    for each in alternatives:
        accuracy, loss, source = each["held_out_accuracy"], each["loss"], each["source"]
        share = f"loss {loss:.4f}" if accuracy is None and loss is not None else "nothing"
        name = f"the {each['name']}{f' ({source})' if source not in (None, each['name']) else ''}"
        told.append(f"{name} {share if accuracy is None else f'{accuracy:.0%}'}")
    if told:
        say(f"without adapting, {', '.join(told)}")
        say(f"{n_examples} examples cannot tell small differences: `smatter evaluate` compares all methods on more")


def _tell_certificates(data: dict[str, Any]) -> None:
    """What calibration tasks prove of the rule that was followed."""
    for certificate in data["certificates"]:
        say(f"{certificate['rule']} is certified: " + "; ".join(each["told"] for each in certificate["bounds"]))
        say(f"  {certificate['promise']}")


def _tell_networks(data: dict[str, Any]) -> None:
    """Which networks are run, and why."""
    if data["decision"]:
        say(Decision.model_validate(data["decision"]).told)
    if data["queries"]:
        say(data["queries"]["told"])
    if data["members"]:
        size = human_size(data["resident_bytes"])
        say(
            f"averages the predictions of {1 + len(data['members'])} networks, weighted as above: "
            f"{data['query_passes']:.3g} passes of each input, {size} of weights in memory"
        )


def _tell_budget(budget: dict[str, Any], units: list[int]) -> None:
    """What was kept for a budget, what it costs, and what is promised of that."""
    unit = budget["unit"].removesuffix(" forward")

    def cost(key: str) -> str:
        return human_size(round(budget[key])) if unit == "bytes" else f"{budget[key]:.4g} {unit}"

    opened = f"{units[0]} of {units[1]} units open for a budget of {budget['asked']}"
    say(f"{opened}: {cost('predicted')}, and {cost('base')} with none ({budget['setting']})")
    if budget["method"] == "stacks":
        held = f"for {1 - budget['delta']:.0%} of networks with random units open"
        say(f"promised: at most {cost('promised')}, quantile {budget['quantile']:g}, {held}, in the shared runtime")
    elif unit != "bytes":
        say(f"costs are not from whole networks ({budget['method']}): no time is promised")


def _tell_places(data: dict[str, Any], folder: Path) -> None:
    """What was written, and what to do with it."""
    if data["report"]:
        say(f"wrote {data['report']}; open it in a browser")
    if data["output"]:
        size = human_size(Path(data["output"]).stat().st_size)
        recipe, place = shell(data["output"]), shell(folder)
        needs = f" --router {shell(data['router'])}" if data["needs_router"] else ""
        say(f"wrote {data['output']} ({size}); to use it:")
        if needs:
            say(f"  smatter library experts {place} {shell(data['router'])}   # once; --router is then not needed")
        if not data["is_private"]:
            say(f"  smatter predict {recipe} INPUTS --library {place}{needs}")
        if data["sets"]:
            say(f"  smatter predict {recipe} INPUTS --library {place}{needs} --sets 0.9   # for 90 % the right class")
        if not data["members"]:
            say(f"  smatter compose {place} --recipe {recipe}{needs} -o OUT")
    else:
        say("no recipe was written; give -o RECIPE to keep this")


def _tell_diagnostics(found: "Diagnostics") -> None:
    say(f"{found.effective_sources:.1f} sources in effect; in parameters the mixture is nearest to {found.nearest}")
    if found.unsteadiness is not None:
        say(f"with other examples {found.unsteadiness:.0%} of the weight would move")
    for module, share in found.corrected.items():
        say(f"  {module}: {share:.1%} corrected")
