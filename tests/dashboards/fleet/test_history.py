from __future__ import annotations

import pytest

from dashboards.fleet import history
from fleet.alerts.backtest import AgentStateChange, InstanceStateChange
from fleet.models.clusters import Cluster, ensure_default_cluster
from fleet.models.history import InstanceChange
from fleet.vocabulary.verdicts import State
from tests.fakes.history_rows import create_agent_change, create_instance_change

pytestmark = pytest.mark.django_db

NOW = 1_800_000_000.0
DAY = 86400.0


@pytest.fixture(autouse=True)
def cluster() -> Cluster:
    return ensure_default_cluster()


def _agent(ago: float) -> None:
    create_agent_change("a", NOW - ago, State.HEALTHY, State.STRANDED, cause="p")


def _instance(ago: float, new: str = "silent", name: str = "p") -> None:
    create_instance_change(name, NOW - ago, "unknown", new, round(NOW - ago))


def test_history_has_the_requested_days_oldest_first() -> None:
    """What is older counts for how far it goes back only."""
    for ago in (60.0, 2 * DAY, 8 * DAY):
        _agent(ago)
    _instance(3 * DAY)
    points = history.read_backtest_history("default", NOW, 7, with_instances=False)
    assert points.agent_changes == [
        AgentStateChange(NOW - 2 * DAY, "a", "healthy", "stranded", "p", round(NOW - 2 * DAY) // 5),
        AgentStateChange(NOW - 60, "a", "healthy", "stranded", "p", round(NOW - 60) // 5),
    ]
    assert (list(points.instance_changes), points.days) == ([], 7)


def test_history_of_instances_is_as_long_as_instance_history() -> None:
    """An installation that has kept them for three days says so, however old its other history is."""
    _agent(8 * DAY)
    _instance(3 * DAY)
    points = history.read_backtest_history("default", NOW, 7, with_instances=True)
    assert points.instance_changes == [
        InstanceStateChange(NOW - 3 * DAY, "p", "silent", round(NOW - 3 * DAY))
    ]
    assert points.days == 3.0


def test_history_empty_or_young_claims_nothing() -> None:
    """None at all, and a quarter of an hour."""
    assert history.read_backtest_history("default", NOW, 7, with_instances=True).days == 0
    _instance(900)
    assert history.read_backtest_history("default", NOW, 7, with_instances=True).days == pytest.approx(
        900 / DAY
    )


def test_history_too_long_is_its_newest_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """And so many days it is."""
    monkeypatch.setattr(history, "_CHANGE_LIMIT", 2)
    for ago in (DAY, 2 * DAY, 3 * DAY):
        _agent(ago)
    points = history.read_backtest_history("default", NOW, 7, with_instances=False)
    assert [change.at for change in points.agent_changes] == [NOW - 2 * DAY, NOW - DAY]
    assert points.days == 2.0


def test_turns_of_an_instance_newest_first() -> None:
    """Its own ones, the last few."""
    _instance(500, name="other")
    for number in range(10):
        _instance(1000 - number, "ok" if number % 2 else "silent")
    lines = history.read_instance_state_changes("default", "p", NOW)
    assert len(lines) == 8
    assert (lines[0].new, lines[0].age_ms) == ("OK", 991_000)


def test_health_and_drain_of_an_instance_are_described() -> None:
    """What differs from the change before; of a change of the reason alone there is nothing to show."""
    for ago, health, is_draining in (
        (90, "", None),
        (80, "healthy", False),
        (70, "degraded", False),
        (60, "healthy", True),
        (50, "healthy", False),
    ):
        create_instance_change("p", NOW - ago, "ok", "ok", ago)
        InstanceChange.objects.filter(round=ago).update(health=health, is_draining=is_draining)
    rows = history.read_instance_state_changes("default", "p", NOW)
    assert [row.details for row in rows] == [
        ("draining ended",),
        ("destination health: healthy", "draining started"),
        ("destination health: degraded",),
    ]
    assert {(row.old, row.new) for row in rows} == {("", "OK")}
