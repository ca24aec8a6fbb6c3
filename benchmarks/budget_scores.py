"""What `budget.py` asks of one task: accuracy of its experts cut by each rule at each budget."""

import sys
from collections.abc import Callable
from functools import cache

from common import ROOT
from signs_tasks import live, right, tasks, trained

sys.path.insert(0, str(ROOT / "tools" / "common"))

import numpy as np
from renderings import RENDERINGS as RENDERED

from smatter.budget.knapsack import allocate
from smatter.budget.ranked import Ranked
from smatter.devices.budgets import Budgets, open_fractions
from smatter.devices.cut import Numbers, SupportLoss, chosen_units, numbers_of, with_open
from smatter.devices.profile import Profile
from smatter.devices.unmeasured import product_profile
from smatter.library.banks import PlacedBank, Values
from smatter.live.episodes import episode_queries, prepared_support
from smatter.live.task import Task
from smatter.route.encode import as_mixture
from smatter.route.opening import route_task
from smatter.tasks.open import SHIPPED

RENDERINGS = tuple(RENDERED)
BUDGETS = (0.05, 0.10, 0.25, 0.50)
Found = dict[str, float]
Shares = dict[str, float]
Rule = Callable[[float], Numbers]


@cache
def profile() -> Profile:
    """Costs by multiply-accumulates."""
    return product_profile(live())


def sizes(bank: PlacedBank, gates: Values) -> np.ndarray:
    """The size of each unit's delta per parameter, (n_units,)."""
    counts = np.bincount(bank.unit_of, minlength=len(gates))
    return np.sqrt(np.bincount(bank.unit_of, bank.values**2, len(gates)) / counts) * gates


def grown(ranked: Ranked, shares: Shares, budget: float) -> Numbers:
    """Shares of all modules raised together, as far as the budget allows."""

    def levels(scale: float) -> dict[str, int]:
        return ranked.levels({name: min(1.0, scale * share) for name, share in shares.items()})

    low, high = 1e-4, 1e9  # as logarithms they are halved until no share can differ by a unit
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if ranked.cost(levels(middle))[0] <= budget else (low, middle)
    return numbers_of(ranked, levels(low))


def taken(ranked: Ranked, modules: list[str], budget: float) -> Numbers:
    """One more unit of each module in turn, in the module's own order, where it fits."""
    levels = dict.fromkeys(ranked.modules, 0)
    for name in modules:
        more = {**levels, name: levels[name] + 1}
        if ranked.cost(more)[0] <= budget:
            levels = more
    return numbers_of(ranked, levels)


def allocations(ranked: Ranked, bank: PlacedBank, gates: Values, slopes: np.ndarray) -> dict[str, Rule]:
    """The baselines, called with a budget; all of them open units in the order of `ranked`."""
    modules, size = ranked.modules, sizes(bank, gates)
    module_of = {unit: name for name, each in modules.items() for unit in each.units}
    by_size = [module_of[unit] for unit in sorted(module_of, key=lambda unit: -size[unit])]
    random = [module_of[unit] for unit in np.random.default_rng(0).permutation(sorted(module_of)).tolist()]
    shares: dict[str, Shares] = {
        "uniform": dict.fromkeys(modules, 1.0),
        "1/cost": {name: 1 / each.level_costs[0, -1] for name, each in modules.items()},
        "magnitude per module": {name: float(size[list(each.units)].mean()) for name, each in modules.items()},
        "sensitivity": {name: max(float(slopes[list(each.units)].sum()), 1e-9) for name, each in modules.items()},
    }
    scaled = {name: {key: value / max(own.values()) for key, value in own.items()} for name, own in shares.items()}
    rules: dict[str, Rule] = {name: lambda budget, own=own: grown(ranked, own, budget) for name, own in scaled.items()}
    rules["pooled magnitude"] = lambda budget: taken(ranked, by_size, budget)
    rules["random"] = lambda budget: taken(ranked, random, budget)
    return rules


RULES = (
    "smatter", "smatter without losses", "smatter with one gradient", "uniform", "1/cost", "magnitude per module",
    "sensitivity", "pooled magnitude", "random",
)  # fmt: skip


def score(name: str, index: int) -> Found:
    """Accuracies of one task in percent."""
    network, router = live(), trained(SHIPPED / "signs-router")
    router.check_fits(network)
    episode = tasks(name).episode(index)
    queries = episode_queries(network, episode)
    task = Task.of(network, prepared_support(network, episode))
    routing = route_task(network, task.objective, router).routing
    mixture = as_mixture(network, routing.weights, network.library.names).without_idle()
    experts = router.mix(network, routing.experts)
    assert experts is not None
    bank = network.library.bank(experts.bank)
    gates = bank.bank.gates(experts)

    def accuracy(units: Numbers) -> float:
        network.compose(network.library.recipe(mixture, experts=with_open(experts, gates, units)))
        return right(queries, queries.logits(network.read(queries)))

    found = {"nothing": accuracy(np.zeros(0, np.int64)), "everything": accuracy(np.flatnonzero(gates))}
    loss = SupportLoss(network, task.objective, mixture, bank, gates)
    slopes = loss.gains(np.zeros(0, np.int64))
    full = float(profile().predict(open_fractions(bank, gates))[0]) / profile().base - 1
    for budget in BUDGETS:
        allowed = budget * full
        budgets = Budgets.of(f"{1 + allowed:.9g}x", profile())
        ranked = loss.ranked(budgets)
        found[f"smatter {budget}"] = accuracy(chosen_units(loss, ranked, [allowed]))
        found[f"smatter without losses {budget}"] = accuracy(numbers_of(ranked, allocate(ranked, allowed).levels))
        once = budgets.ranked(bank, gates, slopes)
        found[f"smatter with one gradient {budget}"] = accuracy(numbers_of(once, allocate(once, allowed).levels))
        for rule, chosen in allocations(ranked, bank, gates, slopes).items():
            found[f"{rule} {budget}"] = accuracy(chosen(allowed))
    return found
