"""Tables of instance conditions by index."""

from __future__ import annotations

from fleet.monitoring.classify import prepare_frame
from fleet.monitoring.classify.tables import (
    CUT_OFF,
    DEGRADED,
    DESIRED,
    FEED_FRESH,
    KEEPS_CONNECTIONS,
    LIVE,
    SICK,
    UNREAD,
)
from fleet.monitoring.columns import NO_INSTANCE
from fleet.vocabulary.instances import InstanceState
from tests.fakes.small_fleet import AUTH_1, NOW, PROXY_1, PROXY_2, SILENT, UNHEALTHY, fleet


def test_tables_equal_the_conditions() -> None:
    """Flags, states and times."""
    frame = prepare_frame(
        fleet(proxy_1=UNHEALTHY, proxy_2=SILENT, degraded_instances=frozenset({PROXY_1})), NOW
    )
    tables = frame.tables
    assert tables.flags[PROXY_1] == SICK | LIVE | DESIRED | FEED_FRESH | KEEPS_CONNECTIONS | DEGRADED
    assert tables.flags[PROXY_2] == SICK | DESIRED | FEED_FRESH | CUT_OFF
    assert tables.flags[AUTH_1] == 0
    assert tables.states[PROXY_2] == InstanceState.SILENT
    assert tables.since[PROXY_1] == NOW - 2
    assert tables.expires_at[PROXY_1] == NOW + 7


def test_tables_of_unknown_indices() -> None:
    """Unknown indices are unread, not sick."""
    tables = prepare_frame(fleet(), NOW).tables
    for index in (77, NO_INSTANCE):
        assert tables.flags[index] == UNREAD
        assert tables.states[index] == InstanceState.UNKNOWN


def test_tables_have_the_causes_of_proxies_behind_a_sick_auth() -> None:
    """For other instances the cause is the index itself."""
    sick = {**UNHEALTHY, "heartbeat_auth": "uuid-auth-1"}
    tables = prepare_frame(fleet(auth_1=UNHEALTHY, proxy_1=sick), NOW).tables
    assert tables.causes[[AUTH_1, PROXY_1, PROXY_2, NO_INSTANCE]].tolist() == [
        *(AUTH_1, AUTH_1, PROXY_2, NO_INSTANCE)
    ]
    assert tables.moves_at[PROXY_1] == NOW + 10
    assert tables.moves_at[PROXY_2] == 0
