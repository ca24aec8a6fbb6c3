"""`smatter train`: tasks of a suite to a router, to experts that serve budgets, and to a posterior over routings."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smatter.backbones.gate import quiet_transformers
from smatter.cli.grouped import grouped
from smatter.cli.output import Json, progress_bar, say, shell, show
from smatter.cli.places import library_before
from smatter.cli.suite import Replace, Seed, Shifts, parse_shift_options
from smatter.cli.train_options import (
    Folder,
    Making,
    Output,
    Pricing,
    Routings,
    Sources,
    SuitePlace,
    Tail,
    Variants,
    Work,
    Workers,
)

if TYPE_CHECKING:
    from smatter.devices.profile import Profile
    from smatter.library.library import Library
    from smatter.route.store import TrainedRouter
    from smatter.settings.budgets import BudgetTraining
    from smatter.settings.posteriors import PosteriorTraining
    from smatter.settings.training import MetaSettings
    from smatter.tasks.suite import Suite


@grouped
def train(
    folder: Folder,
    suite: SuitePlace,
    output: Output,
    making: Making,
    routings: Routings,
    pricing: Pricing,
    tail: Tail,
    sources: Sources = None,
    shift: Shifts = None,
    variant: Variants = None,
    seed: Seed = 0,
    work: Work = None,
    workers: Workers = 1,
    replace: Replace = False,
    as_json: Json = False,
) -> None:
    """Train a router on tasks of a suite, or a posterior over its routings; an interrupted training goes on."""
    routings.check(making, pricing.budgets)
    pricing.check(making, routings.existing)
    settings = None if routings.existing else making.settings(seed, tail)
    objective = routings.training(tail, seed) if routings.posterior else None
    changes = {"shifts": parse_shift_options(shift), "variants": parse_shift_options(variant)}
    more = {"work": work or output.with_name(f"{output.name}.work"), "workers": workers, **changes}
    begin, tasks = time.perf_counter(), {"seed": seed, **changes}
    _check_output(output, replace)
    profiles = _read_profiles(pricing)
    library, examples = _opened(folder, suite, sources=sources, router=routings.existing, **tasks)
    trained = _trained(library, examples, settings, routings.existing, more)
    if pricing.budgets:
        how = pricing.training(making, routings.existing, seed)
        trained = _for_budgets(library, examples, trained, how, profiles=profiles, more=more)
    if objective is not None:
        trained = _with_posterior(library, examples, trained, routings, objective=objective, more=more)
    _write(output, trained, replace)
    data = {"output": str(output), "seconds": time.perf_counter() - begin, **trained.record}
    if trained.posterior and objective is not None:
        data["posterior"] = {"temperature": trained.posterior.temperature, **trained.posterior.record}
    asked = routings.existing is None, pricing.budgets
    show(data, as_json, lambda: _tell(folder, output, data, *asked))


def _check_output(output: Path, replace: bool) -> None:
    from smatter.files.writing import check_free
    from smatter.route.place import is_router

    check_free(output, replace and is_router(output))


def _write(output: Path, trained: "TrainedRouter", replace: bool) -> None:
    from smatter.route.store import write_router

    write_router(output, trained, replace)


def _read_profiles(pricing: Pricing) -> "list[Profile]":
    """Before a router is trained for minutes."""
    if not pricing.profile:
        return []
    from smatter.devices.profile import read_profile

    return [read_profile(path) for path in pricing.profile]


def _opened(
    folder: Path, suite: str, *, sources: list[str] | None, router: Path | None, **tasks: Any
) -> "tuple[Library, Suite]":
    """Check what is cheap before torch is imported."""
    from smatter.errors import NotFound
    from smatter.tasks.open import open_suite
    from smatter.train.curriculum import make_curriculum

    if router is not None and not router.is_dir():
        raise NotFound(f"{router} is no folder; give the router's, which `smatter train` wrote")
    library = library_before(folder, Path(suite), router)
    library = library.only(sources) if sources else library
    examples = open_suite(suite)
    make_curriculum(examples, **tasks)  # refuses one too small
    return library, examples


def _trained(
    library: "Library", suite: "Suite", settings: "MetaSettings | None", existing: Path | None, more: dict[str, Any]
) -> "TrainedRouter":
    """A router, trained now or before."""
    import torch

    torch.set_num_threads(1)
    quiet_transformers()
    if settings is None:
        from smatter.route.store import read_router

        assert existing is not None
        return read_router(existing)
    from smatter.train.router import train_router

    with progress_bar("training", settings.n_steps, "steps", is_long=True) as progress:
        return train_router(library, suite, settings, progress=progress, **more)


def _for_budgets(
    library: "Library",
    suite: "Suite",
    trained: "TrainedRouter",
    how: "BudgetTraining",
    *,
    profiles: "Sequence[Profile]",
    more: dict[str, Any],
) -> "TrainedRouter":
    """The router with experts that serve every budget."""
    from smatter.train.budgets import train_budgets

    more = more | {"work": more["work"] / "budgets"}
    with progress_bar("training for budgets", how.n_steps, "steps", is_long=True) as progress:
        return train_budgets(library, suite, trained, profiles, how, progress=progress, **more)


def _with_posterior(
    library: "Library",
    suite: "Suite",
    trained: "TrainedRouter",
    routings: Routings,
    *,
    objective: "PosteriorTraining",
    more: dict[str, Any],
) -> "TrainedRouter":
    """The router with a posterior that is learnt from tables, which are kept in the folder of the work."""
    from smatter.posterior.amortised import PosteriorSettings
    from smatter.route.kept import read_catalogue
    from smatter.train.routings import Learning, learn_posterior

    assert routings.posterior is not None
    how = Learning(objective, PosteriorSettings(family=routings.posterior), routings.parsed_prior, routings.n_tables)
    catalogue = None
    if routings.catalogue is not None:
        catalogue = read_catalogue(routings.catalogue).check_fits(library, trained)
    more = more | {"work": more["work"] / "routings", "catalogue": catalogue}
    with progress_bar("passing routings", 1, "share") as progress:
        return learn_posterior(library, suite, trained, how, progress=progress, **more)


def _tell(folder: Path, output: Path, record: dict[str, Any], is_new: bool, is_for_budgets: bool) -> None:
    """What was done now, for people, and what to do next."""
    if is_new:
        _tell_router(record)
    if is_for_budgets:
        _tell_budgets(record["budgets"])
    learnt = record.get("posterior")
    if learnt:
        _tell_posterior(learnt)
    place, router = shell(folder), shell(output)
    say(f"wrote {output}; to see what it is worth on your data, and to use it:")
    say(f"  smatter evaluate {place} DATA --router {router}")
    say(f"  smatter adapt {place} SUPPORT --router {router} -o RECIPE" + (" --decision half:3" if learnt else ""))
    if is_new:
        say(f"the same command with more --steps than {record['steps']} and --replace trains it further")


def _tell_router(record: dict[str, Any]) -> None:
    """How the router was trained, and what it is worth."""
    say(f"{record['steps']} steps of the router; {record['seconds']:.0f} s now")
    if found := record.get("validation"):
        say(
            f"validation tasks, after step {found['step']}: {found['accuracy']:.1%} of the queries, "
            f"{found['accuracy_with_evidence']:.1%} with evidence"
        )
    if found and found["references"]:
        told = {"base": "the base", "average": "the plain average", "evidence": "evidence routing"}
        say("on the same: " + ", ".join(f"{told[name]} {share:.1%}" for name, share in found["references"].items()))
    if share := record.get("common_share"):
        say(f"every task uses {share:.0%} of the correction")
    if len(shares := record.get("expert_shares", ())) > 1:
        say(f"experts use {', '.join(f'{share:.0%}' for share in shares[:-1])}, together {shares[-1]:.0%}")
        if len(rows := record["expert_overlaps"]) > 1:
            common = [share for number, row in enumerate(rows) for share in row[:number]]
            say(f"two of them have {sum(common) / len(common):.0%} in common on average, {max(common):.0%} at most")


def _tell_budgets(learnt: dict[str, Any]) -> None:
    """How experts were trained for budgets, and what they are worth."""
    say(f"{learnt['steps']} steps for budgets")
    if found := learnt.get("validation"):
        say(
            f"validation tasks, after step {found['step']}: {found['accuracy']:.1%} of the queries with everything "
            f"open, {found['references']['before']:.1%} before; {found['accuracy_cut']:.1%} at small budgets"
        )


def _tell_posterior(learnt: dict[str, Any]) -> None:
    """What was learnt, and what it is worth on tasks that it was not learnt from."""
    found, settings = learnt["held_out"], learnt["settings"]
    say(f"{settings['family']} posterior from {learnt['tables']} tasks, temperature {learnt['temperature']:.2f}")
    what = f"half:{settings['members']}" if settings["target"] == "average" else "a random routing"
    say(
        f"{found['tasks']} held-out tasks: loss {found['loss']:.3f} by {what}, {found['loss_of_router']:.3f} without it"
    )
    if settings["cvar"] < 1:
        tail = f"worst {settings['cvar']:.0%} of them"
        say(f"  the {tail}: {found['tail']:.3f}, {found['tail_of_router']:.3f} without it")
