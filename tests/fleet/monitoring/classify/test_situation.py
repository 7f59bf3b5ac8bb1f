"""One agent's evidence, read against the frame."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.monitoring.classify import prepare_frame
from fleet.monitoring.classify.situation import ResourceState, Situation, read_situation
from fleet.monitoring.evidence import FeedFreshness
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


def situation(where: dict[str, Any] | None = None, **who: Any) -> Situation:
    """Read the usual agent, changed, in the small fleet, changed."""
    return read_situation(agent(**who), prepare_frame(fleet(**(where or {})), NOW))


def test_used_proxies_are_as_many_as_it_wants() -> None:
    """Only the proxies in use at the end are asked about; a mesh agent's are the three remembered."""
    last = (PROXY_2, PROXY_1, 9)
    assert situation(last_proxies=last, heartbeat=heartbeat(desired=1)).recent_proxies == (PROXY_2,)
    assert situation(last_proxies=last, heartbeat=heartbeat(desired=2)).recent_proxies == (PROXY_2, PROXY_1)
    assert situation(last_proxies=last, heartbeat=heartbeat(desired=0)).recent_proxies == last
    assert situation(last_proxies=last, heartbeat=None).recent_proxies == last
    assert situation(last_proxies=(), heartbeat=heartbeat(desired=2)).recent_proxies == (PROXY_1,)


def test_heartbeat_proves_life_only_after_the_loss() -> None:
    """A heartbeat written (4 s ago) before the tunnel was lost is that of an agent that may have died with it."""
    assert situation().has_live_heartbeat
    assert situation(lost_at=NOW - 6).has_live_heartbeat
    # One round (1 s) of margin: polls and clocks are not exact.
    assert not situation(lost_at=NOW - 5).has_live_heartbeat
    assert not situation(lost_at=NOW - 3).has_live_heartbeat
    assert not situation(heartbeat=heartbeat(expires_at=NOW - 1)).has_live_heartbeat


def test_blame_only_who_was_sick_when_it_was_lost() -> None:
    """A proxy that fell sick (2 s ago) more than a stale age (10 s) after the loss did not cause it."""
    assert situation({"proxy_1": SILENT}, lost_at=NOW - 12).blamed_proxies == (PROXY_1,)
    assert situation({"proxy_1": SILENT}, lost_at=NOW - 12.001).blamed_proxies == ()
    assert situation({"proxy_1": SILENT}).blamed_proxies == (PROXY_1,)
    expired = heartbeat(expires_at=NOW - 12)
    assert situation({"auth_1": UNHEALTHY}, heartbeat=expired).blamed_auth == AUTH_1
    assert situation({"auth_1": UNHEALTHY}, heartbeat=heartbeat(expires_at=NOW - 13)).blamed_auth is None


def test_last_auth_is_asked_about_when_the_resource_is_gone() -> None:
    """With no heartbeat left, the remembered auth stands in."""
    assert situation(heartbeat=None, last_auth=AUTH_1).auth == AUTH_1
    assert situation({"auth_1": UNHEALTHY}, heartbeat=None).blamed_auth == AUTH_1


@pytest.mark.parametrize(
    ("desired", "tracked", "wanted"),
    [(1, 9, 1), (2, 9, 2), (5, 9, 2), (0, 9, 2), (0, 1, 1), (0, 0, 2), (2, 1, 2)],
)
def test_wanted_is_capped_by_what_there_is(desired: int, tracked: int, wanted: int) -> None:
    """Nobody wants more tunnels than there are proxies (2 here), nor in a mesh than it has been told of."""
    assert situation(heartbeat=heartbeat(desired=desired, tracked=tracked)).effective_desired_count == wanted


@pytest.mark.parametrize(
    ("facts", "of_two", "of_mesh"),
    [
        ({**SILENT, **EXPIRED}, 2, 1),
        (EXPIRED, 2, 1),
        ({**UNPOLLED, **EXPIRED}, 1, 1),
        (GONE, 1, 1),
        (SILENT, 2, 2),
    ],
)
def test_wanted_is_not_lowered_by_a_proxy_that_fails(
    facts: dict[str, Any], of_two: int, of_mesh: int
) -> None:
    """Who wants two still does when one of two expires, until that one is gone or forgotten; a mesh lets it go."""
    where = {"proxy_2": facts}
    assert situation(where, heartbeat=heartbeat(desired=2)).effective_desired_count == of_two
    assert situation(where, heartbeat=heartbeat(desired=0)).effective_desired_count == of_mesh


def test_resource_is_unclear_when_it_ran_out_unread() -> None:
    """An expiry that no list has been answered after is neither."""
    unread = {"presence": FeedFreshness(NOW, NOW - 60)}
    assert situation(unread, heartbeat=heartbeat(expires_at=NOW - 1)).resource is ResourceState.UNCLEAR
    assert situation(unread, heartbeat=None).resource is ResourceState.UNCLEAR
    assert situation(unread).resource is ResourceState.UNEXPIRED
    assert situation(heartbeat=None).resource is ResourceState.EXPIRED
