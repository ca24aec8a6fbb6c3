"""What the benchmark on Words asks of a task, against what one computes by hand; and how its tasks are paired."""

import sys
from pathlib import Path

import pytest
import torch
from tiny_libraries import topic_library, topic_suite
from torch.nn.functional import normalize

from smatter.compose.mixture import Mixture
from smatter.live.mixture import LiveMixture
from smatter.route.probe import draw_probe
from smatter.route.store import write_router
from smatter.settings.training import MetaSettings, RouterSettings
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.train.trainee import Trainee

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "benchmarks"), str(ROOT / "tools" / "common")]

import beyond_words  # noqa: E402
from beyond_scores import Look, joined  # noqa: E402
from beyond_words_scores import score_models  # noqa: E402
from remembering import Remembering  # noqa: E402


def test_models_of_a_task_are_those_one_computes_by_hand(tmp_path: Path) -> None:
    library, suite = topic_library(tmp_path), topic_suite()
    network, plain = Remembering(library), LiveMixture(library)
    settings = MetaSettings(RouterSettings(width=8))
    write_router(tmp_path / "router", Trainee(network, draw_probe(suite), settings).finish({}))
    episode = Sampler(suite, SamplerSettings("test", n_way=(4, 4), n_shot=(2, 2), n_query=6), 5).episode(0)
    scores = score_models(Look(network, episode), [tmp_path / "router"], 0, solved=True)

    def cosines(mixture: Mixture) -> torch.Tensor:
        plain.compose(mixture)
        support, queries = (
            normalize(plain.features(plain.examples(part.inputs)), dim=1) for part in (episode.support, episode.query)
        )
        labels = torch.from_numpy(episode.support.labels)
        prototypes = torch.stack([support[labels == label].sum(dim=0) for label in range(4)])
        return queries @ normalize(prototypes, dim=1).T

    def right(found: torch.Tensor) -> float:
        return 100 * float((found.argmax(dim=1) == torch.from_numpy(episode.query.truth)).double().mean())

    each = [cosines(Mixture.of({name: 1.0})) for name in library.names]
    assert scores["uniform predictions"] == pytest.approx(right(sum(each)))
    assert scores["uniform"] == pytest.approx(right(cosines(Mixture.of(dict.fromkeys(library.names, 1 / 3)))))
    assert scores["best source in hindsight"] == pytest.approx(max(map(right, each)))
    assert scores["base"] == pytest.approx(right(each[library.names.index("base")]))
    assert {label for label in beyond_words.PASSES if not {label, f"{label} seed 0"} & scores.keys()} == set()


def test_texts_of_unlike_length_are_joined_without_changing_what_is_read_of_them(tmp_path: Path) -> None:
    network = LiveMixture(topic_library(tmp_path))
    short, long = network.examples(("law0a", "food1b")), network.examples(("law0a food1b law2c law3a", "law1a law1b"))
    both = network.features(joined(short, long))
    torch.testing.assert_close(both, torch.cat([network.features(short), network.features(long)]))


def test_differences_are_over_tasks_that_have_both_and_means_of_seeds() -> None:
    tasks = [
        {"domain": 0, "uniform": 50.0, "router seed 0": 60.0, "router seed 1": 50.0, "solver": 70.0},
        {"domain": 1, "uniform": 40.0, "router seed 0": 40.0, "router seed 1": 42.0},
    ]
    found = {"id-1": tasks[:1], "ood-1": tasks[1:]}
    assert beyond_words.difference(found, ["id-1", "ood-1"], "router", "uniform").mean == pytest.approx(3.0)
    assert beyond_words.difference(found, ["id-1", "ood-1"], "solver", "router").mean == pytest.approx(15.0)
    assert beyond_words.mean(found, ["ood-1"], "router") == pytest.approx(41.0)
