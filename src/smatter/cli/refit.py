"""`smatter adapt --refit`: a task whose sources are gone, fitted again or its weight shared out."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from smatter.cli.output import check_new_file, say, show
from smatter.errors import InvalidSettings

if TYPE_CHECKING:
    from smatter.adapted import Adapted
    from smatter.compose.recipe import Recipe


def recipe_to_refit(path: Path | None, support: Path | None, renormalise: bool) -> "Recipe | None":
    """The recipe that is to be fitted again, if one is; refuses what cannot be done with what is given."""
    if renormalise and (path is None or support is not None):
        raise InvalidSettings("--renormalise goes with --refit and without SUPPORT: with examples leave it out")
    if path is None and support is None:
        raise InvalidSettings("there are no examples to adapt to: give SUPPORT")
    if path is None:
        return None
    if support is None and not renormalise:
        raise InvalidSettings("without examples a recipe cannot be fitted again: give SUPPORT, or say --renormalise")
    from smatter.library.recipes import read_recipe

    return read_recipe(path)


def share_out(folder: Path, recipe: "Recipe", output: Path | None, replace: bool, as_json: bool) -> None:
    """Share out the weight of lost sources among those that are left, and write that."""
    from smatter.library.library import open_library
    from smatter.library.recipes import is_recipe, write_recipe

    if output is not None:
        check_new_file(output, replace, lambda: output.is_file() and is_recipe(output), "recipe")
    digests = open_library(folder).manifest.digests
    lost, left = recipe.lost_in(digests), recipe.renormalised(digests)
    if output is not None:
        write_recipe(output, left)
    told = {"lost": lost, "loss_before": None, "loss": None, "is_private": False}
    weights = left.mixture.mean_weights

    def text() -> None:
        tell_loss(told)
        say("left: " + ", ".join(f"{name} {weight:.1%}" for name, weight in weights.items()))
        say(f"wrote {output}" if output else "no recipe was written; give -o RECIPE to keep this")

    show({"weights": weights, "refit": told, "output": output and str(output)}, as_json, text)


def what_is_lost(adapted: "Adapted", old: "Recipe") -> dict[str, Any]:
    """Sources that are gone with their weight, and the loss before, if it is of the same examples, and now."""
    before, now = old.notes.origin, adapted.recipe.notes.origin
    is_same = before is not None and now is not None and now.task is not None and before.task == now.task
    return {
        "lost": old.lost_in(adapted.digests),
        "loss_before": before.loss if before is not None and is_same else None,
        "loss": now.loss if now is not None else None,
        "is_private": adapted.fit.is_private,
    }


def tell_loss(told: dict[str, Any]) -> None:
    """All of it, for people."""
    gone = ", ".join(f"{name} ({share:.1%} of the weight)" for name, share in told["lost"].items())
    say(f"lost {gone}" if gone else "no source of the recipe is lost")
    before, now = told["loss_before"], told["loss"]
    if told["is_private"]:
        return
    if now is None:
        say("how much worse that is nobody knows: examples would tell")
    elif before is None:
        say(f"loss {now:.4f}; what it was before is not known for these examples")
    else:
        say(f"loss {now:.4f}, and {before:.4f} before on the same examples: {now - before:+.4f}")
