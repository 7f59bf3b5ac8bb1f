from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.models.clusters import Cluster, ensure_default_cluster
from fleet.models.history import LAST_PROXY_BIT, Keyframe
from fleet.monitoring.history import keyframes, past
from fleet.monitoring.history.change_rows import EVIDENCE_TAIL
from fleet.monitoring.history.past import (
    apply_changes,
    changes_of,
    columns_at,
    instances_at,
    read_changes,
    sort_changes,
)
from fleet.monitoring.history.past_columns import NOT_RECORDED, PastColumns, empty_columns
from fleet.vocabulary.verdicts import State
from tests.fakes.history_rows import agent_key, create_agent_change, create_instance_change, instance_key

#: One change: (seconds after the start, agent, cause, auth, recovers_after_ms, old, new, reason, recovery, proxies,
#: evidence).
_CHANGE = st.tuples(
    st.integers(1, 5), st.integers(1, 4), st.integers(-1, 3), st.none() | st.integers(0, 3),
    st.integers(-5, 5), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3),
    st.none() | st.lists(st.integers(1, 9), max_size=3) | st.just([LAST_PROXY_BIT | 5]),
    st.sampled_from((None, b"", b"\x02\x13", b"\x01\x00" + EVIDENCE_TAIL.pack(1500, 3))),
)  # fmt: skip


