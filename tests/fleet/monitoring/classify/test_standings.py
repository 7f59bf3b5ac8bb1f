"""One instance as agents see it."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.monitoring.classify import InstanceCondition, prepare_frame
from fleet.monitoring.classify.standings import last_attempt_at
from fleet.monitoring.evidence import FeedFreshness
from tests.fakes.small_fleet import EXPIRED, GONE, NOW, PROXY_1, PROXY_2, SILENT, UNHEALTHY, UNPOLLED, fleet


def proxy(facts: dict[str, Any], feed: FeedFreshness = FeedFreshness(NOW, NOW)) -> InstanceCondition:  # noqa: B008
    """Stand proxy-1 in the small fleet."""
    return prepare_frame(
        fleet(proxy_1=facts, tunnels={PROXY_1: feed, PROXY_2: FeedFreshness(NOW, NOW)}), NOW
    ).conditions[PROXY_1]


@pytest.mark.parametrize(
    ("facts", "live"),
    [
        ({}, True),
        (UNHEALTHY, True),
        (EXPIRED, True),
        (GONE, True),
        (SILENT, False),
        ({**GONE, **SILENT}, False),
    ],
)
def test_standing_live_unless_silent(facts: dict[str, Any], live: bool) -> None:
    """Tunnels of a proxy that reported lately count, whatever ails it, unless it is silent."""
    assert proxy(facts).live is live
    assert not proxy(facts, FeedFreshness(NOW, NOW - 60)).live


@pytest.mark.parametrize(
    ("facts", "unread"), [({}, True), (UNPOLLED, True), (UNHEALTHY, False), (SILENT, False)]
)
def test_standing_unread_when_only_the_report_is_missing(facts: dict[str, Any], unread: bool) -> None:
    """A proxy with nothing wrong and no report is a gap in what we know; a sick one is evidence."""
    assert proxy(facts, FeedFreshness(NOW, None)).unread is unread
    assert not proxy(facts).unread


@pytest.mark.parametrize(
    ("facts", "holds"),
    [
        ({}, False),
        (UNHEALTHY, True),
        (EXPIRED, True),
        ({**UNPOLLED, **EXPIRED}, False),
        (SILENT, False),
        (GONE, False),
    ],
)
def test_standing_holds_connections_while_it_answers(facts: dict[str, Any], holds: bool) -> None:
    """A sick instance that answers keeps who is connected to it."""
    assert proxy(facts).keeps_connections is holds


def test_standing_desired_is_the_highest_generation_of_its_group_among_unexpired() -> None:
    """An older generation is not desired, until the newer has expired; other groups do not matter."""
    older, newer = {"group": "a", "generation": 1}, {"group": "a", "generation": 2}
    assert [s.is_desired for s in _proxies(older, newer)] == [False, True]
    assert [s.is_desired for s in _proxies(older, {**newer, **EXPIRED})] == [True, False]
    assert [s.is_desired for s in _proxies(older, {**newer, "group": "b"})] == [True, True]
    assert [s.is_desired for s in _proxies(older, {**older, **SILENT})] == [True, True]
    assert [s.is_desired for s in _proxies(older, {**older, **GONE})] == [True, False]


def test_last_attempt_is_the_later_of_both() -> None:
    """An answer is an attempt too."""
    assert last_attempt_at(FeedFreshness()) is None
    assert last_attempt_at(FeedFreshness(NOW - 1, NOW - 2)) == NOW - 1
    assert last_attempt_at(FeedFreshness(None, NOW)) == NOW


def _proxies(proxy_1: dict[str, Any], proxy_2: dict[str, Any]) -> list[InstanceCondition]:
    standings = prepare_frame(fleet(proxy_1=proxy_1, proxy_2=proxy_2), NOW).conditions
    return [standings[PROXY_1], standings[PROXY_2]]
