"""Decisions by a posterior: the networks of each rule, thresholds and fallbacks, recipes, the cache, mistakes."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from made_certificates import certificate
from small_routers import make_decided

import smatter
from smatter.adapted import Adapted
from smatter.compose.records import Decision
from smatter.errors import InvalidCertificate, InvalidRouter, InvalidSettings
from smatter.library.library import Library
from smatter.library.recipes import read_recipe
from smatter.live.mixture import LiveMixture
from smatter.methods.bayes import BayesSettings
from smatter.methods.router import RoutedSettings
from smatter.route.certificates import Guarantee, Selected, sources_digest
from smatter.route.store import TrainedRouter, read_router
from smatter.tasks.suite import Suite
from smatter.tasks.support import Support

RULES = ["point", "mean", "map", "gibbs:3", "top:2", "half:3"]


@pytest.fixture(scope="module")
def given(
    tiny_library: Library, tiny_suite: Suite, tmp_path_factory: pytest.TempPathFactory
) -> tuple[TrainedRouter, Support]:
    """A router with a posterior, and a task."""
    folder, support = make_decided(tiny_library, tiny_suite, tmp_path_factory.mktemp("bayes") / "router")
    return read_router(folder), support


def adapted(library: Library, given: tuple[TrainedRouter, Support], **how: object) -> Adapted:
    router, support = given
    return smatter.adapt(library, support, "bayes", BayesSettings(router=router, **how))


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_gives_a_model_that_predicts_and_says_what_it_is(tiny_library, given, rule: str) -> None:
    found = adapted(tiny_library, given, decision=rule)
    decision = found.recipe.notes.decision
    assert decision and decision.outcome == "routed" and decision.rule == rule
    assert decision.passes == 1 + len(found.fit.members) == found.to_dict()["query_passes"]
    assert len(found.predict(given[1].inputs)) == len(given[1].labels)


def test_the_point_is_what_the_router_method_gives(tiny_library, given) -> None:
    router, support = given
    plain = smatter.adapt(tiny_library, support, "router", RoutedSettings(router=router))
    found = adapted(tiny_library, given, decision="point")
    ours, theirs = (each.predict(support.inputs).probabilities for each in (found, plain))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_half_of_the_weight_is_the_points_and_members_open_its_experts(tiny_library, given) -> None:
    found = adapted(tiny_library, given, decision="half:3")
    assert found.recipe.own_weight == pytest.approx(0.5) and len(found.fit.members) == 3
    assert sum(member.weight for member in found.fit.members) == pytest.approx(0.5)
    point = adapted(tiny_library, given, decision="point")
    assert found.fit.experts == point.fit.experts


def limit_of(library: Library, given: tuple[TrainedRouter, Support], is_sure: bool, **how: object) -> Adapted:
    """A task whose score is below all of the calibration's, or above."""
    router, support = given
    assert router.posterior
    known = router.posterior.calibrations
    moved = {
        rule: replace(each, scores={name: values + (100 if is_sure else -100) for name, values in each.scores.items()})
        for rule, each in known.items()
    }
    other = replace(router, posterior=replace(router.posterior, calibrations=moved))
    return adapted(library, (other, support), abstain="entropy@coverage=0.8", **how)


def test_a_sure_routing_is_kept_and_an_unsure_one_escalates(tiny_library, given) -> None:
    sure, unsure = (limit_of(tiny_library, given, is_sure, decision="half:3") for is_sure in (True, False))
    for each, outcome in ((sure, "routed"), (unsure, "escalated")):
        decision = each.fit.decision
        assert decision and decision.outcome == outcome and decision.measure == "entropy"
        assert decision.score is not None and decision.threshold is not None
        assert (decision.score <= decision.threshold) == (outcome == "routed")
        assert decision.reason in decision.told and each.decision == decision
    assert len(unsure.fit.members) == len(tiny_library.names)
    assert unsure.fit.decision and unsure.fit.decision.passes == 1 + len(tiny_library.names)


def test_fallbacks_are_the_networks_they_are_called(tiny_library, given) -> None:
    base = tiny_library.manifest.base
    other = next(name for name in tiny_library.names if name != base)
    for fallback, source in (("base", base), (other, other)):
        found = limit_of(tiny_library, given, False, decision="map", fallback=fallback)
        assert found.fit.decision and found.fit.decision.outcome == "abstained"
        assert found.mixture.mean_weights == {source: 1.0} and not found.fit.members
        assert found.fit.experts is None or found.fit.experts.is_idle
    router, support = given
    prior = limit_of(tiny_library, given, False, decision="map", fallback="prior-mean")
    plain = smatter.adapt(tiny_library, support, "router", RoutedSettings(router=router, evidence=False))
    assert prior.mixture.mean_weights == pytest.approx(plain.mixture.mean_weights, abs=1e-5)


def test_a_score_alone_answers_four_tasks_of_five(tiny_library, given) -> None:
    alone, told = (adapted(tiny_library, given, abstain=how) for how in ("entropy", "entropy@coverage=0.8"))
    assert alone.decision and alone.decision == told.decision and alone.decision.threshold is not None


