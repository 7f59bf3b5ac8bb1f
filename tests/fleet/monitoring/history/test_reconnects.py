"""Reconnects in the history: moves to another auth, and tunnels that ended."""

from __future__ import annotations

import pytest

from fleet.models.clusters import ensure_default_cluster
from fleet.models.history import Keyframe
from fleet.monitoring.history import keyframes
from fleet.monitoring.history.past_columns import empty_columns
from fleet.monitoring.history.reconnects import ReconnectCounts, read_reconnect_counts
from fleet.vocabulary.verdicts import State
from tests.fakes.history_rows import create_agent_change

pytestmark = pytest.mark.django_db
SINCE, UNTIL = 1_000.0, 2_000.0


@pytest.fixture(autouse=True)
def history_since_500() -> None:
    """The history begins with a fleet without agents."""
    ensure_default_cluster()
    Keyframe.objects.create(cluster_id="default", at=500.0, content=keyframes.pack(empty_columns(500.0)))


def _record(agent: str, at: float, auth: str | None, *proxies: str) -> None:
    create_agent_change(agent, at, State.HEALTHY, State.HEALTHY, auth=auth, proxies=proxies)


def test_moves_and_ended_tunnels_are_counted() -> None:
    """From the last place before the period on; what begins is no reconnect."""
    _record("a", 900.0, "auth-1", "p1", "p2")
    _record("a", 1_100.0, "auth-2", "p2", "p3")
    _record("a", 1_200.0, "auth-1", "p2")
    _record("b", 1_300.0, "auth-1", "p1")
    _record("b", 1_400.0, "auth-1")
    _record("b", 1_500.0, "auth-1", "p1")
    assert read_reconnect_counts("default", SINCE, UNTIL) == ReconnectCounts(auth_count=2, tunnel_count=3)


def test_agent_between_two_auths_has_its_last_one() -> None:
    """A row without an auth is no move; the next auth is compared with the one before."""
    _record("a", 1_100.0, "auth-1", "p1")
    _record("a", 1_200.0, None, "p1")
    _record("a", 1_300.0, "auth-1", "p1")
    _record("a", 1_400.0, None, "p1")
    _record("a", 1_500.0, "auth-2", "p1")
    assert read_reconnect_counts("default", SINCE, UNTIL) == ReconnectCounts(auth_count=1)


def test_other_times_do_not_count() -> None:
    """Up to the end; nothing is known of a period before the history."""
    _record("a", 1_100.0, "auth-1", "p1")
    _record("a", UNTIL + 1, "auth-2", "p2")
    assert read_reconnect_counts("default", SINCE, UNTIL) == ReconnectCounts()
    assert read_reconnect_counts("default", 400.0, UNTIL) is None
