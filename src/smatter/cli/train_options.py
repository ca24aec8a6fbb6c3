"""Options of `smatter train`, by what they are about."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from smatter.cli.output import pairs
from smatter.errors import InvalidSettings
from smatter.settings.budgets import BudgetTraining
from smatter.settings.posteriors import Family, PosteriorTraining, Prior, Target
from smatter.settings.training import (
    Imitation,
    MetaSettings,
    Pooling,
    RouterSettings,
    TeacherName,
    Tying,
    UnitKind,
    WeightMap,
)

Folder = Annotated[Path, typer.Argument(metavar="LIB", help="The library's folder.", show_default=False)]
SuitePlace = Annotated[
    str, typer.Argument(metavar="SUITE", help="A shipped suite, or where one is.", show_default=False)
]
Output = Annotated[Path, typer.Option("-o", "--output", metavar="ROUTER", help="Where the router is written.")]
Sources = Annotated[
    list[str] | None,
    typer.Option(
        "--source", metavar="NAME", help="Train with this source and the base only. Repeatable; all sources by default."
    ),
]
NSteps = Annotated[
    int | None,
    typer.Option(
        "--steps",
        metavar="N",
        min=1,
        max=1_000_000,
        help="The most steps [600; with --from and --budgets 300].",
        show_default=False,
    ),
]
NExperts = Annotated[int, typer.Option("--experts", metavar="M", min=0, max=64, help="Residual experts.")]
ExpertShare = Annotated[
    float, typer.Option(metavar="SHARE", help="Share of the correction's parameters that one expert may use.")
]
CommonShare = Annotated[
    float, typer.Option(metavar="SHARE", help="Share of the correction's parameters that every task uses.")
]
Units = Annotated[
    UnitKind,
    typer.Option(help="What experts switch: groups of parameters, single ones, or parts of a low-rank correction."),
]
Rank = Annotated[int, typer.Option(metavar="N", min=1, max=4096, help="Rank of a low-rank correction.")]
Pooled = Annotated[Pooling, typer.Option(help="How the classes of a task become one vector.")]
Tied = Annotated[Tying, typer.Option(help="One row of weights for the network, or one for each module.")]
Map = Annotated[WeightMap, typer.Option("--map", help="How scores become weights.")]
Entropy = Annotated[float, typer.Option(metavar="PRICE", min=0, help="Price of using many sources at once.")]
Distilled = Annotated[
    list[str] | None,
    typer.Option(
        "--distill",
        metavar="WHAT=PRICE",
        help="Price of weights, experts or predictions that differ from a teacher's. Repeatable; slow.",
    ),
]
Teaching = Annotated[
    TeacherName,
    typer.Option(
        "--teacher", help="Who predicts for --distill predictions: a solved mixture, or the average of the sources."
    ),
]
Variants = Annotated[
    list[str] | None,
    typer.Option(
        "--variant", metavar="NAME[:KEY=VALUE,...]", help="Let experts learn from tasks changed like this. Repeatable."
    ),
]
Work = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="For the log, and to go on after an interruption; ROUTER.work by default."),
]
Workers = Annotated[int, typer.Option(min=0, max=64, help="Processes that prepare tasks meanwhile.")]

Existing = Annotated[
    Path | None,
    typer.Option("--from", metavar="ROUTER", help="Begin with this router: --posterior and --budgets add to it."),
]
Posterior = Annotated[
    Family | None,
    typer.Option("--posterior", help="Learn a posterior over routings, too, of this family.", show_default=False),
]
Objective = Annotated[
    Target | None,
    typer.Option(
        "--target",
        help="What a posterior is good for: the average of its likeliest routings, or one at random [average].",
        show_default=False,
    ),
]
WorstShare = Annotated[
    float, typer.Option("--cvar", metavar="RHO", help="The worst share of the tasks that counts, above 0 and up to 1.")
]
Window = Annotated[
    int, typer.Option(metavar="N", min=0, help="Last tasks whose losses say which are among the worst; 0: the step's.")
]
Divergence = Annotated[
    float | None,
    typer.Option("--kl", metavar="LAMBDA", help="Price of leaving the prior [0.01].", show_default=False),
]
PriorOption = Annotated[
    str | None,
    typer.Option(
        "--prior",
        metavar="uniform|cost=BETA|mean-cost=COST",
        help="What a posterior pays to leave. A routing costs the sources and experts that it opens [uniform].",
        show_default=False,
    ),
]
NTables = Annotated[
    int | None,
    typer.Option(
        "--tables",
        metavar="N",
        min=1,
        max=100_000,
        help="Tasks that a posterior learns from [200].",
        show_default=False,
    ),
]
CatalogueFile = Annotated[
    Path | None,
    typer.Option("--catalogue", metavar="FILE", help="Routings to choose among, as `smatter catalogue` wrote them."),
]


ForBudgets = Annotated[
    bool,
    typer.Option("--budgets", help="Train the experts so that they serve every budget, by what units cost."),
]
Profiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--profile", metavar="FILE", help="What units cost: from `smatter profile`. Repeatable.", show_default=False
    ),
]

N_STEPS = 600
"""Of a router's training, where nothing is said of them."""

