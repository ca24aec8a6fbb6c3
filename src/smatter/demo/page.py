"""The page that `smatter demo` ends in."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from smatter.library.check import Report
from smatter.library.library import Library
from smatter.report import page
from smatter.report.pictures import contact_sheet
from smatter.tasks.episode import Episode


@dataclass(frozen=True)
class Story:
    """One task and what became of it.

    Args:
        domains: titles of the domains that its classes are from.
        is_held_out: whether no source has seen these domains.
        weights: of each source, by the solver.
        accuracies: share of the queries named, by each source alone, their average, evidence and the solver.
        seconds: that the solver took.
    """

    domains: tuple[str, ...]
    is_held_out: bool
    weights: dict[str, float]
    accuracies: dict[str, float]
    seconds: float


def make_page(
    folder: str, library: Library, report: Report, stories: Mapping[str, Story], episodes: Mapping[str, Episode]
) -> str:
    """All of it on one page that needs no network."""
    assert report.similarity is not None
    cosines = dict(zip(report.similarity.names, report.similarity.overall_cosine, strict=True))
    shelf = [
        [entry.name, f"{entry.n_parameters:,}", f"{cosines[entry.name]:.3f}", entry.digest[:12]]
        for entry in library.manifest.sources
    ]
    sheets = {
        f"{name}: {' / '.join(story.domains)}{', held out' if story.is_held_out else ''}": _support(episodes[name])
        for name, story in stories.items()
    }
    weights: list[list[str | float]] = [
        [name, *(story.weights[source] for source in library.names)] for name, story in stories.items()
    ]
    methods = next(iter(stories.values())).accuracies
    accuracies: list[list[str | float]] = [
        [name, *(story.accuracies[method] for method in methods)] for name, story in stories.items()
    ]
    n_queries = sum(len(episode.query) for episode in episodes.values())
    seconds = max(story.seconds for story in stories.values())
    commands = "\n".join(
        f"smatter {line}"
        for line in (
            "suite show signs",
            "library check library",
            "adapt library tasks/thai/support -o thai.safetensors",
            "solve library tasks/mixed/support",
            "suite task signs --split test --role ood -o another",
            "compose library --weights latin=.5,syllables=.5 -o mine",
        )
    )
    return page.page(
        "A shelf of checkpoints, and tasks that nobody trained on",
        "A base network learnt from twelve domains of signs, and specialists went on from it on some of them each. "
        "Below are tasks with classes that none of them has seen. The solver mixes the weights of the networks until "
        "each labelled example is recognised from the others; the mixture is one network of the same size.",
        page.section(
            "What is known of each task",
            "All that the solver sees: a row of labelled examples for each of five classes.",
            page.pictures(sheets, 150),
        ),
        page.section(
            "What the solver makes of it",
            f"Weights of the sources, found in at most {seconds:.1f} s on one core.",
            page.table(["task", *library.names], weights),
        ),
        page.section(
            "How well that names the rest",
            f"Share of {n_queries} other pictures of these classes that are named correctly: by each source alone, by "
            "the plain average of all, by evidence routing, which needs no gradient, and by the solver. Nobody knows "
            "beforehand which source is best.",
            page.table(["task", *methods], accuracies),
        ),
        page.section(
            "The shelf",
            f"{report.n_distinct} of {len(library.names)} sources are distinct, and all are fit to mix.",
            page.table(["source", "parameters", "cosine to base", "contents"], shelf),
        ),
        page.section(
            "Go on from here",
            f"In {folder}, tasks holds what is shown here as folders of pictures, library the sources, and model the "
            "mixture for handwriting, a checkpoint that AutoModel loads.",
            page.code(commands),
        ),
    )


def _support(episode: Episode) -> bytes:
    """A row for each class."""
    order = np.argsort(episode.support.labels, kind="stable")
    n_shots = int(np.bincount(episode.support.labels).max())
    return contact_sheet(np.asarray(episode.support.inputs)[order], n_shots)
