"""Experiments on prices: the separation, the paper's updates as written, eps-KKT, Slater's condition, noisy slopes."""

import importlib.util
from math import sqrt

import numpy as np
import torch
from budget_forms import Separable, Surrogate, as_written, descend, in_the_network, least_error, noisy_descent
from common import Rows, stage
from torch import Tensor

from smatter.budget.multipliers import Multipliers

Outcome = tuple[dict[str, float], dict[str, Rows]]


def separation(_: int) -> Outcome:
    """Equation 26 in closed form: one share for all, one count of parameters for all, and the best, at equal cost."""
    rows: Rows = []
    cases = [
        ("worth and cost in proportion", (100.0, 1.0), (100.0, 1.0), (1.0, 1.0), 0.9),
        ("most to the module of less worth", (10.0, 1.0), (1000.0, 1.0), (1.0, 1.0), 0.99),
        ("costs follow sizes", (10.0, 1.0), (5.0, 1.0), (5.0, 1.0), 0.9),
        ("costs nearly follow sizes", (10.0, 1.0), (5.0, 1.0), (4.0, 1.0), 0.9),
        ("costs ignore sizes", (10.0, 1.0), (5.0, 1.0), (1.0, 1.0), 0.9),
        ("equal costs, worth differs", (10.0, 1.0), (1.0, 1.0), (1.0, 1.0), 0.9),
        ("equal worth, costs differ", (1.0, 1.0), (10.0, 1.0), (1.0, 1.0), 0.9),
    ]
    for name, worth, costs, sizes, share in cases:
        problem = Separable(worth, costs, share * sum(costs))
        (first, second), best = problem.best()
        tied, pooled = problem.tied()[1], problem.pooled(np.array(sizes))[1]
        rows.append(
            {"case": name, "a": f"{worth[0]:g}, {worth[1]:g}", "c": f"{costs[0]:g}, {costs[1]:g}", "s_1": first,
             "s_2": second, "one_share_over_best": tied / best, "one_count_over_best": pooled / best}
        )  # fmt: skip
    return {"separation_in_proportion": Separable((100.0, 1.0), (100.0, 1.0), 90.0).gap}, {"separation": rows}


def written(n_steps: int) -> Outcome:
    """Where b, lambda and the budgets go under equations 12 to 17, and with b in the network."""
    worth, costs, budgets = torch.tensor([3.0, 1.0]), torch.tensor([1.0, 1.0]), (0.2, 2.0)
    rows: Rows = []
    runs = {
        "as written, b = 0.05 at the start": lambda: as_written(worth, costs, budgets, n_steps, first=0.05),
        "as written, b = 0.3": lambda: as_written(worth, costs, budgets, n_steps),
        "as written, b = 0.9": lambda: as_written(worth, costs, budgets, n_steps, first=0.9),
        "as written, masks cut to b = 0.3": lambda: as_written(worth, costs, budgets, n_steps, cut=True),
        "b in the network": lambda: in_the_network(worth, costs, budgets, n_steps),
    }
    with stage("updates as written", len(runs)) as tick:
        for name, run in runs.items():
            end = run()
            over, middle = end.over / end.grid, len(end.grid) // 2
            rows.append(
                {"run": name, "b_1": float(end.limits[middle, 0]), "b_2": float(end.limits[middle, 1]),
                 "lambda": max(end.cap_prices, default=0.0), "open_at_least": float(end.shares[0].mean()),
                 "open_at_most": float(end.shares[-1].mean()), "budgets_broken": float((over > 0.01).mean()),
                 "most_over": float(over.max())}
            )  # fmt: skip
            tick()
    of = {row["run"]: row for row in rows}
    figures = {
        "lambda_as_written": max(row["lambda"] for row in rows),
        "broken_as_written": of["as written, b = 0.3"]["budgets_broken"],
        "most_over_as_written": of["as written, b = 0.3"]["most_over"],
        "most_over_in_the_network": of["b in the network"]["most_over"],
    }
    return figures, {"updates_as_written": rows}


def problem_of(seed: int, budget: float = 0.4, n_modules: int = 10) -> Surrogate:
    """Ten modules of any worth and cost, a budget as a share of everything, and a cap."""
    generator = torch.Generator().manual_seed(seed)
    worth = 0.2 + 2 * torch.rand(n_modules, generator=generator, dtype=torch.float64)
    costs = 0.2 + torch.rand(n_modules, generator=generator, dtype=torch.float64)
    return Surrogate(worth, costs, budget * float(costs.sum()), caps=((0, 0.3),))