N_TABLES = 200
"""Tasks that a posterior learns from, where nothing is said of them."""


@dataclass(frozen=True)
class Making:
    """How a router is made and trained."""

    steps: NSteps = None
    experts: NExperts = 0
    expert_share: ExpertShare = 0.25
    common_share: CommonShare = 0.0
    units: Units = "groups"
    rank: Rank = 8
    pooling: Pooled = "moments"
    tying: Tied = "global"
    weight_map: Map = "softmax"
    entropy: Entropy = 0.0
    distill: Distilled = None
    teacher: Teaching = "solver"

    def settings(self, seed: int, tail: "Tail") -> MetaSettings:
        """All of it, checked."""
        masks: dict[str, Any] = {"n_experts": self.experts, "common_share": self.common_share}
        masks |= {"units": self.units, "rank": self.rank}
        router = RouterSettings(self.pooling, weight_map=self.weight_map, tying=self.tying, **masks)
        imitation = _imitation(self.distill, self.teacher)
        return MetaSettings(
            router,
            self.steps or N_STEPS,
            imitation=imitation,
            entropy=self.entropy,
            expert_share=self.expert_share,
            cvar=tail.cvar,
            window=tail.window,
            seed=seed,
        )


@dataclass(frozen=True)
class Tail:
    """Which tasks count."""

    cvar: WorstShare = 1.0
    window: Window = 0


@dataclass(frozen=True)
class Pricing:
    """What experts may cost."""

    budgets: ForBudgets = False
    profile: Profiles = None

    def check(self, making: Making, existing: Path | None) -> None:
        """Refuse what nobody would use."""
        if self.profile and not self.budgets:
            raise InvalidSettings("--profile prices units for budgets: say --budgets, too")
        if self.budgets and not self.profile:
            raise InvalidSettings("--budgets needs what units cost: give --profile, which `smatter profile` writes")
        if self.budgets and existing is None and (not making.experts or making.units == "elements"):
            raise InvalidSettings("--budgets closes units of experts: say --experts M with --units groups, or --from")

    def training(self, making: Making, existing: Path | None, seed: int) -> BudgetTraining:
        """How experts are trained."""
        steps = {"n_steps": making.steps} if existing is not None and making.steps else {}
        return BudgetTraining(**steps, seed=seed)


@dataclass(frozen=True)
class Routings:
    """A posterior over routings, and what it is learnt from."""

    existing: Existing = None
    posterior: Posterior = None
    target: Objective = None
    kl: Divergence = None
    prior: PriorOption = None
    tables: NTables = None
    catalogue: CatalogueFile = None

    def check(self, making: Making, for_budgets: bool) -> None:
        """Refuse what nobody would use."""
        if self.existing is not None and replace(making, steps=None if for_budgets else making.steps) != Making():
            name = next(each.name for each in fields(making) if getattr(making, each.name) != each.default)
            option = OPTION.get(name, name.replace("_", "-"))
            raise InvalidSettings(f"--from leaves the router as it is: leave out --{option}, or --from")
        for name, value in vars(self).items():
            if value is not None and self.posterior is None and not (for_budgets and name == "existing"):
                option = "from" if name == "existing" else name
                what = " or budgets: say --budgets, or" if name == "existing" else ": say"
                raise InvalidSettings(f"--{option} is about a posterior{what} of which family with --posterior")

    def training(self, tail: Tail, seed: int) -> PosteriorTraining:
        """The objective, checked, and the prior."""
        assert self.parsed_prior
        given = {"target": self.target, "kl": self.kl}
        told: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return PosteriorTraining(cvar=tail.cvar, window=tail.window, seed=seed, **told)

    @property
    def parsed_prior(self) -> Prior:
        """The prior, checked."""
        return Prior.parse(self.prior or "uniform")

    @property
    def n_tables(self) -> int:
        """Tasks that a posterior learns from."""
        return self.tables or N_TABLES


OPTION = {"weight_map": "map"}
"""Options that are not called like their fields."""


def _imitation(texts: list[str] | None, teacher: TeacherName) -> Imitation:
    prices: dict[str, float] = {}
    for what, price in pairs(texts, "--distill").items():
        try:
            if what not in ("weights", "experts", "predictions"):
                raise ValueError
            prices[what] = float(price)
        except ValueError:
            raise InvalidSettings(
                f"--distill {what}={price} is not WHAT=PRICE: say weights=0.5, experts=0.5 or predictions=0.3"
            ) from None
    return Imitation(**prices, teacher=teacher)