def _pack(changes: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return changes as the database has them, oldest first."""
    return [
        (*columns, None if proxies is None else np.array(proxies, "<u4").tobytes(), evidence)
        for *columns, proxies, evidence in sorted(changes, key=lambda change: change[0])
    ]


def _as_lists(columns: PastColumns) -> dict[str, Any]:
    return {
        column.name: content.tolist()
        if isinstance(content := getattr(columns, column.name), np.ndarray)
        else content
        for column in fields(columns)
    }


@given(st.lists(_CHANGE, max_size=12), st.integers(0, 6))
def test_keyframe_and_later_changes_equal_all_changes(changes: list[tuple[Any, ...]], second: int) -> None:
    """From any keyframe on, also a packed one, the result is that of applying one change after the other."""
    all_changes = _pack(changes)
    expected = empty_columns(0.0)
    for change in all_changes:
        expected = apply_changes(expected, changes_of([change]))
    keyframe = apply_changes(
        empty_columns(0.0), changes_of([change for change in all_changes if change[0] <= second])
    )
    keyframe = keyframes.unpack(keyframes.pack(keyframe), keyframe.at)
    later = changes_of([change for change in all_changes if change[0] > second])
    assert _as_lists(apply_changes(keyframe, later)) == _as_lists(expected)


def test_change_of_the_reason_keeps_since() -> None:
    """A state begins with the change to it, not with a move."""
    columns = apply_changes(
        empty_columns(0.0),
        changes_of(
            [
                (1, 7, 0, 2, 0, 9, 3, 1, 1, None, None),
                (2, 7, 0, 2, 0, 3, 3, 2, 1, None, None),
                (3, 8, 0, 2, 0, 9, 9, 2, 1, None, None),
            ]
        ),
    )
    assert columns.since.tolist() == [1, 3]
    assert columns.reasons.tolist() == [2, 2]
    assert columns.at == 3


def test_proxies_of_agents() -> None:
    """The current proxy is the block on the map, also after the last tunnel; "not recorded" is not "none"."""
    packed_proxies = np.array([4, 5], "<u4").tobytes()
    columns = apply_changes(
        empty_columns(0.0),
        changes_of(
            [
                (1, 7, 0, 2, 0, 9, 9, 0, 0, packed_proxies, None),
                (1, 8, 0, 2, 0, 9, 9, 0, 0, packed_proxies, None),
                (1, 9, 0, None, 0, 9, 9, 0, 0, packed_proxies, None),
                (2, 8, 0, 2, 0, 9, 3, 0, 0, np.array([6 | LAST_PROXY_BIT], "<u4").tobytes(), None),
                (2, 9, 0, None, 0, 9, 3, 0, 0, None, None),
            ]
        ),
    )
    assert columns.proxies.tolist() == [4, 6, 4]
    assert columns.tunnel_counts.tolist() == [2, 0, NOT_RECORDED]
    assert columns.tunnel_proxies.tolist() == [4, 5]
    assert columns.auths.tolist() == [2, 2, NOT_RECORDED]


@pytest.mark.django_db
def test_columns_at_a_moment_are_those_of_the_last_round_before() -> None:
    """From the newest keyframe before it; changes of other clusters are not read. None before the first keyframe."""
    ensure_default_cluster()
    Cluster.objects.create(id="other", name="Other")
    agents, proxy = [agent_key("a1"), agent_key("a2")], instance_key("p1")
    create_agent_change("a1", 100.0, State.UNKNOWN, State.HEALTHY)
    content = keyframes.pack(apply_changes(empty_columns(150.0), read_changes("default", 0.0, 150.0)))
    Keyframe.objects.create(cluster_id="default", at=150.0, content=content)
    create_agent_change(
        "a2", 200.5, State.HEALTHY, State.STRANDED, cause="p1", proxies=["p1"], recovers_at=230.0
    )
    create_agent_change("a1", 300.0, State.HEALTHY, State.OFFLINE)
    create_agent_change("a1", 210.0, State.HEALTHY, State.OFFLINE, cluster="other")
    assert columns_at("default", 149.0) is None
    early, late = columns_at("default", 200.0), columns_at("default", 299.9)
    assert early is not None
    assert late is not None
    assert (early.agents.tolist(), early.states.tolist()) == ([agents[0]], [State.HEALTHY])
    assert (late.agents.tolist(), late.states.tolist()) == (agents, [State.HEALTHY, State.STRANDED])
    assert (late.at, late.causes.tolist(), late.proxies.tolist()) == (200.5, [0, proxy], [0, proxy])
    assert late.recovers_at.tolist() == [0, 230.0]


@pytest.mark.django_db
def test_changes_are_read_in_order_across_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the last chunk is full; without changes there are none."""
    monkeypatch.setattr(past, "_CHUNK_SIZE", 2)
    for second in (3, 1, 4, 2):
        create_agent_change("a", second, State.HEALTHY, State.STRANDED, proxies=["p1"] * second)
    changes = read_changes("default", 0.0, 9.0)
    assert changes.rows["at"].tolist() == [1, 2, 3, 4]
    assert [len(proxies or b"") // 4 for proxies in changes.proxies] == [1, 2, 3, 4]
    assert len(read_changes("default", 9.0, 10.0).rows) == 0


@given(st.lists(_CHANGE, max_size=12))
def test_changes_in_any_order_are_sorted_with_their_columns(changes: list[tuple[Any, ...]]) -> None:
    """Changes of the same moment stay in their order."""
    unsorted_changes = changes_of(
        [(*columns, bytes(4 * row), bytes(row)) for row, (*columns, _, _) in enumerate(changes)]
    )
    sorted_changes = sort_changes(unsorted_changes)
    rows = sorted(range(len(changes)), key=lambda row: changes[row][0])
    assert sorted_changes.rows.tolist() == unsorted_changes.rows[rows].tolist()
    assert [len(proxies or b"") // 4 for proxies in sorted_changes.proxies] == rows
    assert [len(evidence or b"") for evidence in sorted_changes.evidence] == rows


@pytest.mark.django_db
def test_instances_at_a_moment() -> None:
    """The last change of each; an instance that changes later has none."""
    for at, instance, old, new in (
        (10.0, "p1", "unknown", "ok"),
        (20.0, "p1", "ok", "silent"),
        (20.0, "p2", "unknown", "ok"),
        (30.0, "p1", "silent", "ok"),
        (30.0, "p3", "unknown", "ok"),
    ):
        create_instance_change(instance, at, old, new, round(at))
    assert {name: row.new for name, row in instances_at("default", 29.0).items()} == {
        "p1": "silent",
        "p2": "ok",
    }