def cooper_steps(problem: Surrogate, n_steps: int) -> tuple[Tensor, Tensor] | None:
    """Shares and prices after the same steps taken by cooper, if it is installed."""
    if importlib.util.find_spec("cooper") is None:
        return None
    import cooper

    class Problem(cooper.ConstrainedMinimizationProblem):
        def __init__(self) -> None:
            super().__init__()
            n = 1 + len(problem.caps)
            self.limits = cooper.Constraint(
                multiplier=cooper.multipliers.DenseMultiplier(num_constraints=n, dtype=torch.float64),
                constraint_type=cooper.ConstraintType.INEQUALITY,
                formulation_type=cooper.formulations.Lagrangian,
            )

        def compute_cmp_state(self, shares: Tensor) -> object:
            state = cooper.ConstraintState(violation=problem.violations(shares))
            return cooper.CMPState(loss=problem.loss(shares), observed_constraints={self.limits: state})

    wrapped, shares = Problem(), torch.nn.Parameter(torch.full_like(problem.worth, 0.5))
    optimizer = cooper.optim.SimultaneousOptimizer(
        cmp=wrapped,
        primal_optimizers=torch.optim.SGD([shares], lr=0.02),
        dual_optimizers=torch.optim.SGD(wrapped.dual_parameters(), lr=0.05, maximize=True),
    )
    for _ in range(n_steps):
        optimizer.roll(compute_cmp_state_kwargs={"shares": shares})
        with torch.no_grad():
            shares.clamp_(0, 1)
    return shares.detach(), wrapped.limits.multiplier.weight.detach()


def eps_kkt(n_problems: int) -> Outcome:
    """Steps until a point is eps-KKT, and where plain and restarted prices end: means of the last 500 of 2,000."""
    epsilons = (0.1, 0.03, 0.01, 0.003)
    ways = {
        "plain": {"damping": 1.0},
        "restarted after 1": {"damping": 0.0, "window": 1},
        "halved after 50": {"damping": 0.5, "window": 50},
    }
    rows: Rows = []
    off_cooper, off_cvxpy = 0.0, 0.0
    with stage("eps-KKT", n_problems) as tick:
        reached: dict[tuple[str, float], list[float]] = {(way, eps): [] for way in ways for eps in epsilons}
        ends: dict[str, list[list[float]]] = {way: [] for way in ways}
        for seed in range(n_problems):
            problem = problem_of(seed)
            _, shadow, least = problem.solve()
            for way, options in ways.items():
                prices = Multipliers(torch.zeros(2, dtype=torch.float64), **options)
                trace: list[tuple[float, float, float]] = []

                def watch(_: int, shares: Tensor, problem=problem, prices=prices, trace=trace, least=least) -> None:
                    residual = problem.residual(shares, prices.values)
                    trace.append((residual.largest, residual.violation, float(problem.loss(shares)) - least))

                descend(problem, prices, 2000, watch=watch)
                for eps in epsilons:
                    hits = [step for step, (residual, *_) in enumerate(trace, 1) if residual <= eps]
                    reached[way, eps].append(float(hits[0]) if hits else np.inf)
                ends[way].append(np.mean(trace[-500:], axis=0).tolist())
                if way == "plain":
                    off_cvxpy = max(off_cvxpy, float(np.abs(prices.values.numpy() - shadow).max()))
            prices = Multipliers(torch.zeros(2, dtype=torch.float64), damping=1.0)
            ours = descend(problem, prices, 300)
            if theirs := cooper_steps(problem, 300):
                differences = (ours - theirs[0]).abs().max(), (prices.values - theirs[1]).abs().max()
                off_cooper = max(off_cooper, *(float(each) for each in differences))
            tick()
    for way in ways:
        residual, broken, worse = np.median(np.array(ends[way]), axis=0).tolist()
        steps = {f"steps_to_{eps:g}": _finite(float(np.median(reached[way, eps]))) for eps in epsilons}
        rows.append({"prices": way, **steps, "residual": residual, "violation": broken, "loss_above_least": worse})
    figures = {"prices_off_cvxpy": off_cvxpy, "residual_plain": rows[0]["residual"]}
    if importlib.util.find_spec("cooper") is not None:
        figures["steps_off_cooper"] = off_cooper
    return figures, {"eps_kkt": rows}


