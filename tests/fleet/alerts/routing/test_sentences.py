"""Routes as sentences."""

from __future__ import annotations

from dataclasses import replace
from datetime import time

import pytest

from fleet.alerts.matchers import parse_matchers
from fleet.alerts.routing.sentences import (
    CAUSE_KIND_CLAUSES,
    describe_matcher,
    describe_route,
    describe_routes,
)
from fleet.alerts.routing.tree import QuietHours, Route
from fleet.vocabulary.incidents import CauseKind, Severity

_NAMES = {1: "Slack #ops", 2: "pager", 3: "chief"}
_CRITICAL = Route("critical", min_severity=Severity.CRITICAL, channel_ids=(2,))


@pytest.mark.parametrize(
    ("route", "parent_channel_ids", "text"),
    [
        (Route("all"), (), "Critical incidents and warnings notify nobody: no channel is chosen."),
        (
            Route("all", channel_ids=(1, 2, 3)),
            (),
            "Critical incidents and warnings notify Slack #ops, pager and chief immediately.",
        ),
        (_CRITICAL, (1,), "Critical incidents notify pager immediately, instead of Slack #ops."),
        (
            replace(_CRITICAL, includes_parent_channels=True),
            (1, 2),
            "Critical incidents notify pager and Slack #ops immediately.",
        ),
        (replace(_CRITICAL, channel_ids=()), (1,), "Critical incidents notify Slack #ops immediately."),
        (
            Route(
                "prod",
                matchers=parse_matchers("kind=proxy cause!=proxy-1", is_for_route=True),
                cluster="default",
                min_severity=Severity.INFO,
                channel_ids=(1,),
                escalate_after=900.0,
                escalate_to=(2,),
                quiet_hours=QuietHours(time(22), time(7), "Europe/Berlin"),
                should_continue=True,
            ),
            (),
            (
                "All incidents in cluster default caused by a proxy and not caused by proxy-1 notify Slack #ops "
                "immediately; critical ones notify pager after 15 min without acknowledgement. Incidents of severity "
                "info are sent in digests only. From 22:00 to 07:00 Europe/Berlin, notifications about incidents that "
                "are not critical wait until 07:00. The next routes are tried, too."
            ),
        ),
    ],
)
def test_a_route_is_a_sentence(route: Route, parent_channel_ids: tuple[int, ...], text: str) -> None:
    """With its channels, those that it replaces, and its escalation."""
    assert describe_route(route, _NAMES, parent_channel_ids).text == text


def test_escalation_names_the_channels_that_were_notified_before() -> None:
    """Those of the parent, too; the new ones stand without “again”."""
    route = Route(
        "pager",
        min_severity=Severity.CRITICAL,
        includes_parent_channels=True,
        channel_ids=(1,),
        escalate_after=900.0,
        escalate_to=(1, 2, 3),
    )
    assert describe_route(route, _NAMES, (3,)).predicate == (
        f"notify Slack #ops and {_NAMES[3]} immediately; they notify Slack #ops again, pager and {_NAMES[3]} again "
        "after 15 min without acknowledgement"
    )


@pytest.mark.parametrize(
    ("above", "route", "text"),
    [
        (
            _CRITICAL,
            Route("rest", channel_ids=(1,)),
            "Warnings notify Slack #ops immediately. Critical incidents end at the route “critical” above.",
        ),
        (
            Route("proxies", matchers=parse_matchers("kind=proxy", is_for_route=True)),
            Route("rest", channel_ids=(1,)),
            (
                "Critical incidents and warnings, except those that the route “proxies” above takes, notify "
                "Slack #ops immediately."
            ),
        ),
        (
            Route("all"),
            _CRITICAL,
            "No incidents reach this route. They end at the route “all” above.",
        ),
        (
            Route("all"),
            Route("rest", min_severity=Severity.INFO, channel_ids=(1,)),
            (
                "Incidents of severity info notify nobody: they are sent in digests only. Critical incidents and "
                "warnings end at the route “all” above."
            ),
        ),
        (
            replace(_CRITICAL, should_continue=True),
            Route("rest", channel_ids=(1,)),
            "Critical incidents and warnings notify Slack #ops immediately.",
        ),
    ],
)
def test_sentence_has_the_incidents_that_the_routes_above_leave(
    above: Route, route: Route, text: str
) -> None:
    """Also of routes that are nested in the same one."""
    roots = (replace(above, number=1), replace(route, number=2))
    assert describe_routes(roots, _NAMES)[2].text == text
    parent = Route("parent", min_severity=Severity.INFO, children=roots, number=3)
    assert describe_routes((parent,), _NAMES)[2].text == text


def test_sentence_of_a_nested_route_has_the_severities_of_its_parent() -> None:
    """A matcher of severities is not said twice; a contradiction is explained."""
    children = (
        Route("a", number=2, matchers=parse_matchers("severity=warning", is_for_route=True)),
        Route("b", number=3),
    )
    sentences = describe_routes((replace(_CRITICAL, number=1, children=children),), _NAMES)
    assert sentences[2].text == (
        "No incidents reach this route. "
        "No severity fulfils its conditions and those of the routes that it is nested in."
    )
    assert sentences[3].text == "Critical incidents notify pager immediately."


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        ("kind=auth", "caused by an auth"),
        ("kind!=fleet", "not about the whole fleet"),
        ("kind=auth|proxy", "caused by an auth or caused by a proxy"),
        ("cause='proxy-1|proxy-2'", "caused by proxy-1 or proxy-2"),
        ("kind=pro*", "caused by something of kind pro*"),
        ("agent_set=critical", "that affect agents of the set critical"),
        ("agent_set!=lab", "that affect no agents of the set lab"),
        ("rule='Agents at risk'", "of rule Agents at risk"),
        ("severity=critical", "of severity critical"),
    ],
)
def test_a_matcher_is_a_clause(text: str, clause: str) -> None:
    """Every field of routes."""
    (matcher,) = parse_matchers(text, is_for_route=True)
    assert describe_matcher(matcher) == clause


def test_every_kind_of_cause_has_a_clause() -> None:
    """A new kind needs one."""
    assert set(CAUSE_KIND_CLAUSES) == set(CauseKind)
