"""What one round knows of the instances: blindness, reach, freezing, the backend, coverage."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.monitoring.classify import classify, prepare_frame
from fleet.monitoring.evidence import FeedFreshness
from fleet.vocabulary.instances import InstanceState, PollAttempt
from fleet.vocabulary.verdicts import State
from tests.fakes.small_fleet import (
    AUTH_1,
    EXPIRED,
    GONE,
    NOW,
    PROXY_1,
    PROXY_2,
    SILENT,
    UNHEALTHY,
    UNPOLLED,
    agent,
    fleet,
    heartbeat,
)

ALL_SILENT = {"auth_1": SILENT, "auth_2": SILENT, "proxy_1": SILENT, "proxy_2": SILENT}
FAILED_ONCE = {"attempts": (PollAttempt(NOW - 0.2, False), PollAttempt(NOW - 1.2, True))}
LONG_AGO = {**EXPIRED, "expires_at": NOW - 5000, "sick_since": NOW - 5000}


@pytest.mark.parametrize(
    ("facts", "unreachable"),
    [
        ({}, False),
        (ALL_SILENT, True),
        ({**ALL_SILENT, "proxy_2": FAILED_ONCE}, True),
        ({**ALL_SILENT, "proxy_2": {}}, False),
        ({**ALL_SILENT, "proxy_2": UNPOLLED}, True),
        ({**ALL_SILENT, "proxy_2": GONE}, True),
        ({**ALL_SILENT, "proxy_1": FAILED_ONCE, "proxy_2": FAILED_ONCE}, False),
        ({"auth_1": SILENT, "auth_2": GONE, "proxy_1": GONE, "proxy_2": GONE}, False),
    ],
)
def test_prepare_cluster_unreachable(facts: dict[str, Any], unreachable: bool) -> None:
    """Unreachable: every target's newest attempt failed, most are silent, and one alone is no cluster."""
    assert prepare_frame(fleet(**facts), NOW).unreachable is unreachable


@pytest.mark.parametrize(
    ("auth_1", "auth_2", "down"),
    [
        ({}, {}, False),
        (UNHEALTHY, {}, False),
        (UNHEALTHY, UNPOLLED, False),
        (UNHEALTHY, UNHEALTHY, True),
        (UNHEALTHY, SILENT, True),
        (UNHEALTHY, {**UNHEALTHY, "sick_since": NOW - 12}, True),
        (UNHEALTHY, {**UNHEALTHY, "sick_since": NOW - 12.1}, False),
        (UNHEALTHY, GONE, False),
        (UNHEALTHY, LONG_AGO, False),
    ],
)
def test_prepare_backend_down(auth_1: dict[str, Any], auth_2: dict[str, Any], down: bool) -> None:
    """The backend is to blame when all of several auths fell sick within one TTL (10 s)."""
    assert prepare_frame(fleet(auth_1=auth_1, auth_2=auth_2), NOW).backend_down is down


def test_prepare_left_over_auth_does_not_hide_the_backend() -> None:
    """An auth that had expired long before the others fell together does not count."""
    where = fleet(auth_1=UNHEALTHY, auth_2=UNHEALTHY)
    third = prepare_frame(fleet(auth_1=LONG_AGO), NOW).conditions[AUTH_1].facts
    instances = {**where.instances, 9: third}
    left_over = fleet(auth_1=UNHEALTHY, auth_2=UNHEALTHY, instances=instances)
    assert prepare_frame(left_over, NOW).backend_down
    assert prepare_frame(left_over, NOW).backend_since == NOW - 2


def test_prepare_resource_expiry_needs_an_answer_or_a_frozen_list() -> None:
    """An expiry counts once a list was answered after it; with every auth sick it counts by the clock."""
    ran_out = agent(heartbeat=heartbeat(expires_at=NOW - 1))
    asked_before = FeedFreshness(NOW, NOW - 2)
    assert classify(ran_out, fleet(presence=asked_before), NOW).state is State.HEALTHY
    assert classify(ran_out, fleet(presence=FeedFreshness(NOW, NOW - 1)), NOW).state is State.STRANDED
    frozen = fleet(presence=asked_before, auth_1=UNHEALTHY, auth_2=UNHEALTHY)
    verdict = classify(ran_out, frozen, NOW)
    assert verdict.state is State.STRANDED
    assert "predicted" in verdict.sentence


def test_prepare_resource_expires_exactly_at_its_expiry() -> None:
    """At its expiry a resource has expired; a moment before it has not."""
    assert classify(agent(heartbeat=heartbeat(expires_at=NOW)), fleet(), NOW).state is State.STRANDED
    assert classify(agent(heartbeat=heartbeat(expires_at=NOW + 0.001)), fleet(), NOW).state is State.HEALTHY


@pytest.mark.parametrize(("age", "state"), [(9.999, State.HEALTHY), (10.0, State.UNKNOWN)])
def test_prepare_tunnels_are_live_for_two_rounds_or_the_floor(age: float, state: State) -> None:
    """From an age of exactly `tunnels_live_for` on, a report that nobody renewed proves nothing."""
    where = fleet(tunnels={PROXY_1: FeedFreshness(NOW, NOW - age), PROXY_2: FeedFreshness(NOW, NOW)})
    assert classify(agent(), where, NOW).state is state


@pytest.mark.parametrize(("age", "stale"), [(9.999, False), (10.0, True)])
def test_prepare_presence_is_stale_from_stale_after_on(age: float, stale: bool) -> None:
    """Staleness begins at exactly `stale_after`; a failed attempt is fresh evidence too."""
    assert prepare_frame(fleet(presence=FeedFreshness(NOW - age, None)), NOW).presence_stale is stale
    assert not prepare_frame(fleet(presence=FeedFreshness(NOW, None)), NOW).presence_stale


@pytest.mark.parametrize(
    ("proxy_2", "feed", "covered"),
    [
        ({}, FeedFreshness(NOW, NOW), True),
        ({}, FeedFreshness(NOW, None), False),
        (UNHEALTHY, FeedFreshness(NOW, None), False),
        (SILENT, FeedFreshness(NOW, None), True),
        (GONE, FeedFreshness(NOW, None), True),
        ({**UNPOLLED, **EXPIRED}, FeedFreshness(), True),
        (UNPOLLED, FeedFreshness(), False),
    ],
)
def test_prepare_covered_when_no_proxy_can_hide_tunnels(
    proxy_2: dict[str, Any], feed: FeedFreshness, covered: bool
) -> None:
    """No tunnel means no tunnel only if every proxy that can hold one has reported."""
    where = fleet(proxy_2=proxy_2, tunnels={PROXY_1: FeedFreshness(NOW, NOW), PROXY_2: feed})
    assert prepare_frame(where, NOW).has_all_tunnel_reports is covered


def test_prepare_nothing_known_covers_nothing() -> None:
    """Before any instance is known everybody is unknown."""
    empty = fleet(instances={}, tunnels={}, presence=FeedFreshness())
    assert not prepare_frame(empty, NOW).has_all_tunnel_reports
    assert classify(agent(), empty, NOW).state is State.UNKNOWN
    assert classify(
        agent(heartbeat=None, tunnels=(), last_proxies=(), had_tunnel=False), empty, NOW
    ).state is (State.UNKNOWN)


def test_frame_state_and_name_of_an_index_nobody_heard_of() -> None:
    """An unknown index is unknown, and has a name of sorts."""
    frame = prepare_frame(fleet(), NOW)
    assert frame.state_of(77) is InstanceState.UNKNOWN
    assert frame.name_of(77) == "instance 77"
    assert frame.name_of(PROXY_1) == "proxy-1"
