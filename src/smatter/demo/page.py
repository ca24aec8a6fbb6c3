"""The page that `smatter demo` ends in."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from smatter.adapted import Adapted
from smatter.library.check import Report
from smatter.library.library import Library
from smatter.report import page
from smatter.report.adapted import diagnostic_parts
from smatter.report.pictures import contact_sheet
from smatter.route.certificates import Certificate
from smatter.scores.intervals import Interval, clustered_interval
from smatter.tasks.episode import Episode

STRONG = 0.1
"""The least weight of an expert that is worth telling."""
COMMANDS = (
    "suite show signs",
    "library check library",
    "adapt library tasks/thai/support --router router -o thai.safetensors",
    "predict thai.safetensors tasks/thai/query --library library --router router --sets 0.9",
    "adapt library tasks/mixed/support --router router --method refined --report mixed.html",
    "solve library tasks/mixed/support",
    "suite task signs --split test --role ood -o another",
    "compose library --weights latin=.5,syllables=.5 -o mine",
)
"""What can be done in the demonstration's folder."""


@dataclass(frozen=True)
class Story:
    """One task and what became of it.

    Args:
        domains: titles of the domains that its classes are from.
        is_held_out: whether no source has seen these domains.
        weights: of each source, by the router.
        accuracies: share of the queries named, by router, solver, evidence, the average, and each source alone.
        best_source: the one that explains the examples best, which is whom one would take.
        likeness: how much it is like each group of the router's probe set.
        experts: weight of each residual expert, by what it has learnt; the rest is the null expert's.
        seconds: that the router took, with a pass of each source.
        solver_seconds: that the solver took.
        decision: what a posterior over routings says of it; empty where the router has none.
    """

    domains: tuple[str, ...]
    is_held_out: bool
    weights: dict[str, float]
    accuracies: dict[str, float]
    best_source: str
    likeness: dict[str, float]
    experts: dict[str, float]
    seconds: float
    solver_seconds: float
    decision: str = ""

    @property
    def headline(self) -> dict[str, float]:
        """What Smatter makes of the task, in one pass of each query or several, and what one would do instead."""
        found = self.accuracies
        return {
            "several networks": found["predictions"],
            "one network": found["router"],
            "mean prediction": found["average of predictions"],
            "mean weights": found["average"],
            "best checkpoint": found[self.best_source],
            "base": found["base"],
        }

    @property
    def corrected_by(self) -> str:
        """The experts that it opens, the strongest first; nobody is the null expert."""
        shares = {**self.experts, "nobody": 1 - sum(self.experts.values())}
        strong = sorted(((share, name) for name, share in shares.items() if share >= STRONG), reverse=True)
        return ", ".join(f"{name} {share:.0%}" for share, name in strong)


def _certificate(certificate: Certificate) -> str:
    """What calibration tasks prove of the router; not of these tasks, which are of other classes."""
    rows = [[each.about, f"{each.estimate:.3f}", f"{each.value:.3f}"] for each in certificate.bounds]
    return page.section(
        "How wrong it may be",
        f"What {certificate.n} calibration tasks prove of one network by the router: {certificate.promise}. The tasks "
        "above are of other classes, and most of them of other domains, so of them nothing is promised.",
        page.table(["what", "measured", "at most"], rows),
    )


def make_page(
    folder: str,
    library: Library,
    report: Report,
    stories: Mapping[str, Story],
    episodes: Mapping[str, Episode],
    name_explained: str,
    explained: Adapted,
    certificates: Sequence[Certificate],
) -> str:
    """All of it on one page that needs no network.

    Args:
        folder: where the page and the rest are.
        library: the sources.
        report: what was found in it.
        stories: of each task.
        episodes: the tasks.
        name_explained: one of them.
        explained: its model, to be looked into.
        certificates: of the router.
    """
    sheets = {
        f"{name}: {' / '.join(story.domains)}{', held out' if story.is_held_out else ''}": _support(episodes[name])
        for name, story in stories.items()
    }
    return page.page(
        "A shelf of checkpoints, and tasks that nobody trained on",
        "A base network learnt from twelve domains of signs, and specialists went on from it on some of them each. "
        "Below are tasks with classes that none of them has seen, and five labelled examples of each class. A router, "
        "trained once, says from these examples how to mix the weights of the networks; the mixture is one network of "
        "the same size.",
        _gains(stories, sum(len(episode.query) for episode in episodes.values())),
        *map(_certificate, certificates),
        page.section(
            "What is known of each task",
            "All that is seen of it beforehand: a row of labelled examples for each of five classes.",
            page.pictures(sheets, 150),
        ),
        *_routings(library, stories),
        _all_ways(stories),
        page.section(
            f"A closer look: {name_explained}",
            "The weights that the router gave, refined by Frank-Wolfe steps on the examples.",
            *diagnostic_parts(explained),
        ),
        _shelf(library, report),
        page.section(
            "Go on from here",
            f"In {folder}, tasks holds what is shown here as folders of pictures, library the sources, router the "
            "router, and model the mixture for handwriting, a checkpoint that AutoModel loads.",
            page.code("\n".join(f"smatter {line}" for line in COMMANDS)),
        ),
    )


