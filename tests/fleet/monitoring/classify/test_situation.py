"""The situation of one agent, read from its evidence and the frame."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.monitoring.classify import prepare_frame
from fleet.monitoring.classify.situation import ResourceState, Situation, read_situation
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
    agent,
    fleet,
    heartbeat,
)


def situation(fleet_changes: dict[str, Any] | None = None, **agent_changes: Any) -> Situation:
    """Return the situation of the default agent with these changes to it and to the small fleet."""
    return read_situation(agent(**agent_changes), prepare_frame(fleet(**(fleet_changes or {})), NOW))


def test_recent_proxies_are_as_many_as_desired() -> None:
    """A mesh agent has the three proxies of its memory."""
    last = (PROXY_2, PROXY_1, 9)
    assert situation(last_proxies=last, heartbeat=heartbeat(desired_count=1)).recent_proxies == (PROXY_2,)
    assert situation(last_proxies=last, heartbeat=heartbeat(desired_count=2)).recent_proxies == (
        PROXY_2,
        PROXY_1,
    )
    assert situation(last_proxies=last, heartbeat=heartbeat(desired_count=0)).recent_proxies == last
    assert situation(last_proxies=last, heartbeat=None).recent_proxies == last
    assert situation(last_proxies=(), heartbeat=heartbeat(desired_count=2)).recent_proxies == (PROXY_1,)


def test_heartbeat_shows_life_only_after_the_loss() -> None:
    """After a heartbeat that was written before the loss (4 s ago) the agent may have died."""
    assert situation().has_live_heartbeat
    assert situation(lost_at=NOW - 6).has_live_heartbeat
    # A margin of one poll (1 s).
    assert not situation(lost_at=NOW - 5).has_live_heartbeat
    assert not situation(lost_at=NOW - 3).has_live_heartbeat
    assert not situation(heartbeat=heartbeat(expires_at=NOW - 1)).has_live_heartbeat


def test_only_instances_sick_at_the_loss_are_blamed() -> None:
    """A proxy that failed (2 s ago) more than 10 s after the loss did not cause it."""
    assert situation({"proxy_1": SILENT}, lost_at=NOW - 12).blamed_proxies == (PROXY_1,)
    assert situation({"proxy_1": SILENT}, lost_at=NOW - 12.001).blamed_proxies == ()
    assert situation({"proxy_1": SILENT}).blamed_proxies == (PROXY_1,)
    expired_heartbeat = heartbeat(expires_at=NOW - 12)
    assert situation({"auth_1": UNHEALTHY}, heartbeat=expired_heartbeat).blamed_carrier == AUTH_1
    assert situation({"auth_1": UNHEALTHY}, heartbeat=heartbeat(expires_at=NOW - 13)).blamed_carrier is None


def test_last_auth_is_used_without_a_heartbeat() -> None:
    """The last auth of the memory."""
    assert situation(heartbeat=None, last_auth=AUTH_1).auth == AUTH_1
    assert situation({"auth_1": UNHEALTHY}, heartbeat=None).blamed_carrier == AUTH_1


@pytest.mark.parametrize(
    ("desired_count", "tracked_count", "expected_count"),
    [(1, 9, 1), (2, 9, 2), (5, 9, 2), (0, 9, 2), (0, 1, 1), (0, 0, 2), (2, 1, 2)],
)
def test_effective_desired_count_is_capped_by_the_proxies(
    desired_count: int, tracked_count: int, expected_count: int
) -> None:
    """By the number of proxies (2 here), and in a mesh by the tracked ones."""
    assert (
        situation(
            heartbeat=heartbeat(desired_count=desired_count, tracked_count=tracked_count)
        ).effective_desired_count
        == expected_count
    )


@pytest.mark.parametrize(
    ("facts", "of_two", "of_mesh"),
    [
        ({**SILENT, **EXPIRED}, 2, 1),
        (EXPIRED, 2, 1),
        ({**UNPOLLED, **EXPIRED}, 1, 1),
        (DEREGISTERED, 1, 1),
        (SILENT, 2, 2),
    ],
)
def test_effective_desired_count_is_not_lowered_by_a_failed_proxy(
    facts: dict[str, Any], of_two: int, of_mesh: int
) -> None:
    """Until the proxy is deregistered or no longer polled; in a mesh an expired proxy does not count."""
    fleet_changes = {"proxy_2": facts}
    assert situation(fleet_changes, heartbeat=heartbeat(desired_count=2)).effective_desired_count == of_two
    assert situation(fleet_changes, heartbeat=heartbeat(desired_count=0)).effective_desired_count == of_mesh


def test_resource_is_unclear_if_it_expired_unread() -> None:
    """No list response is newer than the expiry."""
    unread = {"presence_freshness": FeedFreshness(NOW, NOW - 60)}
    assert situation(unread, heartbeat=heartbeat(expires_at=NOW - 1)).resource is ResourceState.UNCLEAR
    assert situation(unread, heartbeat=None).resource is ResourceState.UNCLEAR
    assert situation(unread).resource is ResourceState.UNEXPIRED
    assert situation(heartbeat=None).resource is ResourceState.EXPIRED
