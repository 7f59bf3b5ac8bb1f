from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fleet.models.clusters import ensure_default_cluster
from fleet.models.history import BACKEND_CAUSE_KEY, LAST_PROXY_BIT
from fleet.monitoring.columns import NO_INSTANCE, RECOVERY_SHIFT, ResourcePresence
from fleet.monitoring.history.change_rows import (
    EVIDENCE_TAIL,
    RowKeys,
    agent_change_rows_of,
    instance_change_rows_of,
    read_agent_keys,
    read_instance_keys,
)
from fleet.monitoring.state.outbox import (
    AGENT_CHANGE,
    BACKEND_INDEX,
    CLUSTER_INDEX,
    INSTANCE_CHANGE,
    RoundChanges,
)
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import BACKEND_CAUSE, NO_CAUSE, Reason, Recovery, State
from tests.fakes.history_rows import agent_key, instance_key

AT = 1_700_000_000.0
#: Agents 0 to 3 have the keys 10 to 13, agent 4 has no row; instances 0 to 3 have the keys 20 to 23.
AGENT_KEYS = np.array([10, 11, 12, 13, 0])
_REASON_AND_RECOVERY = Reason.NO_TUNNEL | Recovery.BY_ITSELF << RECOVERY_SHIFT


def _keys() -> RowKeys:
    instances = np.zeros(0x1_0000, np.int64)
    instances[:4] = [20, 21, 22, 23]
    instances[BACKEND_CAUSE] = BACKEND_CAUSE_KEY
    return RowKeys(AGENT_KEYS, instances)


def _changes(
    rows: Sequence[tuple[int, float, int, int, int, int]],
    proxies: Sequence[int] = (),
    *,
    has_places: bool = True,
) -> RoundChanges:
    """Return changes to `stranded` from (agent, recovers_at, cause, auth, proxy, tunnel_count)."""
    packed_rows = [
        (
            agent,
            recovers_at,
            cause,
            auth,
            proxy,
            State.HEALTHY,
            State.STRANDED,
            _REASON_AND_RECOVERY,
            tunnel_count,
            NO_INSTANCE,
            ResourcePresence.NOT_RECORDED,
            0.0,
        )
        for agent, recovers_at, cause, auth, proxy, tunnel_count in rows
    ]
    return RoundChanges(
        7,
        AT,
        agent_changes=np.array(packed_rows, AGENT_CHANGE),
        proxies=np.array(proxies, np.uint16),
        has_places=has_places,
    )


def test_change_has_keys_and_numbers() -> None:
    """Indices become keys; the backend and no cause have keys of their own."""
    rows = [
        *agent_change_rows_of(_changes([(1, AT + 2.5, 2, 0, 3, 0), (2, 0, BACKEND_CAUSE, 1, 3, 0)]), _keys())
    ]
    assert [(row.agent_id, row.at, row.cause, row.auth) for row in rows] == [
        (11, AT, 22, 20),
        (12, AT, -1, 21),
    ]
    assert (rows[0].old, rows[0].new, rows[0].reason, rows[0].recovery) == (
        *(State.HEALTHY, State.STRANDED, Reason.NO_TUNNEL, Recovery.BY_ITSELF),
    )
    assert [row.recovers_at for row in rows] == [AT + 2.5, None]


def test_agent_without_a_row_is_left_out() -> None:
    """It has no key, or its index is newer than the record that was read."""
    rows = agent_change_rows_of(_changes([(4, 0, NO_CAUSE, 0, 3, 0), (9, 0, NO_CAUSE, 0, 3, 0)]), _keys())
    assert [*rows] == []


def test_proxies_begin_with_that_of_the_newest_tunnel() -> None:
    """Without a tunnel the last proxy is marked; without any proxy there is no entry."""
    changes = _changes(
        [
            (0, 0, NO_CAUSE, 0, 3, 2),
            (1, 0, NO_CAUSE, 0, 2, 0),
            (2, 0, NO_CAUSE, 0, NO_INSTANCE, 0),
            (3, 0, NO_CAUSE, 0, 2, 1),
        ],
        [2, 3, 2],
    )
    packed_rows = [
        np.frombuffer(row.proxies or b"", "<u4").tolist() for row in agent_change_rows_of(changes, _keys())
    ]
    assert packed_rows == [[23, 22], [22 | LAST_PROXY_BIT], [], [22]]


