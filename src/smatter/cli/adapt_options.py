"""Options of `smatter adapt` and `smatter solve`, by what they are about."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from smatter.budget.wish import parse_budget
from smatter.cli.output import Json
from smatter.errors import InvalidSettings, NotFound
from smatter.settings import MAX_STEPS

Folder = Annotated[Path, typer.Argument(metavar="LIB", help="The library's folder.", show_default=False)]
EXAMPLES = "Labelled examples: a folder of class folders with images, or a .csv or .jsonl file of text and label."
Support = Annotated[Path, typer.Argument(metavar="SUPPORT", help=EXAMPLES, show_default=False)]
MaybeSupport = Annotated[Path | None, typer.Argument(metavar="SUPPORT", help=EXAMPLES, show_default=False)]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="RECIPE", help="The recipe file; without it none is written.")
]
Way = Annotated[
    str | None,
    typer.Option(
        "--method",
        metavar="NAME",
        help="How to adapt: a name that `smatter methods` lists. By default router with --router, else evidence.",
        show_default=False,
    ),
]
Router = Annotated[Path | None, typer.Option(metavar="ROUTER", help="A router that `smatter train` wrote.")]
Told = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="A setting of the method: `smatter methods` lists them. Repeatable."
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        help="Standard errors by which a source may be worse before its weight falls by e. Default: 1 for up to four "
        "sources, less for more.",
        show_default=False,
    ),
]
MaxSources = Annotated[
    int | None, typer.Option(metavar="K", min=1, help="The most sources with weight: those that explain best.")
]
MixOption = Annotated[
    Literal["weights", "predictions", "both"] | None,
    typer.Option(
        "--mix",
        help="Average the sources' weights [weights], their predictions, or those and the mixed network's.",
        show_default=False,
    ),
]
PassesOption = Annotated[
    str | None,
    typer.Option("--passes", metavar="K", help="With --mix: the most networks that an input passes through."),
]
BranchOption = Annotated[
    str | None,
    typer.Option("--branch", metavar="MODULE", help="With --mix: share the mixed weights, and a pass, up to here."),
]
FixedWeights = Annotated[
    str | None,
    typer.Option(
        "--weights", metavar="WEIGHTS", help="Take these, whatever the examples are: uniform, a source, or A=.7,B=.3."
    ),
]
NoExperts = Annotated[bool, typer.Option("--no-experts", help="With --router: leave its residual experts closed.")]
Head = Annotated[
    Literal["prototype", "ridge", "logistic", "linear"] | None,
    typer.Option(
        "--head", help="How classes are told apart [prototype]; linear is the checkpoints' own.", show_default=False
    ),
]
Refit = Annotated[
    Path | None,
    typer.Option("--refit", metavar="RECIPE", help="Fit a task again, as this recipe was, on the sources of today."),
]
Renormalise = Annotated[
    bool, typer.Option("--renormalise", help="With --refit and no SUPPORT: share out the weight of lost sources.")
]
SelfContained = Annotated[
    bool, typer.Option("--self-contained", help="Expand experts in the recipe: larger, and it needs no router.")
]
Queries = Annotated[
    Path | None,
    typer.Option(
        "--queries",
        metavar="INPUTS",
        help="Inputs without labels, to be named later: prototypes learn from them, and some scores of --abstain.",
    ),
]
Allowed = Annotated[
    list[str] | None,
    typer.Option(
        "--budget",
        metavar="BUDGET",
        help="The most that a forward pass may cost: 8ms, 8ms@p95, 1.1x, 12MB. Needs --profile. Repeatable: all hold.",
    ),
]
Profiles = Annotated[
    list[Path] | None,
    typer.Option("--profile", metavar="FILE", help="By which a budget is kept; `smatter profile` wrote it."),
]
CacheFolder = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Keep the result there, and find it again for the same task.")
]
DriftFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Count there how tasks differ from those that the router was calibrated on, and warn."
    ),
]
OnDrift = Annotated[
    str | None,
    typer.Option(
        metavar="WHAT",
        help="With --drift: what is done while tasks differ: warn [default], base, or a method without a router.",
        show_default=False,
    ),
]
Diagnosed = Annotated[bool, typer.Option("--diagnostics", help="Say what the model is made of.")]
Page = Annotated[
    Path | None, typer.Option("--report", metavar="PAGE", help="Write an HTML page on the model, with pictures.")
]
Ruling = Annotated[
    str | None,
    typer.Option(
        "--decision",
        metavar="RULE",
        help="Decide by the router's posterior over routings: mean, map, point, gibbs:K, top:K or half:K [half:3].",
        show_default=False,
    ),
]
Abstaining = Annotated[
    str | None,
    typer.Option(
        "--abstain",
        metavar="SCORE[@coverage=.8|@risk=.3]",
        help="When a routing is too unsure: a score, and the share of calibration tasks that is answered [0.8], or "
        "their error.",
        show_default=False,
    ),
]
Fallback = Annotated[
    str | None,
    typer.Option(
        "--fallback",
        metavar="WHAT",
        help="With --abstain: what is done then: escalate to all sources, base, prior-mean, or a source's name "
        "[escalate].",
        show_default=False,
    ),
]
CatalogueFile = Annotated[
    Path | None,
    typer.Option(
        "--catalogue",
        metavar="FILE",
        help="Choose one of these mixtures, as `smatter catalogue` wrote them: many tasks share few networks.",
    ),
]
Replace = Annotated[bool, typer.Option("--replace", help="Overwrite an existing recipe or page.")]
PerModule = Annotated[bool, typer.Option("--per-module", help="Weights for each module apart.")]
NElements = Annotated[
    int | None, typer.Option(metavar="K", min=1, help="Add a residual that corrects this many parameters.")
]
NModules = Annotated[
    int | None, typer.Option(metavar="K", min=1, help="Add a residual that corrects this many modules.")
]
NSteps = Annotated[
    int, typer.Option(metavar="N", min=0, max=MAX_STEPS, help="Steps, for the weights as well as for a residual.")
]


@dataclass(frozen=True)
class Fitting:
    """How a task is fitted: by which method, asking whom, with which head."""

    method: Way = None
    router: Router = None
    told: Told = None
    weights: FixedWeights = None
    no_experts: NoExperts = False
    mix: MixOption = None
    passes: PassesOption = None
    branch: BranchOption = None
    head: Head = None
    queries: Queries = None
    cache: CacheFolder = None

    @property
    def by_name(self) -> dict[str, str | None]:
        """Settings of the method that have an option of their own."""
        experts = "no" if self.no_experts else None
        return {
            "mix": self.mix, "passes": self.passes, "branch": self.branch, "weights": self.weights, "experts": experts
        }  # fmt: skip

    @property
    def default_method(self) -> str:
        """How to adapt where that is not said."""
        return "fixed" if self.weights is not None else "evidence" if self.router is None else "router"


@dataclass(frozen=True)
class Deciding:
    """What is asked of a posterior over routings; any of it asks for the method `bayes`."""

    decision: Ruling = None
    abstain: Abstaining = None
    fallback: Fallback = None
    catalogue: CatalogueFile = None

    def check(self, fitting: Fitting) -> None:
        """Refuse what contradicts it."""
        asked = next((f"--{name}" for name, value in vars(self).items() if value is not None), None)
        if asked and fitting.method not in (None, "bayes"):
            raise InvalidSettings(f"{asked} asks for the method bayes, and --method for another: leave out one of them")
        for name, value in fitting.by_name.items():
            if asked and value is not None:
                raise InvalidSettings(f"{asked} and --{name} both say which networks are run: leave out one of them")
        if self.fallback is not None and self.abstain is None:
            raise InvalidSettings("--fallback is for routings that are too unsure: say when with --abstain SCORE")

    @property
    def by_name(self) -> dict[str, str | None]:
        """Settings of the method, by option."""
        catalogue = None if self.catalogue is None else str(self.catalogue)
        return {"decision": self.decision, "abstain": self.abstain, "fallback": self.fallback, "catalogue": catalogue}

    @property
    def is_asked(self) -> bool:
        """Whether anything is asked."""
        return self != Deciding()


@dataclass(frozen=True)
class Spending:
    """What the task's model may cost, and on which devices."""

    budget: Allowed = None
    profile: Profiles = None

    def __post_init__(self) -> None:
        for words in self.budget or ():
            parse_budget(words)
        for path in self.profile or ():
            if not path.is_file():
                raise NotFound(f"there is no profile {path}: make one with `smatter profile`")


@dataclass(frozen=True)
class Before:
    """A task that was fitted before."""

    refit: Refit = None
    renormalise: Renormalise = False


@dataclass(frozen=True)
class Watching:
    """Whether tasks are still like those of calibration."""

    drift: DriftFile = None
    on_drift: OnDrift = None


@dataclass(frozen=True)
class Results:
    """What is written, and what is told."""

    output: Output = None
    report: Page = None
    replace: Replace = False
    diagnostics: Diagnosed = False
    as_json: Json = False
