"""Certificates: bounds of the surest tasks hold as often as they say; whose they are; what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from made_certificates import certificate, judged
from pydantic import ValidationError

from smatter.certify.mean import mean_bound_betting
from smatter.certify.pac_bayes import pac_bayes_kl
from smatter.compose.records import Decision, Origin
from smatter.errors import InvalidCertificate, InvalidSettings
from smatter.route.certificates import (
    CalibrationSettings,
    Certificate,
    certificates_beside,
    find_certificates,
    proven_selection,
)
from smatter.route.judged import bounds_of, selected_of
from smatter.settings.decisions import Limit
from smatter.settings.rules import rule_of, settings_of

SOURCES = "c" * 64


def test_bounds_are_those_of_betting_with_others_beside() -> None:
    found = judged(200)
    mean, tail, brier = bounds_of(found, 0.1)
    assert mean.value == mean_bound_betting(found.errors, 0.1).value and mean.others.keys() == {
        "hoeffding", "kl", "bernstein",
    }  # fmt: skip
    assert mean.estimate == found.errors.mean() and tail.value > mean.value > brier.value
    assert "vacuous" in str(bounds_of(judged(20), 1e-9)[1]) and bounds_of(judged(20), 1e-9)[1].vacuous


def test_errors_of_the_surest_tasks_are_bounded_as_often_as_promised() -> None:
    """Score u is uniform and the error has mean 0.05 + u / 2: below t it is 0.05 + t / 4."""
    failed, low = [], []
    for seed in range(150):
        found = judged(120, seed)
        found = replace(found, scores={"weight-entropy": found.scores["weight-entropy"]})
        rows = selected_of(found, 0.3)
        failed.append(any(row.risk.value < 0.05 + row.threshold / 4 for row in rows))
        low.append(any(row.threshold < row.coverage_low for row in rows))
    assert np.mean(failed) <= 0.3 and np.mean(low) <= 0.3
    assert rows[-1].risk.value < rows[0].risk.value < bounds_of(found, 0.01)[0].value + 0.2


def test_a_score_that_some_tasks_lack_selects_nothing() -> None:
    found = judged(60)
    values = found.scores["weight-entropy"].copy()
    values[3] = np.nan
    assert not selected_of(replace(found, scores={"weight-entropy": values}), 0.05)


def test_rules_and_their_settings() -> None:
    for rule in ("router", "router:predictions", "half:3", "map"):
        assert rule_of(*settings_of(rule)) == rule
    assert rule_of("evidence", {}) is None and rule_of("bayes", {"seed": "3"}) is None
    with pytest.raises(InvalidSettings, match="unknown decision 'halves:3'"):
        settings_of("halves:3")


def test_a_certificate_stands_beside_its_rule_only() -> None:
    known = (certificate(),)
    assert certificates_beside(known, Origin(method="router"), SOURCES, None) == known
    assert not certificates_beside(known, Origin(method="router"), "d" * 64, None)
    assert not certificates_beside(known, Origin(method="router", settings={"mix": "predictions"}), SOURCES, None)
    assert not certificates_beside(known, Origin(method="evidence"), SOURCES, None)


def test_beside_a_limit_stands_the_error_of_tasks_that_are_sure_enough() -> None:
    known = (certificate(n=200, rule="map"),)
    row = next(each for each in known[0].selected if (each.score, each.coverage) == ("weight-entropy", 0.8))
    settings = {"decision": "map", "abstain": "weight-entropy@coverage=0.8", "fallback": "base"}
    origin, sure = Origin(method="bayes", settings=settings), row.threshold - 0.01
    met = {"outcome": "routed", "measure": "weight-entropy", "threshold": row.threshold}
    told = certificates_beside(known, origin, SOURCES, Decision(**met, score=sure))
    assert [each.bounds for each in told] == [(row.risk,)] and told[0].sets is None is not known[0].sets
    assert f"at least {row.coverage_low:.0%} of them are" in told[0].promise
    for decision in (
        Decision(outcome="abstained", score=row.threshold + 0.01),
        Decision(**met, score=row.threshold),
        Decision(**met | {"threshold": row.threshold + 1e-6}, score=sure),
        Decision(**met | {"measure": "support-loss"}, score=sure),
        None,
    ):
        assert not certificates_beside(known, origin, SOURCES, decision)


def test_a_limit_by_risk_takes_the_most_tasks_whose_error_is_proven() -> None:
    known = certificate(n=400, rule="map")
    rows = {row.coverage: row for row in known.selected if row.score == "weight-entropy"}
    for wished in (rows[0.7].risk.value, rows[0.7].risk.value + 1e-9, 1.0):
        row = proven_selection((known,), "map", known.digest, Limit("weight-entropy", "risk", wished))
        assert row.risk.value <= wished
        assert all(other.risk.value > wished for coverage, other in rows.items() if coverage > row.coverage)
    for limit, digest, said in (
        (Limit("weight-entropy", "risk", 0.01), known.digest, "map to 0.01: mean error of the surest"),
        (Limit("entropy", "risk", 0.5), known.digest, "entropy selects no tasks of some-list"),
        (Limit("weight-entropy", "risk", 0.5), "e" * 64, "map has no certificate, which @risk needs"),
    ):
        with pytest.raises(InvalidCertificate, match=said) as caught:
            proven_selection((known,), "map", digest, limit)
        assert "\n" not in str(caught.value)


def test_an_error_that_is_asked_for_is_exceeded_as_rarely_as_promised() -> None:
    """Score u is uniform and the error has mean 0.05 + u / 2: below t it is 0.05 + t / 4."""
    failed, chosen = [], 0
    for seed in range(150):
        found = judged(120, seed)
        found = replace(found, scores={"weight-entropy": found.scores["weight-entropy"]})
        made = certificate(rule="map", selected=selected_of(found, 0.3))
        for wished in (0.18, 0.22, 0.26):  # whichever is asked for, having seen the tasks
            try:
                row = proven_selection((made,), "map", made.digest, Limit("weight-entropy", "risk", wished))
            except InvalidCertificate:
                continue
            chosen += 1
            failed.append(0.05 + row.threshold / 4 > wished)
    assert chosen > 100 and np.sum(failed) / 150 <= 0.3


def test_pac_bayes_stands_beside_and_is_wider_than_kl() -> None:
    found = judged(200)
    scores = {**found.scores, "weight-divergence": np.full(200, 0.3)}
    mean = bounds_of(replace(found, scores=scores), 0.1)[0]
    assert mean.others["PAC-Bayes"] == pac_bayes_kl(found.errors, 0.3, 0.1).value > mean.others["kl"]
    nearer = bounds_of(replace(found, scores=scores | {"near-prior": np.full(200, -0.1)}), 0.1)[0]
    assert mean.others["kl"] < nearer.others["PAC-Bayes"] < mean.others["PAC-Bayes"], "a posterior's own divergence"


def test_what_was_not_certified_is_refused_in_one_line() -> None:
    known = (certificate(),)
    assert find_certificates(known, "router", SOURCES, "some-list") == known
    for asked, said in (
        (("map", SOURCES, None), "map has no certificate, only router"),
        (("router", SOURCES, "other-list"), "certified on some-list, not on other-list"),
        (("router", "d" * 64, None), "other sources than the library has"),
    ):
        with pytest.raises(InvalidCertificate, match=said) as caught:
            find_certificates(known, *asked)
        assert "\n" not in str(caught.value)
    with pytest.raises(InvalidCertificate, match="router has no certificate: run"):
        find_certificates((), "router", "")


@pytest.mark.parametrize(
    "change",
    [{"delta": 1.0}, {"delta": 0.0}, {"delta": float("nan")}, {"n": 3}, {"choices": 0}, {"bounds": ()}, {"more": 1}],
    ids=str,
)
def test_absurd_certificates_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Certificate.model_validate(certificate().model_dump() | change)


def test_a_bound_above_one_is_refused() -> None:
    told = certificate().model_dump()
    told["bounds"][0]["value"] = 1.5
    with pytest.raises(ValidationError):
        Certificate.model_validate(told)


def test_settings_of_a_calibration_check_themselves() -> None:
    for told, said in (
        ({"delta": 1.0}, "delta 1.0 is not between 0 and 1"),
        ({"delta": float("nan")}, "delta nan"),
        ({"n_tasks": 5}, "5 tasks are too few"),
        ({"rules": ("map", "map")}, "named twice"),
        ({"rules": ("best",)}, "unknown decision 'best'"),
    ):
        with pytest.raises((InvalidCertificate, InvalidSettings), match=said):
            CalibrationSettings(**told)


def test_a_rule_has_one_name() -> None:
    assert CalibrationSettings(("half:03", "router")).rules == ("half:3", "router")
    with pytest.raises(InvalidSettings, match="named twice"):
        CalibrationSettings(("half:3", "half:03"))


def test_the_promise_says_whom_it_speaks_of() -> None:
    assert "3 classes of greek, latin; not for other classes" in certificate().promise
    assert "a choice among 4 rules included" in certificate(choices=4).promise
