"""What `budget_training.py` asks of one task: accuracy of two routers' experts, cut by each rule at each budget."""

from functools import cache
from pathlib import Path

import numpy as np
from budget_scores import BUDGETS, Found, allocations, profile
from signs_tasks import live, right, tasks, trained

from smatter.budget.knapsack import allocate
from smatter.budget.ranked import Ranked
from smatter.compose.mixture import Mixture
from smatter.devices.budgets import Budgets, open_fractions
from smatter.devices.cut import Numbers, SupportLoss, chosen_units, numbers_of, with_open
from smatter.devices.profile import Profile
from smatter.devices.stacks import make_bench
from smatter.devices.unmeasured import counted_profile
from smatter.live.episodes import episode_queries, prepared_support
from smatter.live.objectives import Queries
from smatter.live.task import Task
from smatter.route.encode import as_mixture
from smatter.route.opening import open_by_evidence, route_task
from smatter.route.store import TrainedRouter
from smatter.settings.devices import DeviceSetting
from smatter.tasks.open import SHIPPED
from smatter.units.numbering import REST

BEFORE = SHIPPED / "signs-router"
ABLATIONS = ("with a gradient", "value alone", "groups alone")
BASELINES = ("uniform", "1/cost", "sensitivity", "pooled magnitude")
OWN = ("smatter", "blind to the task", *BASELINES)
"""Rules for the router that was trained for budgets."""

OTHER = ("smatter", "sensitivity")
"""Rules that are tried on another profile than it was trained on."""
OTHER_BUDGETS = (0.1,)


@cache
def in_bytes() -> Profile:
    """Costs by bytes of weights."""
    return counted_profile(make_bench(live().library, DeviceSetting(batch=1)))


class Cut:
    """A task with a router's experts, and the accuracy of some of their units.

    Args:
        router: whose experts these are.
        task: as an objective.
        queries: of the task.
        mixture: that the experts are added to.
        alpha: their weights.
    """

    def __init__(self, router: TrainedRouter, task: Task, queries: Queries, mixture: Mixture, alpha: object) -> None:
        self.network, self.task, self.queries, self.mixture, self.router = live(), task, queries, mixture, router
        experts = router.mix(self.network, alpha)
        assert experts is not None
        self.experts, self.bank = experts, self.network.library.bank(experts.bank)
        self.gates = self.bank.bank.gates(experts)
        self.known: dict[bytes, float] = {}

    def accuracy(self, units: Numbers) -> float:
        """With only these open."""
        key = np.sort(units).astype(np.int64).tobytes()
        if key not in self.known:
            experts = with_open(self.experts, self.gates, units)
            self.network.compose(self.network.library.recipe(self.mixture, experts=experts))
            self.known[key] = right(self.queries, self.queries.logits(self.network.read(self.queries)))
        return self.known[key]

    def full(self, on: Profile) -> float:
        """What all of it costs beyond the base."""
        return float(on.predict(open_fractions(self.bank, self.gates))[0]) / on.base - 1

    def loss(self) -> SupportLoss:
        """Of the examples."""
        return SupportLoss(self.network, self.task.objective, self.mixture, self.bank, self.gates)

    def ends(self) -> Found:
        """With nothing open, and with everything."""
        return {
            "nothing": self.accuracy(np.zeros(0, np.int64)),
            "everything": self.accuracy(np.flatnonzero(self.gates)),
        }


def best(ranked: Ranked, allowed: float) -> Numbers:
    """The exact best allocation."""
    return numbers_of(ranked, allocate(ranked, allowed).levels)


def by_value(ranked: Ranked, allowed: float) -> Numbers:
    """One more unit at a time, of most value whatever it costs, as far as it fits."""
    levels = dict.fromkeys(ranked.modules, 0)
    values = [(value, name) for name, module in ranked.modules.items() for value in module.values.tolist() if value > 0]
    for _, name in sorted(values, reverse=True):
        more = {**levels, name: levels[name] + 1}
        if ranked.cost(more)[0] <= allowed:
            levels = more
    return numbers_of(ranked, levels)


def without_rests(ranked: Ranked) -> Ranked:
    """Groups alone: what is no group of a module stays closed."""
    return Ranked({name: each for name, each in ranked.modules.items() if not name.endswith(REST)}, ranked.resources)


