"""Rules: ways to get one model for a task that calibration tasks can say something of. Nothing here needs torch.

`router` and `router:predictions` are the method `router`, averaging weights or predictions; all others, such as
`half:3`, are decisions by a posterior. A rule has the defaults of its method in everything else.
"""

from __future__ import annotations

from collections.abc import Mapping

from smatter.settings.decisions import USUAL, Rule

ROUTER, BAYES = "router", "bayes"
"""The methods that have rules."""

LIMITS = ("abstain", "fallback")
"""Settings that say when a decision is too unsure, and what is done then; the rule is the same with them."""

ROUTED: dict[str, dict[str, str]] = {ROUTER: {}, f"{ROUTER}:predictions": {"mix": "predictions"}}
"""Rules of the method `router`, and its settings."""


def settings_of(rule: str) -> tuple[str, dict[str, str]]:
    """The method of a rule, and its settings as texts.

    >>> settings_of("router:predictions")
    ('router', {'mix': 'predictions'})
    >>> settings_of("half:3")
    ('bayes', {'decision': 'half:3'})
    """
    if rule in ROUTED:
        return ROUTER, ROUTED[rule]
    return BAYES, {"decision": str(Rule.parse(rule))}


def needs_posterior(rule: str) -> bool:
    """Whether a rule decides by one, so that another posterior makes another rule of it."""
    return rule not in ROUTED


def rule_of(method: str, settings: Mapping[str, str]) -> str | None:
    """The rule that a method follows; none for settings that no rule has.

    Args:
        method: its name.
        settings: those that are not its defaults, as texts.

    >>> rule_of("bayes", {}), rule_of("router", {"max_sources": "2"})
    ('half:3', None)
    """
    if method == ROUTER:
        return next((rule for rule, told in ROUTED.items() if told == settings), None)
    if method == BAYES and settings.keys() <= {"decision"}:
        return str(Rule.parse(settings.get("decision", USUAL)))
    return None
