"""Suites check themselves, and their digest tells every change."""

from dataclasses import replace

import pytest
from small_suites import keys, picture_suite, text_suite, usual_suite

from smatter.errors import InvalidSuite
from smatter.tasks.stores import Texts
from smatter.tasks.suite import Domain, Suite, SuiteClass

CHANGES = {
    "role": lambda domain: replace(domain, role="ood"),
    "name": lambda domain: replace(domain, name="other"),
    "example": lambda domain: replace(domain, store=Texts(["x", *domain.store.texts[1:]])),
    "key": lambda domain: replace(domain, classes=(replace(domain.classes[0], key="x"), *domain.classes[1:])),
    "class name": lambda domain: replace(domain, classes=(replace(domain.classes[0], name="x"), *domain.classes[1:])),
    "styles": lambda domain: replace(domain, styles=("a", "c")),
    "style of an example": lambda domain: replace(domain, style_of=(1, *domain.style_of[1:])),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_digest_tells_every_change(change: str) -> None:
    suite = text_suite({"print": ("id", keys(0, 4))}, styles=("a", "b"))
    changed = replace(suite, domains=(CHANGES[change](suite.domains[0]),))
    assert changed.digest != suite.digest
    assert replace(suite, name="other").digest == suite.digest == replace(suite).digest


def test_the_digest_tells_the_order_of_domains() -> None:
    suite = usual_suite()
    assert replace(suite, domains=suite.domains[::-1]).digest != suite.digest


def domain(*classes: SuiteClass, n_texts: int = 2, name: str = "print", **more) -> Domain:
    return Domain(name, "Print", "id", classes, Texts(["x"] * n_texts), **more)


ONE, TWO = SuiteClass("a", "a", 0, 1), SuiteClass("b", "b", 1, 2)
MISTAKES = {
    "no classes": (lambda: domain(), "no classes"),
    "same key": (lambda: domain(ONE, SuiteClass("b", "a", 1, 2)), "same key"),
    "gap": (lambda: domain(ONE, SuiteClass("b", "b", 2, 3)), "out of order"),
    "empty class": (lambda: domain(SuiteClass("b", "b", 0, 0)), "empty"),
    "more examples than listed": (lambda: domain(ONE, TWO, n_texts=3), "holds 3"),
    "styles of some": (lambda: domain(ONE, TWO, styles=("s",), style_of=(0,)), "style of every"),
    "a name that is a path": (lambda: domain(ONE, TWO, name="../x"), "cannot name"),
    "no domains": (lambda: Suite("s", "texts", ()), "no domains"),
    "same domain": (lambda: Suite("s", "texts", (domain(ONE, TWO), domain(ONE, TWO))), "same name"),
    "no name": (lambda: Suite("", "texts", (domain(ONE, TWO),)), "cannot name"),
    "unknown domain": (lambda: usual_suite().domain("nowhere"), "it has print, hand"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_suites_that_contradict_themselves_are_refused(mistake: str) -> None:
    make, message = MISTAKES[mistake]
    with pytest.raises(InvalidSuite, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_styles_are_numbered_or_unknown() -> None:
    assert picture_suite().domains[0].style_numbers.tolist()[:3] == [0, 1, 0]
    assert set(usual_suite().domains[0].style_numbers.tolist()) == {-1}
