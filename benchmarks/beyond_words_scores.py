"""What `beyond_words.py` asks of one task of Words: models of one pass and of several, with and without its queries."""

from collections.abc import Sequence
from pathlib import Path

from beyond_scores import TRANSDUCED, Look, Voices, all_features, hindsight, peers, transduced
from signs_tasks import Scores, trained
from words_tasks import live, tasks

from smatter.methods.router import RoutedSettings, router
from smatter.tasks.episode import Episode


def models(look: Look, folder: Path) -> dict[str, Voices]:
    """What a router makes of a task, in one pass and in several."""
    asked = trained(folder)
    asked.check_fits(look.network)

    def routed(**how: object) -> Voices:
        return look.voices(router(look.network, look.task, RoutedSettings(router=asked, **how)))

    return {
        "router": routed(),
        "router without evidence": routed(evidence=False),
        "router predictions": routed(mix="predictions"),
        "router predictions without evidence": routed(mix="predictions", evidence=False),
        "router predictions 2": routed(mix="predictions", passes=2),
        "both": routed(mix="both"),
        "both 4": routed(mix="both", passes=4),
    }


def score_models(look: Look, routers: Sequence[Path], index: int, solved: bool) -> Scores:
    """All figures of one task.

    Args:
        look: the task.
        routers: one for each seed.
        index: the task's number.
        solved: whether the solver is asked too.
    """
    scores: Scores = {}
    for label, voices in peers(look, index, solved).items():
        scores |= look.figures_of(label, voices)
        if label in TRANSDUCED:
            scores |= transduced(look, label, voices, index)
    scores |= all_features(look) | hindsight(look, index)
    for seed, folder in enumerate(routers):
        for label, voices in models(look, folder).items():
            scores |= look.figures_of(f"{label} seed {seed}", voices)
            if label in TRANSDUCED and not seed:
                scores |= transduced(look, label, voices, index)
    return scores


def score(routers: Sequence[Path], solve_every: int, name: str, index: int) -> Scores:
    """All figures of a task of a frozen list; the solver's for one in so many."""
    network, episode = live(), tasks(name).episode(index)
    network.known.clear()  # tasks hardly share texts
    look = Look(network, episode)
    return {"domain": domain_of(episode)} | score_models(look, routers, index, solved=index % solve_every == 0)


def domain_of(episode: Episode) -> int:
    """The number of its domain, the first of several."""
    return int(episode.query.domains.min())
