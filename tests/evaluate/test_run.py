"""Scores against `adapt` and `predict` by hand; kept, resumed and shared out; failures stay where they are."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from small_routers import make_router
from tiny_libraries import N_CLASSES, texts_support

import smatter
from smatter import methods
from smatter.compose.mixture import Mixture
from smatter.errors import InvalidSettings, InvalidSupport, NotFound
from smatter.evaluate.compare import Comparison, Score
from smatter.evaluate.contenders import contenders
from smatter.evaluate.run import evaluate_methods
from smatter.evaluate.trials import DrawSettings, Trial, open_trials
from smatter.library.library import Library
from smatter.methods import NoSettings
from smatter.settings import MixSettings
from smatter.tasks.suite import Suite
from smatter.tasks.support import Support


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes that differ in colour, with much noise."""
    folder, generator = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for label, colour in (("rust", (150, 110, 90)), ("moss", (110, 140, 90)), ("sky", (100, 120, 150))):
        (folder / label).mkdir()
        for number in range(9):
            pixels = np.clip(np.array(colour) + generator.normal(0, 45, (8, 8, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{number}.png")
    return folder


def splits(pictures: Path, n_tasks: int = 2):
    return open_trials(pictures, draw=DrawSettings(n_tasks=n_tasks, n_shot=3))


def timeless(compared: Comparison) -> dict[str, Any]:
    data = compared.to_dict()
    for row in data["methods"]:
        row["seconds"] = None
    return data


def test_accuracies_are_those_of_adapt_and_predict(tiny_library: Library, pictures: Path) -> None:
    trials = splits(pictures)
    found = evaluate_methods(tiny_library, trials)
    assert {each.name for each in contenders(tiny_library)} == set(found.scores)
    for name, settings in (
        ("evidence", None),
        ("solver", None),
        ("average", None),
        ("average:predictions", MixSettings(mix="predictions")),
    ):
        for trial, task, score in zip(trials, found.tasks, found.scores[name], strict=True):
            adapted = smatter.adapt(tiny_library, trial.support, name.partition(":")[0], settings)
            named = adapted.predict(trial.queries)
            wanted = [path.parent.name for path in trial.queries]
            hits = [one == other for one, other in zip(named.names, wanted, strict=True)]
            assert isinstance(score, Score) and task.hits(score).tolist() == hits
            column = [named.class_names.index(label) for label in wanted]
            own = named.probabilities[torch.arange(len(column)), column]
            assert score.losses == pytest.approx((-own.log()).tolist(), rel=1e-5)
            assert score.query_passes == (3 if "predictions" in name else 1)
            assert score.forwards == adapted.fit.passes.forwards + score.query_passes


def test_sources_alone_are_their_own_networks(topics: Library) -> None:
    """Accuracy of a source by its features and prototypes, without any of the pipeline."""
    from smatter.live.mixture import LiveMixture

    support, queries = texts_support("food", n_shot=3), texts_support("food", n_shot=5, seed=9)
    found = evaluate_methods(topics, [Trial("t", "", support, queries.inputs, queries.labels)], ["sources"])
    assert set(found.scores) == {"base", "source:law", "source:food", "average"}
    live = LiveMixture(topics)
    for name, source in (("base", "base"), ("source:food", "food"), ("source:law", "law")):
        live.compose(Mixture.of({source: 1.0}))
        shots, asked = (live.features(live.prepare(each.inputs, "texts")) for each in (support, queries))
        shots = torch.nn.functional.normalize(shots, dim=1)
        means = torch.stack([shots[torch.tensor(support.labels) == label].mean(dim=0) for label in range(N_CLASSES)])
        cosines = torch.nn.functional.normalize(asked, dim=1) @ torch.nn.functional.normalize(means, dim=1).T
        (score,) = found.scores[name]
        assert isinstance(score, Score) and list(score.named) == cosines.argmax(dim=1).tolist()
    by_name = {each.name: each.accuracy.mean for each in found.standings if each.accuracy}
    assert by_name["source:food"] > by_name["base"] and found.unit == "queries"


def test_a_run_that_was_stopped_goes_on_and_ends_alike(tiny_library: Library, pictures: Path, tmp_path: Path) -> None:
    trials, wanted = splits(pictures), ["evidence", "greedy_soup"]
    whole = evaluate_methods(tiny_library, trials, wanted)
    calls: list[str] = []

    def stop(amount: float, words: str = "", /) -> None:
        calls.append(words)
        if len(calls) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate_methods(tiny_library, trials, wanted, cache=tmp_path, progress=stop)
    assert len(list(tmp_path.iterdir())) == 5
    calls.clear()
    resumed = evaluate_methods(
        tiny_library, trials, wanted, cache=tmp_path, progress=lambda _, words="": calls.append(words)
    )
    assert len(calls) == 8 and calls[:5] == [""] * 5 and all(calls[5:]), "what was kept is not done again"
    assert timeless(resumed) == timeless(whole)
    again = evaluate_methods(tiny_library, trials, wanted[::-1], cache=tmp_path)
    assert json.dumps(again.to_dict()) == json.dumps(resumed.to_dict()), "to the byte, times included"


def test_a_damaged_or_foreign_score_is_not_used(tiny_library: Library, pictures: Path, tmp_path: Path) -> None:
    trials = splits(pictures, 1)
    first = evaluate_methods(tiny_library, trials, ["base"], cache=tmp_path)
    for number, file in enumerate(sorted(tmp_path.iterdir())):
        file.write_text(["{", '{"named": []}'][number % 2])
    assert timeless(evaluate_methods(tiny_library, trials, ["base"], cache=tmp_path)) == timeless(first)
    before = {file.name for file in tmp_path.iterdir()}
    evaluate_methods(tiny_library.only(["s1"]), trials, ["base"], cache=tmp_path)
    assert len({file.name for file in tmp_path.iterdir()} - before) == 2, "another library has other scores"


def test_processes_share_the_work_and_change_nothing(tiny_library: Library, pictures: Path, tmp_path: Path) -> None:
    trials, wanted = splits(pictures), ["evidence", "solver:predictions"]
    alone = evaluate_methods(tiny_library, trials, wanted)
    shared = evaluate_methods(tiny_library, trials, wanted, n_workers=2, cache=tmp_path)
    assert timeless(alone) == timeless(shared) and len(list(tmp_path.iterdir())) == 8


def test_what_is_wrong_with_the_data_is_told_by_processes_too(topics: Library, pictures: Path) -> None:
    for n_workers in (1, 2):
        with pytest.raises(InvalidSupport, match="takes texts, not images"):
            evaluate_methods(topics, splits(pictures), ["base"], n_workers=n_workers)


def test_a_method_that_raises_harms_no_other(
    tiny_library: Library, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = splits(pictures)
    sound = evaluate_methods(tiny_library, trials, ["evidence"])

    def greedy_soup(*_: Any) -> None:
        raise ZeroDivisionError("no\nsoup today")

    monkeypatch.setattr("smatter.methods.greedy_soup.greedy_soup", methods.method(NoSettings)(greedy_soup))
    found = evaluate_methods(tiny_library, trials, ["greedy_soup", "evidence"], cache=tmp_path)
    failed = found.standings[-1]
    assert (failed.name, failed.accuracy) == ("greedy_soup", None)
    assert failed.failure == "failed on 2 of 2 tasks: ZeroDivisionError: no soup today"
    assert timeless(found)["methods"][:-1] == timeless(sound)["methods"]
    assert len(list(tmp_path.iterdir())) == 6, "a failure is tried again next time"
    monkeypatch.undo()
    assert not evaluate_methods(tiny_library, trials, ["greedy_soup"], cache=tmp_path).standings[-1].failure


def test_if_every_method_fails_that_is_an_error(tiny_library: Library, pictures: Path) -> None:
    trial = splits(pictures)[0]
    lost = Trial("t", "", trial.support, (pictures / "gone.png",) * 2, (0, 1))
    object.__setattr__(lost, "digest", "0" * 64)
    with pytest.raises(InvalidSettings, match=r"every method failed.*gone\.png does not exist"):
        evaluate_methods(tiny_library, [lost], ["base"])
    with pytest.raises(InvalidSettings, match="no task"):
        evaluate_methods(tiny_library, [])


def test_the_order_of_examples_sources_and_methods_does_not_matter(tiny_library: Library, pictures: Path) -> None:
    trial = splits(pictures)[0]
    order = torch.randperm(len(trial.support), generator=torch.Generator().manual_seed(0)).tolist()
    shuffled = Support(
        tuple(trial.support.inputs[index] for index in order),
        tuple(trial.support.labels[index] for index in order),
        trial.support.class_names,
        "images",
    )
    manifest = tiny_library.manifest.model_copy(update={"sources": tiny_library.manifest.sources[::-1]})
    names = ["evidence", "evidence:predictions", "greedy_soup", "sources"]
    one = evaluate_methods(tiny_library, [trial], names)
    turned = Trial(trial.name, "", shuffled, trial.queries, trial.truth, trial.places)
    other = evaluate_methods(Library(tiny_library.folder, manifest), [turned], names[::-1])
    assert timeless(one) == timeless(other)


def test_a_router_takes_part_and_its_passes_do_not_depend_on_what_was_before(
    tiny_library: Library, tiny_suite: Suite, pictures: Path, tmp_path: Path
) -> None:
    """The router has never seen one of the sources, which takes a pass of the probe set, once and for no task."""
    router, _ = make_router(tiny_library.only(["s1"]), tiny_suite, tmp_path / "router")
    assert not {"router", "router:predictions"} & {each.name for each in contenders(tiny_library)}
    first, second = splits(pictures)
    one, other = (
        evaluate_methods(tiny_library, each, ["router"], router=router) for each in ([first], [second, first])
    )
    assert one.complete["router"][0].forwards == other.complete["router"][1].forwards
    adapted = smatter.adapt(tiny_library, second.support, router=router)
    named = [adapted.class_names.index(name) for name in adapted.predict(second.queries).names]
    assert list(other.complete["router"][0].named) == named


def names_of(library: Library, wanted: Sequence[str], **options: Any) -> list[str]:
    return [each.name for each in contenders(library, wanted, **options)]


def test_every_method_takes_part_but_private_ones(tiny_library: Library) -> None:
    everybody = names_of(tiny_library, ["all"], has_router=True)
    assert everybody[:3] == ["base", "source:s1", "source:s2"]
    assert set(methods.names()) - set(everybody) == {"fixed", "private"}
    assert {"average:predictions", "evidence:predictions", "router:predictions"} <= set(everybody)
    assert names_of(tiny_library, ["solver"]) == names_of(tiny_library, ["solver", "base", "solver"]) == [
        "base", "average", "solver",
    ]  # fmt: skip
    for wanted, remedy in (("evidense", "like 'evidence'"), ("router", "--router"), ("private", "leave it out")):
        with pytest.raises(InvalidSettings, match=remedy):
            contenders(tiny_library, [wanted])


def test_bayes_takes_part_in_all_only_with_a_posterior(tiny_library: Library) -> None:
    options = {"has_router": True, "has_posterior": False}
    everybody, without = (set(names_of(tiny_library, ["all"], **each)) for each in ({"has_router": True}, options))
    assert everybody - without == {"bayes"}
    assert "bayes" in names_of(tiny_library, ["bayes"], **options)


def test_places_that_are_none_are_refused(tiny_library: Library, pictures: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="smatter train"):
        evaluate_methods(tiny_library, splits(pictures), router=tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(smatter.SmatterError, match="give another --cache"):
        evaluate_methods(tiny_library, splits(pictures), cache=tmp_path / "file")
