from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fleet.models.clusters import Cluster, ensure_default_cluster
from fleet.models.history import FleetMinute
from fleet.monitoring.history import minutes
from fleet.monitoring.history.minutes import (
    count_changes_since,
    downsample,
    find_peak_time,
    read_groups,
    save_minutes,
    unpack_state_counts,
)
from fleet.monitoring.state.outbox import AGENT_CHANGE, GROUP_COUNT, GroupKind, RoundChanges
from fleet.vocabulary.verdicts import BACKEND_CAUSE, State
from tests.fakes.history_rows import create_agent_change

pytestmark = pytest.mark.django_db

#: Start of an hour.
START = 1_700_006_400.0
DAY = 86400.0
#: Instance 2 has the key 22.
KEYS = np.zeros(0x1_0000, np.int64)
KEYS[2], KEYS[BACKEND_CAUSE] = 22, -1


@pytest.fixture(autouse=True)
def _cluster() -> None:
    ensure_default_cluster()


def _rows(cluster: str = "default") -> list[FleetMinute]:
    return list(FleetMinute.objects.filter(cluster=cluster).order_by("at"))


def _round(
    at: float,
    stranded_count: int,
    *,
    groups: Sequence[tuple[int, int, int, int]] | None = None,
    change_count: int = 0,
) -> RoundChanges:
    counts = np.zeros(len(State), np.uint32)
    counts[State.STRANDED], counts[State.HEALTHY] = stranded_count, 9
    return RoundChanges(
        1,
        at,
        agent_changes=np.zeros(change_count, AGENT_CHANGE),
        state_counts=counts,
        group_counts=None if groups is None else np.array(groups, GROUP_COUNT),
    )


def test_minute_has_the_counts_of_its_first_round_and_the_maxima_of_all() -> None:
    """Also of rounds that are written later; a repeated round changes no count of agents."""
    first = _round(START + 2, 1, groups=[(GroupKind.PROXY, State.HEALTHY, 2, 9)])
    assert save_minutes("default", [first, _round(START + 7, 4, change_count=3)], KEYS)
    assert not save_minutes("default", [_round(START + 59, 2, change_count=2)], KEYS)
    assert save_minutes("default", [first], KEYS)
    (row,) = _rows()
    counts = unpack_state_counts(bytes(row.state_counts))
    assert (row.at, row.resolution) == (START, 60)
    assert (counts[State.STRANDED], counts[State.HEALTHY], row.stranded_peak) == (1, 9, 4)
    assert count_changes_since(START + 30) == 5


def test_peak_of_a_minute_is_found_in_its_changes() -> None:
    """Agents that recover within the minute were stranded before that, and new ones of another round do not hide it."""
    save_minutes("default", [_round(START + 2, 0, groups=[]), _round(START + 8, 2)], KEYS)
    for agent, at, old, new in (
        ("agent-1", 8, State.HEALTHY, State.STRANDED),
        ("agent-2", 8, State.HEALTHY, State.STRANDED),
        ("agent-1", 20, State.STRANDED, State.HEALTHY),
        ("agent-2", 25, State.STRANDED, State.HEALTHY),
        ("agent-3", 40, State.HEALTHY, State.STRANDED),
    ):
        create_agent_change(agent, START + at, old, new)
    assert find_peak_time("default", START) == START + 8


def test_peak_of_a_minute_that_only_recovers_is_its_start() -> None:
    """Just before the first recovery. Without any change its end shows the same; without a row there is no peak."""
    save_minutes("default", [_round(START + 60 * n, 2, groups=[]) for n in range(2)], KEYS)
    create_agent_change("agent-1", START + 20, State.STRANDED, State.HEALTHY)
    create_agent_change("agent-2", START + 30, State.STRANDED, State.HEALTHY)
    create_agent_change("agent-1", START + 40, State.HEALTHY, State.STRANDED)
    assert find_peak_time("default", START) == pytest.approx(START + 19.999, abs=1e-6)
    assert find_peak_time("default", START + 60) == START + 120
    assert find_peak_time("default", START + 120) is None
    assert find_peak_time("default", START - 1) is None


def test_peak_of_a_minute_that_became_part_of_an_hour() -> None:
    """Links of the minute lead to the peak of its row; moves and other states do not count."""
    FleetMinute.objects.create(
        cluster_id="default",
        at=START,
        resolution=3600,
        state_counts=b"",
        stranded_peak=1,
        at_risk_peak=0,
        groups=b"",
    )
    for agent, at, old, new in (
        ("agent-1", 10, State.HEALTHY, State.AT_RISK),
        ("agent-1", 700, State.AT_RISK, State.STRANDED),
        ("agent-1", 710, State.STRANDED, State.STRANDED),
        ("agent-1", 720, State.STRANDED, State.HEALTHY),
    ):
        create_agent_change(agent, START + at, old, new)
    assert find_peak_time("default", START + 1800) == START + 700


def test_peak_without_affected_agents_is_the_end_of_the_row() -> None:
    """Also when agents changed otherwise."""
    save_minutes("default", [_round(START, 0, groups=[])], KEYS)
    create_agent_change("agent-1", START + 10, State.HEALTHY, State.DEGRADED)
    assert find_peak_time("default", START) == START + 60


def test_groups_have_keys_of_instances() -> None:
    """By kind; the backend is a cause, and no instance has the key 0."""
    groups = [
        (GroupKind.PROXY, State.HEALTHY, 2, 9),
        (GroupKind.CAUSE, State.STRANDED, BACKEND_CAUSE, 1),
        (GroupKind.CAUSE, State.HEALTHY, 0xFFFF, 8),
    ]
    save_minutes("default", [_round(START, 1, groups=groups)], KEYS)
    ((at, rows),) = read_groups("default", GroupKind.CAUSE, START, START + 60)
    assert at == START
    assert rows[["state", "instance", "count"]].tolist() == [(State.STRANDED, -1, 1), (State.HEALTHY, 0, 8)]
    assert [len(rows) for _, rows in read_groups("default", GroupKind.AUTH, START, START + 60)] == [0]


def test_minute_without_agents_is_recorded() -> None:
    """A gap means that there is no data."""
    save_minutes("default", [_round(START, 0, groups=[])], KEYS)
    assert [row.at for row in _rows()] == [START]


@pytest.mark.parametrize("row_limit", [2000, 12])
def test_old_rows_become_coarser(row_limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """10 minutes after a week and an hour after 30 days: the last counts, the highest maxima; also in small batches."""
    monkeypatch.setattr(minutes, "_ROW_LIMIT", row_limit)
    Cluster.objects.create(id="other", name="Other")
    for minute in range(25):
        for cluster in ("default", "other"):
            save_minutes(cluster, [_round(START + minute * 60, minute % 7, groups=[], change_count=1)], KEYS)
    assert downsample(START + 7 * DAY + 600) == 20
    rows = _rows()
    assert [(row.at - START, row.resolution) for row in rows] == [
        (0, 600),
        *((m * 60, 60) for m in range(10, 25)),
    ]
    assert (unpack_state_counts(bytes(rows[0].state_counts))[State.STRANDED], rows[0].stranded_peak) == (
        9 % 7,
        6,
    )
    downsample(START + 31 * DAY)
    (row,) = _rows("other")
    assert (
        row.resolution,
        unpack_state_counts(bytes(row.state_counts))[State.STRANDED],
        row.stranded_peak,
    ) == (3600, 24 % 7, 6)
    assert FleetMinute.objects.get(cluster="other").change_count == 25
    assert downsample(START + 31 * DAY) == 0