def _gains(stories: Mapping[str, Story], n_queries: int) -> str:
    """Accuracy beside what one would do instead."""
    labels = tuple(next(iter(stories.values())).headline)

    def over_tasks(value: Callable[[dict[str, float]], float]) -> Interval:
        return clustered_interval([value(story.headline) for story in stories.values()], list(stories))

    means = {label: over_tasks(itemgetter(label)) for label in labels}
    gain = over_tasks(lambda found: 100 * (found["one network"] - found["mean weights"]))
    return page.section(
        "What it does for you",
        f"Share of {n_queries} other pictures that are named correctly, mean over these {len(stories)} tasks with "
        "95 % intervals. One network is the router's mixture; several are the sources, whose predictions it "
        "weighs, a pass each. Without a router one would average what all checkpoints predict, a pass each too, or "
        "their weights, or take the one that explains the examples best, or the base. One network is "
        f"{gain} points above the average of weights, task by task.",
        page.bar_chart(
            {label: each.mean for label, each in means.items()},
            "named correctly, with intervals over tasks",
            {label: each.half for label, each in means.items()},
        ),
        page.table(["task", *labels], [[name, *story.headline.values()] for name, story in stories.items()], "row"),
    )


def _routings(library: Library, stories: Mapping[str, Story]) -> list[str]:
    """What the router makes of each task: weights, likeness and experts, decisions."""
    told = stories.items()
    seconds = max(story.seconds for story in stories.values())
    solver_seconds = max(story.solver_seconds for story in stories.values())
    decisions = [[name, story.decision] for name, story in told if story.decision]
    return [
        page.section(
            "What the router makes of it",
            f"Weights of the sources. The router takes {seconds:.1f} s on one core, one pass of the examples through "
            f"each source included; the solver takes up to {solver_seconds:.0f} s.",
            page.table(
                ["task", *library.names],
                [[name, *map(story.weights.__getitem__, library.names)] for name, story in told],
            ),
        ),
        page.section(
            "What it finds them like, and who corrects the mixture",
            "The router compares the examples with a few pictures of each domain that it knows. Residual experts "
            "correct parameters after mixing. Each is named by what it has learnt, renderings that no source has seen: "
            "negatives, wallpaper and posters are such tasks. The others need no correction.",
            page.table(
                ["task", "is like", "corrected by"],
                [[name, _likest(story.likeness), story.corrected_by] for name, story in told],
            ),
        ),
        *_decided(decisions),
    ]


def _all_ways(stories: Mapping[str, Story]) -> str:
    """Every way on every task."""
    ways = next(iter(stories.values())).accuracies
    return page.section(
        "All ways beside each other",
        "Share of the other pictures that are named correctly: by the router, told how each source does; by what the "
        "sources predict, each of them a pass, with the router's weights; by the router after one pass of the base "
        "alone; by the solver, which finds weights from nothing, with gradients; by evidence routing, which needs no "
        "gradient and no training; by the plain average of all sources, and of their predictions; and by each of them "
        "alone. Nobody knows beforehand which source is best.",
        page.table(
            ["by", *stories], [[way, *(story.accuracies[way] for story in stories.values())] for way in ways], "column"
        ),
    )


def _shelf(library: Library, report: Report) -> str:
    """The sources, and how far they are from the base."""
    assert report.similarity is not None
    cosines = dict(zip(report.similarity.names, report.similarity.overall_cosine, strict=True))
    rows = [
        [entry.name, f"{entry.n_parameters:,}", f"{cosines[entry.name]:.3f}", entry.digest[:12]]
        for entry in library.manifest.sources
    ]
    return page.section(
        "The shelf",
        f"{report.n_distinct} of {len(library.names)} sources are distinct, and all are fit to mix.",
        page.table(["source", "parameters", "cosine to base", "contents"], rows),
    )


def _decided(rows: Sequence[Sequence[str]]) -> list[str]:
    """What was decided for each task, if anything was."""
    text = "The router has a posterior over routings, which says what networks are run and how sure that is."
    return [page.section("What is decided", text, page.table(["task", "decision"], rows))] if rows else []


def _likest(likeness: Mapping[str, float]) -> str:
    best = sorted(likeness.items(), key=lambda pair: -pair[1])[:2]
    return ", ".join(f"{name} {share:.0%}" for name, share in best)


def _support(episode: Episode) -> bytes:
    """A row for each class."""
    order = np.argsort(episode.support.labels, kind="stable")
    n_shots = int(np.bincount(episode.support.labels).max())
    return contact_sheet(np.asarray(episode.support.inputs)[order], n_shots)