def budgets_at(allowed: float, on: Profile) -> Budgets:
    """A budget of some share of the base beyond it."""
    return Budgets.of(f"{1 + allowed:.9g}x", on)


def cut_own(cut: Cut, ablated: bool) -> Found:
    """All rules with the router that was trained for budgets; ablations and another profile too, if asked."""
    found, table = cut.ends(), cut.router.unit_values
    assert table is not None
    alpha, gates, bank = np.array(cut.experts.alpha), cut.gates, cut.bank
    learnt = alpha @ table.double().numpy() * gates
    slopes = cut.loss().gains(np.zeros(0, np.int64))
    blind = table.double().mean(dim=0).numpy() * gates
    for share in BUDGETS:
        allowed = share * cut.full(profile())
        budgets = budgets_at(allowed, profile())
        ranked = budgets.ranked(bank, gates, learnt)
        chosen = {"smatter": best(ranked, allowed)}
        chosen["blind to the task"] = best(budgets.ranked(bank, gates, blind), allowed)
        if ablated:
            chosen["with a gradient"] = best(budgets.ranked(bank, gates, (learnt + slopes) / 2), allowed)
            chosen["value alone"] = by_value(ranked, allowed)
            chosen["groups alone"] = best(without_rests(ranked), allowed)
        rules = allocations(ranked, bank, gates, slopes)
        chosen |= {name: rules[name](allowed) for name in BASELINES}
        found |= {f"{name} {share}": cut.accuracy(units) for name, units in chosen.items()}
    for share in OTHER_BUDGETS if ablated else ():
        allowed = share * cut.full(in_bytes())
        ranked = budgets_at(allowed, in_bytes()).ranked(bank, gates, learnt)
        rules = {**allocations(ranked, bank, gates, slopes), "smatter": lambda room, own=ranked: best(own, room)}
        found |= {f"bytes {name} {share}": cut.accuracy(rules[name](allowed)) for name in OTHER}
    return found


def cut_before(cut: Cut, ablated: bool) -> Found:
    """The router as it was: values by one gradient of the examples; by five passes for each budget, if asked."""
    found, loss = cut.ends(), cut.loss()
    slopes = loss.gains(np.zeros(0, np.int64))
    for share in BUDGETS:
        allowed = share * cut.full(profile())
        budgets = budgets_at(allowed, profile())
        if ablated:
            found[f"five passes {share}"] = cut.accuracy(chosen_units(loss, loss.ranked(budgets), [allowed]))
        found[f"gradient {share}"] = cut.accuracy(best(budgets.ranked(cut.bank, cut.gates, slopes), allowed))
    return found


def plain(queries: Queries) -> Found:
    """What needs no router: the base, the plain average of weights, and that of predictions at a pass each."""
    network = live()
    names = network.library.names

    def logits(weights: dict[str, float]) -> np.ndarray:
        network.compose(Mixture.of(weights))
        return queries.logits(network.read(queries))

    one = [logits({name: 1.0}) for name in names]
    return {
        "base": right(queries, one[names.index(network.library.manifest.base)]),
        "average of weights": right(queries, logits(dict.fromkeys(names, 1 / len(names)))),
        "average of predictions": right(queries, sum(each.softmax(dim=1) for each in one)),
    }


def score(after: Path, what: str, name: str, index: int) -> Found:
    """Accuracies of one task in percent.

    Args:
        after: the router that was trained for budgets.
        what: "all", "main" without ablations, or "ends" for everything and nothing open alone.
        name: of the list.
        index: of the task in it.
    """
    network, routers = live(), {"before": trained(BEFORE), "after": trained(after)}
    episode = tasks(name).episode(index)
    queries, task = episode_queries(network, episode), Task.of(network, prepared_support(network, episode))
    found: Found = plain(queries)
    routed = None
    for when, router in routers.items():
        router.check_fits(network)
        if routed is None:
            routed = route_task(network, task.objective, router, experts=False).routing  # alike for both routers
        routing = open_by_evidence(network, task.objective, router, routed)
        mixture = as_mixture(network, routing.weights, network.library.names).without_idle()
        cut = Cut(router, task, queries, mixture, routing.experts)
        rules = cut_before if when == "before" else cut_own
        rows = cut.ends() if what == "ends" else rules(cut, ablated=what == "all")
        found |= {f"{when} {key}": value for key, value in rows.items()}
    return found
