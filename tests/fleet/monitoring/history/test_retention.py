from __future__ import annotations

import pytest
from django.db import connection

from fleet.models.history import AGENT_CHANGE_TABLE, AgentChange, FleetMinute, InstanceChange, Keyframe
from fleet.models.inventory import Agent
from fleet.models.partitions import day_of, list_loose_indexes, list_partition_days
from fleet.monitoring.history import keyframes, retention
from fleet.monitoring.history.past import columns_at, instances_at
from fleet.monitoring.history.past_columns import empty_columns
from fleet.monitoring.history.retention import (
    compact_past_days,
    create_partitions_ahead,
    delete_old_history,
)
from fleet.vocabulary.verdicts import State
from tests.fakes.history_rows import create_agent_change, create_instance_change

pytestmark = pytest.mark.django_db

DAY = 86400.0
#: Start of a day.
START = 1_700_006_400.0
SQLITE_ONLY = pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL deletes whole days")
POSTGRES_ONLY = pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has no partitions")


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_CHUNK_SIZE", 2)


@SQLITE_ONLY
def test_rows_before_the_limit_are_deleted() -> None:
    """In chunks; rows at the limit are kept."""
    for second in range(7):
        create_agent_change("a", START + second, State.HEALTHY, State.STRANDED)
    assert delete_old_history(START + 5) == 5
    assert sorted(AgentChange.objects.values_list("at", flat=True)) == [START + 5, START + 6]
    assert delete_old_history(START + 5) == 0


@POSTGRES_ONLY
def test_days_before_the_limit_are_dropped() -> None:
    """A day with a newer moment stays whole."""
    for day in range(3):
        create_agent_change("a", START + day * DAY, State.HEALTHY, State.STRANDED)
        create_agent_change("a", START + day * DAY + 1, State.STRANDED, State.HEALTHY)
    assert delete_old_history(START + 2 * DAY + 0.5) == 4
    assert list(AgentChange.objects.values_list("at", flat=True)) == [START + 2 * DAY + 1, START + 2 * DAY]
    assert len(list_partition_days(AGENT_CHANGE_TABLE)) == 1


def test_agent_keeps_its_first_and_last_change() -> None:
    """Of state: a move does not count. The first one stays, the last one follows the deletions."""
    create_agent_change("a", START, State.UNKNOWN, State.HEALTHY)
    create_agent_change("a", START + 1, State.HEALTHY, State.STRANDED, cause="p1", proxies=["p1"])
    create_agent_change("a", START + 2, State.STRANDED, State.STRANDED)
    create_agent_change("b", START + 2, State.HEALTHY, State.HEALTHY)
    delete_old_history(START + DAY)
    agent = Agent.objects.get(agent_id="a")
    assert agent.first_change is not None
    assert agent.last_deleted_change is not None
    assert (agent.first_change["at"], agent.last_deleted_change["at"]) == (START, START + 1)
    assert Agent.objects.get(agent_id="b").first_change is None
    create_agent_change("a", START + DAY, State.STRANDED, State.HEALTHY)
    delete_old_history(START + 2 * DAY)
    agent.refresh_from_db()
    assert (agent.first_change["at"], agent.last_deleted_change["at"]) == (START, START + DAY)


def test_moments_after_the_limit_stay_readable() -> None:
    """Changes from the keyframe on that the limit needs are kept, and the newest row of each instance."""
    create_agent_change("a", START - DAY, State.UNKNOWN, State.STRANDED)
    keyframe_content = keyframes.pack(empty_columns(START))
    for at in (START - 2 * DAY, START):
        Keyframe.objects.create(cluster_id="default", at=at, content=keyframe_content)
    create_agent_change("a", START + 1, State.HEALTHY, State.STRANDED)
    create_agent_change("a", START + 2 * DAY, State.STRANDED, State.HEALTHY)
    for at, instance in ((1.0, "p1"), (2.0, "p1"), (3.0, "p2"), (2 * DAY, "p2")):
        create_instance_change(instance, START + at, "unknown", "ok", round(at))
    # The changes of START - DAY, and the first one of p1.
    assert delete_old_history(START + 1.5 * DAY) == 2
    columns = columns_at("default", START + 1.6 * DAY)
    assert columns is not None
    assert columns.states.tolist() == [State.STRANDED]
    assert Keyframe.objects.count() == 1
    assert {*instances_at("default", START + 1.6 * DAY)} == {"p1", "p2"}
    assert InstanceChange.objects.count() == 3


def test_cluster_that_is_not_polled_any_more_keeps_no_changes_of_others() -> None:
    """Its keyframe is old, and nothing has happened since."""
    create_agent_change("a", START - 9 * DAY, State.UNKNOWN, State.STRANDED)
    Keyframe.objects.create(
        cluster_id="default", at=START - 10 * DAY, content=keyframes.pack(empty_columns(0.0))
    )
    assert delete_old_history(START) == 1


def test_old_counts_are_deleted() -> None:
    """With the other history."""
    create_instance_change("p1", START, "unknown", "ok")
    for minute in range(3):
        FleetMinute.objects.create(
            cluster_id="default",
            at=START + minute * 60,
            state_counts=b"",
            stranded_peak=0,
            at_risk_peak=0,
            groups=b"",
        )
    delete_old_history(START + 120)
    assert FleetMinute.objects.get().at == START + 120


def test_partitions_exist_for_the_next_days() -> None:
    """On PostgreSQL; running it again creates none."""
    for _ in range(2):
        create_partitions_ahead(START + 60)
    days = [day.isoformat() for day in list_partition_days(AGENT_CHANGE_TABLE)]
    assert days == ([] if connection.vendor == "sqlite" else ["2023-11-15", "2023-11-16", "2023-11-17"])


def test_days_before_yesterday_are_compacted() -> None:
    """To which nothing is added any more; their rows stay."""
    for day in range(4):
        create_agent_change("a", START + day * DAY, State.HEALTHY, State.STRANDED)
    compact_past_days(START + 3 * DAY + 1)
    loose_indexes = list_loose_indexes(AGENT_CHANGE_TABLE, day_of(START + 4 * DAY))
    open_days = [] if connection.vendor == "sqlite" else [day_of(START + day * DAY) for day in (2, 3)]
    assert loose_indexes == [f"{AGENT_CHANGE_TABLE}_{day:%Y%m%d}_pkey" for day in open_days]
    assert AgentChange.objects.count() == 4