def test_scores_that_look_at_queries_are_those_of_the_queries(tiny_library, given) -> None:
    router, support = given
    settings = BayesSettings(router=router, decision="map", abstain="doubt")
    inputs = list(support.inputs)
    found = smatter.adapt(tiny_library, support, "bayes", settings, queries=inputs)
    backwards = smatter.adapt(tiny_library, support, "bayes", settings, queries=inputs[::-1])
    fewer = smatter.adapt(tiny_library, support, "bayes", settings, queries=inputs[:2])
    decision = found.decision
    assert decision and decision.measure == "doubt" and decision.score == pytest.approx(found.fit.uncertainty["doubt"])
    assert found.learnt is not None, "prototypes learn from the same inputs"
    point = smatter.adapt(tiny_library, support, "bayes", BayesSettings(router=router, decision="point"))
    doubt = 1 - float(point.predict(inputs).probabilities.amax(dim=1).mean())
    assert decision.score == pytest.approx(doubt, abs=1e-4)
    assert backwards.decision and backwards.decision.score == pytest.approx(decision.score, abs=1e-6)
    assert fewer.decision and fewer.decision.score != pytest.approx(decision.score, abs=1e-6)
    plain = smatter.adapt(tiny_library, support, "bayes", BayesSettings(router=router), queries=inputs)
    assert "doubt" not in plain.fit.uncertainty, "no routing is passed queries that no score looks at"


def test_what_no_pass_can_mend_is_told_before_the_first(tiny_library, given, monkeypatch) -> None:
    monkeypatch.setattr("smatter.route.opening.route_task", lambda *_, **__: pytest.fail("a network was run"))
    for how in ({"abstain": "loss", "decision": "top:2"}, {"abstain": "doubt"}, {"fallback": "nobody"}):
        with pytest.raises(InvalidSettings):
            adapted(tiny_library, given, **how)


def test_order_of_examples_does_not_matter(tiny_library, given) -> None:
    router, support = given
    order = torch.randperm(len(support.labels), generator=torch.Generator().manual_seed(0)).tolist()
    inputs = support.inputs[order] if isinstance(support.inputs, torch.Tensor) else [support.inputs[i] for i in order]
    shuffled = Support.of(inputs, [support.labels[i] for i in order])
    one, two = (adapted(tiny_library, (router, each), decision="half:3") for each in (support, shuffled))
    assert one.mixture == two.mixture and one.fit.members == two.fit.members and one.fit.decision == two.fit.decision


def test_the_decision_is_in_the_file_and_in_the_cache(tiny_library, given, tmp_path: Path) -> None:
    router, support = given
    settings = BayesSettings(router=router, decision="map", abstain="loss@coverage=0.9", fallback="base")
    first = smatter.adapt(tiny_library, support, "bayes", settings, cache=tmp_path / "cache")
    second = smatter.adapt(tiny_library, support, "bayes", settings, cache=tmp_path / "cache")
    assert second.fit.decision == first.fit.decision and second.fit.seconds == first.fit.seconds
    first.save(tmp_path / "task.safetensors")
    assert read_recipe(tmp_path / "task.safetensors").notes.decision == first.fit.decision
    looked = BayesSettings(router=router, decision="map", abstain="doubt")
    inputs, kept = list(support.inputs), tmp_path / "cache"
    scores = [
        smatter.adapt(tiny_library, support, "bayes", looked, queries=some, cache=kept).decision.score
        for some in (inputs, inputs[:2], inputs)
    ]
    assert scores[0] == scores[2] != scores[1], "other queries are another task"
    assert isinstance(first.fit.decision, Decision) and first.to_dict()["decision"]["rule"] == "map"


def test_a_limit_by_risk_is_proven_and_its_certificate_stands_beside(tiny_library, given) -> None:
    router, support = given
    risk = Guarantee(about="mean error of the surest 90% of tasks by loss", method="betting", value=0.5, estimate=0.4)
    row = Selected(score="loss", coverage=0.9, threshold=4.0, coverage_low=0.8, risk=risk)
    told = certificate(rule="map", selected=(row,), sources=sources_digest(tiny_library.manifest))
    asked = replace(router, certificates=(told,)), support
    found = adapted(tiny_library, asked, decision="map", abstain="loss@risk=0.6")
    assert found.decision and (found.decision.outcome, found.decision.threshold) == ("routed", 4.0)
    assert [each.bounds for each in found.certificates] == [(risk,)] and found.recipe.notes.sets is None
    assert adapted(tiny_library, asked, decision="map").recipe.notes.sets == told.sets
    with pytest.raises(InvalidCertificate, match="no threshold on loss is proven"):
        adapted(tiny_library, asked, decision="map", abstain="loss@risk=0.4")
    with pytest.raises(InvalidCertificate, match="which @risk needs: run `smatter calibrate`"):
        adapted(tiny_library, given, decision="map", abstain="loss@risk=0.6")


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"decision": "tops:3"}, "unknown decision"),
        ({"decision": "half:99"}, "give fewer"),
        ({"abstain": "Entropy"}, "no limit"),
        ({"abstain": "entropy@coverage=1.5"}, "no limit"),
        ({"abstain": "surprise@coverage=0.8"}, "unknown score"),
        ({"abstain": "disagreement@coverage=0.8"}, "give them with --queries"),
        ({"abstain": "entropy@coverage=0.8", "decision": "top:2"}, "smatter calibrate"),
        ({"fallback": "nobody"}, "unknown fallback"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(tiny_library, given, how: dict, told: str) -> None:
    with pytest.raises(InvalidSettings, match=told) as error:
        adapted(tiny_library, given, **how)
    assert "\n" not in str(error.value)


def test_a_router_without_posterior_or_for_other_sources_is_refused(tiny_library, given) -> None:
    router, support = given
    with pytest.raises(InvalidRouter, match="--posterior"):
        adapted(tiny_library, (replace(router, posterior=None), support))
    fewer = LiveMixture(tiny_library).library.only(tiny_library.names[:-1])
    with pytest.raises(InvalidRouter, match="other sources"):
        adapted(fewer, given)
