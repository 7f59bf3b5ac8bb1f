"""The frame of one poll: blindness, reachability, backend failure and coverage."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.monitoring.classify import classify, prepare_frame
from fleet.monitoring.evidence import FeedFreshness
from fleet.vocabulary.instances import InstanceState, PollAttempt
from fleet.vocabulary.verdicts import State
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
        ({**ALL_SILENT, "proxy_2": DEREGISTERED}, True),
        ({**ALL_SILENT, "proxy_1": FAILED_ONCE, "proxy_2": FAILED_ONCE}, False),
        ({"auth_1": SILENT, "auth_2": DEREGISTERED, "proxy_1": DEREGISTERED, "proxy_2": DEREGISTERED}, False),
    ],
)
def test_cluster_is_unreachable_if_most_instances_fail(facts: dict[str, Any], unreachable: bool) -> None:
    """The newest attempt at every instance failed, and most are silent; a single instance is not enough."""
    assert prepare_frame(fleet(**facts), NOW).cluster_unreachable is unreachable


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
        (UNHEALTHY, DEREGISTERED, False),
        (UNHEALTHY, LONG_AGO, False),
    ],
)
def test_backend_is_down_if_all_auths_fail_within_one_ttl(
    auth_1: dict[str, Any], auth_2: dict[str, Any], down: bool
) -> None:
    """All of several auths failed within one TTL (10 s)."""
    assert prepare_frame(fleet(auth_1=auth_1, auth_2=auth_2), NOW).backend_down is down


def test_leftover_auth_does_not_hide_a_failed_backend() -> None:
    """An auth that had expired long before the others failed does not count."""
    fleet_evidence = fleet(auth_1=UNHEALTHY, auth_2=UNHEALTHY)
    third = prepare_frame(fleet(auth_1=LONG_AGO), NOW).conditions[AUTH_1].facts
    instances = {**fleet_evidence.instances, 9: third}
    left_over = fleet(auth_1=UNHEALTHY, auth_2=UNHEALTHY, instances=instances)
    assert prepare_frame(left_over, NOW).backend_down
    assert prepare_frame(left_over, NOW).backend_down_since == NOW - 2


def test_backend_is_not_down_if_an_auth_failed_long_before_and_still_has_a_heartbeat() -> None:
    """It reaches the backend, so something else is wrong with the auths."""
    fleet_evidence = fleet(auth_1=UNHEALTHY, auth_2=UNHEALTHY)
    sick_long_ago = {**UNHEALTHY, "sick_since": NOW - 5000}
    third = prepare_frame(fleet(auth_1=sick_long_ago), NOW).conditions[AUTH_1].facts
    instances = {**fleet_evidence.instances, 9: third}
    assert not prepare_frame(fleet(auth_1=UNHEALTHY, auth_2=UNHEALTHY, instances=instances), NOW).backend_down


def test_expiry_requires_a_response_or_sick_auths() -> None:
    """An expiry counts after a later list response; with every auth sick it counts by the clock."""
    expired_agent = agent(heartbeat=heartbeat(expires_at=NOW - 1))
    attempted_before = FeedFreshness(NOW, NOW - 2)
    assert classify(expired_agent, fleet(presence_freshness=attempted_before), NOW).state is State.HEALTHY
    assert (
        classify(expired_agent, fleet(presence_freshness=FeedFreshness(NOW, NOW - 1)), NOW).state
        is State.STRANDED
    )
    frozen = fleet(presence_freshness=attempted_before, auth_1=UNHEALTHY, auth_2=UNHEALTHY)
    verdict = classify(expired_agent, frozen, NOW)
    assert verdict.state is State.STRANDED
    assert "must have expired by now" in verdict.sentence


def test_resource_expires_exactly_at_its_expiry() -> None:
    """A moment before its expiry it has not expired."""
    assert classify(agent(heartbeat=heartbeat(expires_at=NOW)), fleet(), NOW).state is State.STRANDED
    assert classify(agent(heartbeat=heartbeat(expires_at=NOW + 0.001)), fleet(), NOW).state is State.HEALTHY


@pytest.mark.parametrize(("age", "state"), [(9.999, State.HEALTHY), (10.0, State.UNKNOWN)])
def test_tunnels_are_live_for_two_polls_or_the_minimum(age: float, state: State) -> None:
    """A report of age `tunnels_live_for` or more does not count."""
    fleet_evidence = fleet(
        tunnel_freshness={PROXY_1: FeedFreshness(NOW, NOW - age), PROXY_2: FeedFreshness(NOW, NOW)}
    )
    assert classify(agent(), fleet_evidence, NOW).state is state


@pytest.mark.parametrize(("age", "stale"), [(9.999, False), (10.0, True)])
def test_presence_is_stale_from_stale_after(age: float, stale: bool) -> None:
    """A failed attempt is fresh evidence too."""
    assert (
        prepare_frame(fleet(presence_freshness=FeedFreshness(NOW - age, None)), NOW).presence_stale is stale
    )
    assert not prepare_frame(fleet(presence_freshness=FeedFreshness(NOW, None)), NOW).presence_stale


@pytest.mark.parametrize(
    ("proxy_2", "feed", "is_covered"),
    [
        ({}, FeedFreshness(NOW, NOW), True),
        ({}, FeedFreshness(NOW, None), False),
        (UNHEALTHY, FeedFreshness(NOW, None), False),
        (SILENT, FeedFreshness(NOW, None), True),
        (DEREGISTERED, FeedFreshness(NOW, None), True),
        ({**UNPOLLED, **EXPIRED}, FeedFreshness(), True),
        (UNPOLLED, FeedFreshness(), False),
    ],
)
def test_tunnel_reports_are_complete_if_no_proxy_can_hide_tunnels(
    proxy_2: dict[str, Any], feed: FeedFreshness, is_covered: bool
) -> None:
    """An agent has no tunnel only if every proxy that can have one has reported."""
    fleet_evidence = fleet(
        proxy_2=proxy_2, tunnel_freshness={PROXY_1: FeedFreshness(NOW, NOW), PROXY_2: feed}
    )
    assert prepare_frame(fleet_evidence, NOW).has_all_tunnel_reports is is_covered


def test_empty_fleet_covers_nothing() -> None:
    """Without known instances all agents are unknown."""
    empty = fleet(instances={}, tunnel_freshness={}, presence_freshness=FeedFreshness())
    assert not prepare_frame(empty, NOW).has_all_tunnel_reports
    assert classify(agent(), empty, NOW).state is State.UNKNOWN
    assert classify(
        agent(heartbeat=None, tunnels=(), last_proxies=(), had_tunnel=False), empty, NOW
    ).state is (State.UNKNOWN)


def test_unknown_index_has_a_state_and_a_name() -> None:
    """Its state is unknown, and its name contains the index."""
    frame = prepare_frame(fleet(), NOW)
    assert frame.state_of(77) is InstanceState.UNKNOWN
    assert frame.name_of(77) == "instance 77"
    assert frame.name_of(PROXY_1) == "proxy-1"
