from __future__ import annotations

import numpy as np
import pytest

from fleet.models.clusters import ensure_default_cluster
from fleet.models.history import FleetMinute
from fleet.monitoring.history import minute_columns
from fleet.monitoring.history.minute_columns import (
    group_columns_of,
    iterate_stranded_columns,
    read_count_columns,
    read_recorded_range,
)
from fleet.monitoring.history.minutes import pack_groups
from fleet.monitoring.state.outbox import GROUP_COUNT, GroupKind
from fleet.vocabulary.verdicts import State

pytestmark = pytest.mark.django_db

#: Start of an hour.
START = 1_700_006_400.0


@pytest.fixture(autouse=True)
def _cluster() -> None:
    ensure_default_cluster()


def _pack(*groups: tuple[int, int, int, int]) -> bytes:
    return pack_groups(np.array([*groups], GROUP_COUNT), np.arange(100))


def _save(at: float, stranded_count: int = 0, resolution: int = 60, groups: bytes = b"") -> None:
    FleetMinute.objects.create(
        cluster_id="default", at=at, resolution=resolution, state_counts=bytes([stranded_count, 0, 0, 0]),
        stranded_peak=stranded_count, at_risk_peak=stranded_count + 1, groups=groups,
    )  # fmt: skip


def test_counts_that_overlap_the_range() -> None:
    """A long row may begin before it; the end is not in it; oldest first."""
    _save(START - 3600, 1, 3600)
    _save(START + 60, 3)
    _save(START, 2)
    _save(START + 120, 4)
    columns = read_count_columns("default", START - 60, START + 120)
    assert columns.stranded_peaks.tolist() == [1, 2, 3]
    assert columns.at_risk_peaks.tolist() == [2, 3, 4]
    assert columns.ends.tolist() == [START, START + 60, START + 120]
    assert columns.state_counts[1] == bytes([2, 0, 0, 0])
    # A row that ends where the range begins is not in it.
    assert read_count_columns("default", START, START + 60).stranded_peaks.tolist() == [2]
    assert not len(read_count_columns("other", START, START + 60).starts)


def test_groups_of_several_rows_are_one_table() -> None:
    """Each entry has the position of its row; rows without groups have no entries."""
    columns = group_columns_of([
        (START, 60, _pack((GroupKind.PROXY, State.STRANDED, 7, 12), (GroupKind.AUTH, State.HEALTHY, 8, 3))),
        (START + 60, 60, b""),
        (START + 120, 600, _pack((GroupKind.CAUSE, State.AT_RISK, 9, 70_000))),
    ])  # fmt: skip
    assert columns.positions.tolist() == [0, 0, 2]
    assert columns.groups["kind"].tolist() == [GroupKind.PROXY, GroupKind.AUTH, GroupKind.CAUSE]
    assert columns.groups["instance"].tolist() == [7, 8, 9]
    assert columns.groups["count"].tolist() == [12, 3, 70_000]
    assert columns.durations.tolist() == [60, 60, 600]


def test_groups_with_stranded_agents_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that 90 days of 100 proxies are never unpacked at once."""
    monkeypatch.setattr(minute_columns, "_CHUNK_SIZE", 2)
    _save(START + 360, 0, groups=_pack((GroupKind.PROXY, State.HEALTHY, 7, 9)))
    for minute in range(5):
        _save(START + 60 * minute, 1, groups=_pack((GroupKind.PROXY, State.STRANDED, 7, minute)))
    parts = list(iterate_stranded_columns("default", START + 60, START + 600))
    # The first part begins before the range: it has the minute that ends where the range begins.
    assert [part.groups["count"].tolist() for part in parts] == [[1], [2, 3], [4]]


def test_recorded_range() -> None:
    """From the start of the oldest to the end of the newest row."""
    assert read_recorded_range("default") is None
    _save(START, resolution=3600)
    _save(START + 7200, resolution=600)
    assert read_recorded_range("default") == (START, START + 7800)
