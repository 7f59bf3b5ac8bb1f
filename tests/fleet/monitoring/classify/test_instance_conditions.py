"""Conditions of instances as agents experience them."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.monitoring.classify import InstanceCondition, prepare_frame
from fleet.monitoring.classify.instance_conditions import last_attempt_at
from fleet.monitoring.evidence import FeedFreshness
from tests.fakes.small_fleet import (
    AUTH_1,
    DEREGISTERED,
    EXPIRED,
    NOW,
    PROXY_1,
    PROXY_2,
    SILENT,
    UNHEALTHY,
    UNPOLLED,
    fleet,
)

_FRESH = FeedFreshness(NOW, NOW)


def condition_of_proxy(facts: dict[str, Any], feed: FeedFreshness = _FRESH) -> InstanceCondition:
    """Return the condition of proxy-1 in the small fleet."""
    return prepare_frame(
        fleet(proxy_1=facts, tunnel_freshness={PROXY_1: feed, PROXY_2: _FRESH}), NOW
    ).conditions[PROXY_1]


@pytest.mark.parametrize(
    ("facts", "is_live"),
    [
        ({}, True),
        (UNHEALTHY, True),
        (EXPIRED, True),
        (DEREGISTERED, True),
        (SILENT, False),
        ({**DEREGISTERED, **SILENT}, False),
    ],
)
def test_proxy_is_live_unless_silent(facts: dict[str, Any], is_live: bool) -> None:
    """Recently reported tunnels of a sick proxy count unless it is silent."""
    assert condition_of_proxy(facts).is_live is is_live
    assert not condition_of_proxy(facts, FeedFreshness(NOW, NOW - 60)).is_live


def test_feed_is_fresh_until_it_is_not_read_any_more() -> None:
    """A failed attempt counts: its proxy is polled. An auth has no feed."""
    assert condition_of_proxy({}).is_feed_fresh
    assert condition_of_proxy({}, FeedFreshness(NOW, NOW - 60)).is_feed_fresh
    assert not condition_of_proxy({}, FeedFreshness(NOW - 60, NOW - 60)).is_feed_fresh
    assert not condition_of_proxy({}, FeedFreshness()).is_feed_fresh
    conditions = prepare_frame(fleet(), NOW).conditions
    assert not conditions[AUTH_1].is_feed_fresh


@pytest.mark.parametrize(
    ("facts", "is_unread"), [({}, True), (UNPOLLED, True), (UNHEALTHY, False), (SILENT, False)]
)
def test_proxy_is_unread_if_only_its_report_is_missing(facts: dict[str, Any], is_unread: bool) -> None:
    """A healthy proxy without a report is unread; a sick one is not."""
    assert condition_of_proxy(facts, FeedFreshness(NOW, None)).is_unread is is_unread
    assert not condition_of_proxy(facts).is_unread


@pytest.mark.parametrize(
    ("facts", "keeps_connections"),
    [
        ({}, False),
        (UNHEALTHY, True),
        (EXPIRED, True),
        ({**UNPOLLED, **EXPIRED}, False),
        (SILENT, False),
        (DEREGISTERED, False),
    ],
)
def test_sick_instance_keeps_connections_while_it_responds(
    facts: dict[str, Any], keeps_connections: bool
) -> None:
    """A silent or deregistered instance does not keep them."""
    assert condition_of_proxy(facts).keeps_connections is keeps_connections


def test_desired_proxies_have_the_highest_unexpired_generation_of_their_group() -> None:
    """An older generation is desired again when the newer one has expired."""
    older, newer = {"group": "a", "generation": 1}, {"group": "a", "generation": 2}
    assert [s.is_desired for s in _proxies(older, newer)] == [False, True]
    assert [s.is_desired for s in _proxies(newer, older)] == [True, False]
    assert [s.is_desired for s in _proxies(older, {**newer, **EXPIRED})] == [True, False]
    assert [s.is_desired for s in _proxies(older, {**newer, "group": "b"})] == [True, True]
    assert [s.is_desired for s in _proxies(older, {**older, **SILENT})] == [True, True]
    assert [s.is_desired for s in _proxies(older, {**older, **DEREGISTERED})] == [True, False]


def test_proxies_of_the_first_generation_are_desired() -> None:
    """Also if generations begin at 0."""
    first = {"group": "a", "generation": 0}
    assert [s.is_desired for s in _proxies(first, first)] == [True, True]


def test_last_attempt_is_the_later_of_both() -> None:
    """A response is an attempt too."""
    assert last_attempt_at(FeedFreshness()) is None
    assert last_attempt_at(FeedFreshness(NOW - 1, NOW - 2)) == NOW - 1
    assert last_attempt_at(FeedFreshness(None, NOW)) == NOW


def _proxies(proxy_1: dict[str, Any], proxy_2: dict[str, Any]) -> list[InstanceCondition]:
    conditions = prepare_frame(fleet(proxy_1=proxy_1, proxy_2=proxy_2), NOW).conditions
    return [conditions[PROXY_1], conditions[PROXY_2]]
