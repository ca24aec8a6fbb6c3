"""A task's parameters in memory."""

from smatter.compose.arena import Arena
from smatter.compose.execute import Progress
from smatter.compose.mixture import Mixture
from smatter.compose.plan import Plan
from smatter.compose.recipe import Recipe
from smatter.library.library import Library


def plan_of(library: Library, what: Recipe | Mixture) -> Plan:
    """The plan of a recipe or a mixture, after checking that the sources it reads are what was added."""
    plan = library.plan_recipe(what) if isinstance(what, Recipe) else library.plan(what)
    used = dict.fromkeys(term.source for step in plan.steps for term in step.terms)
    library.verify((*used, library.manifest.base))
    return plan


def compose(
    library: Library,
    what: Recipe | Mixture,
    arena: Arena | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> Arena:
    """Compute a recipe or a mixture into memory.

    Args:
        library: the sources.
        what: what to compose.
        arena: memory of an earlier call to reuse; its tensors change. A new one is made by default.
        threads: workers on independent blocks; the result does not depend on it.
        progress: told the bytes finished.
    """
    plan = plan_of(library, what)
    return (arena or Arena(plan.specs)).fill(plan, library, threads, progress)