def _finite(value: float) -> float | str:
    return value if np.isfinite(value) else "never"


def stochastic(n_runs: int) -> Outcome:
    """Noisy gradients: how suboptimality, violation and the residual of averaged shares fall with the steps."""
    rows: Rows = []
    counts = (100, 400, 1600, 6400)
    problem = problem_of(0)
    _, _, least = problem.solve()
    with stage("noisy gradients", len(counts)) as tick:
        for n_steps in counts:
            ends = []
            for seed in range(n_runs):
                generator = torch.Generator().manual_seed(seed)
                prices = Multipliers(torch.zeros(2, dtype=torch.float64), rate=1 / sqrt(n_steps), damping=1.0)
                total, paid = torch.zeros_like(problem.worth), torch.zeros(2, dtype=torch.float64)

                def watch(_: int, shares: Tensor, total=total, paid=paid, prices=prices) -> None:
                    total.add_(shares)
                    paid.add_(prices.values)

                descend(problem, prices, n_steps, rate=1 / sqrt(n_steps), noise=1.0, generator=generator, watch=watch)
                mean, price = total / n_steps, paid / n_steps
                residual = problem.residual(mean, price)
                ends.append((abs(float(problem.loss(mean)) - least), residual.violation, residual.stationarity))
            loss, violation, stationarity = np.mean(ends, axis=0).tolist()
            rows.append({"steps": n_steps, "loss_off": loss, "violation": violation, "stationarity": stationarity})
            tick()
    logs = np.log([row["steps"] for row in rows])
    slopes = {
        key: float(np.polyfit(logs, np.log([max(row[key], 1e-12) for row in rows]), 1)[0])
        for key in ("loss_off", "stationarity")
    }
    return {f"slope_{key}": slope for key, slope in slopes.items()}, {"noisy_gradients": rows}


def slater(_: int) -> Outcome:
    """Prices as the budget comes down to the base: of a quadratic cost, which is flat there, and of a linear one."""
    worth = torch.tensor([3.0, 1.0, 2.0], dtype=torch.float64)
    costs = torch.ones(3, dtype=torch.float64)
    rows: Rows = []
    budgets = (1.0, 0.1, 0.01, 0.001, 0.0)
    with stage("Slater", len(budgets)) as tick:
        for budget in budgets:
            row: dict[str, object] = {"budget_beyond_base": budget}
            for name, power in (("flat", 2.0), ("linear", 1.0)):
                problem = Surrogate(worth, costs, budget, power=power)
                row[f"{name}_shadow_price"] = (
                    float(problem.solve()[1][0]) if budget else "none" if power > 1 else "many"
                )
                for n_steps in (500, 2000, 8000):
                    prices = Multipliers(torch.zeros(1, dtype=torch.float64), damping=1.0)
                    descend(problem, prices, n_steps)
                    row[f"{name}_after_{n_steps}"] = float(prices.values)
            rows.append(row)
            tick()
    last = rows[-1]
    figures = {
        "price_growth_without_slater": last["flat_after_8000"] / last["flat_after_500"],
        "price_growth_linear": last["linear_after_8000"] / last["linear_after_500"],
    }
    return figures, {"slater": rows}


def oracle(n_runs: int) -> Outcome:
    """The noisy instance behind the lower bound: calls until a method is right, and what no method can beat."""
    rows: Rows = []
    generator = np.random.default_rng(0)
    cases = [(epsilon, calls) for epsilon in (0.2, 0.1, 0.05) for calls in (0.25, 1.0, 4.0, 16.0)]
    with stage("noisy slopes", len(cases)) as tick:
        for epsilon, calls in cases:
            n_calls = round(calls / epsilon**2)
            found = noisy_descent(epsilon, n_calls, n_runs, generator)
            rows.append(
                {"epsilon": epsilon, "calls": n_calls, "calls_by_eps_squared": calls,
                 "least_possible": least_error(epsilon, n_calls) / 2, "descent_over_eps": float(found.mean()) / epsilon}
            )  # fmt: skip
            tick()
    ratio = [row["descent_over_eps"] / row["least_possible"] for row in rows if row["calls_by_eps_squared"] == 1.0]
    return {"descent_over_lower_bound": float(np.mean(ratio))}, {"oracle": rows}