def test_change_of_an_earlier_version_has_no_places() -> None:
    """Not recorded is not the same as none."""
    (row,) = agent_change_rows_of(
        _changes([(0, 0, NO_CAUSE, NO_INSTANCE, NO_INSTANCE, 0)], has_places=False), _keys()
    )
    assert (row.auth, row.proxies) == (None, None)


@pytest.mark.parametrize(
    ("state", "evidence", "strands_at", "via_proxy", "packed_evidence"),
    [
        (State.HEALTHY, ResourcePresence.NOT_RECORDED, 0.0, NO_INSTANCE, None),
        (State.HEALTHY, ResourcePresence.UNEXPIRED | 0x54, 0.0, 2, b""),
        (State.STRANDED, ResourcePresence.EXPIRED | 0x154, 0.0, NO_INSTANCE, b"\x56\x01"),
        (State.AT_RISK, ResourcePresence.UNEXPIRED, AT + 2, 3, b"\x01\x00" + EVIDENCE_TAIL.pack(2000, 23)),
    ],
)
def test_evidence_takes_no_more_bytes_than_the_state_needs(
    state: State, evidence: int, strands_at: float, via_proxy: int, packed_evidence: bytes | None
) -> None:
    """None for a healthy agent; without a deadline and a proxy before the auth two."""
    changes = _changes([(1, 0, NO_CAUSE, 0, 3, 0)])
    row = changes.agent_changes[0]
    row["new"], row["evidence"], row["strands_at"], row["via_proxy"] = state, evidence, strands_at, via_proxy
    (change,) = agent_change_rows_of(changes, _keys())
    assert change.evidence == packed_evidence


def test_prediction_for_now_is_not_lost() -> None:
    """0 means no prediction; a distant one is capped."""
    changes = _changes(
        [(0, AT, NO_CAUSE, 0, 2, 0), (1, AT + 1e9, NO_CAUSE, 0, 2, 0), (2, AT - 3, NO_CAUSE, 0, 2, 0)]
    )
    assert [row.recovers_after_ms for row in agent_change_rows_of(changes, _keys())] == [1, 2**31 - 1, -3000]


def test_instance_changes_have_health_and_drain() -> None:
    """The backend and the cluster have names, but no health; an instance without an id is left out."""
    rows = np.array(
        [
            (2, InstanceState.OK, InstanceState.SILENT, 2, True),
            (BACKEND_INDEX, InstanceState.OK, InstanceState.SILENT, 0, False),
            (CLUSTER_INDEX, InstanceState.SILENT, InstanceState.OK, 0, False),
            (3, InstanceState.OK, InstanceState.SILENT, 0, False),
        ],
        INSTANCE_CHANGE,
    )
    changes = RoundChanges(7, AT, instance_changes=rows, instance_evidence=('{"readyz":503}', "", "", ""))
    change_rows = [*instance_change_rows_of("default", changes, lambda index: "p1" if index == 2 else "")]
    assert [row.evidence for row in change_rows] == ['{"readyz":503}', None, None]
    assert [(row.instance, row.old, row.new, row.health, row.is_draining) for row in change_rows] == [
        ("p1", "ok", "silent", "degraded", True),
        ("backend/default", "ok", "silent", "", None),
        ("cluster/default", "silent", "ok", "", None),
    ]


@pytest.mark.django_db
@pytest.mark.parametrize("agent_count", [2, 40])
def test_keys_are_read_by_id(agent_count: int) -> None:
    """Few agents are looked up, many are read at once; others of the record and of the database do not matter."""
    ensure_default_cluster()
    ids = [f"a{number}" for number in range(agent_count)]
    expected = {number: agent_key(ids[number]) for number in (1, 0)}
    agent_key("elsewhere")
    keys = read_agent_keys("default", ids, np.array([0, 1, 99], np.uint32))
    assert {number: int(key) for number, key in enumerate(keys) if key} == expected
    proxy = instance_key("p1")
    instance_keys = read_instance_keys("default", ["unknown", "p1"])
    assert instance_keys[:3].tolist() == [0, proxy, 0]
    assert (instance_keys[BACKEND_CAUSE], instance_keys[NO_CAUSE]) == (BACKEND_CAUSE_KEY, 0)
