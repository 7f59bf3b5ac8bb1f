from __future__ import annotations

import pytest

from dashboards.instances import records
from fleet.models.changes import Change
from fleet.models.clusters import ensure_default_cluster
from fleet.models.incidents import Incident
from fleet.vocabulary.instances import InstanceFacts, InstanceKind
from tests.fakes.history_rows import create_instance_change, instance_key

pytestmark = pytest.mark.django_db
NOW = 1_700_000_000.0


def test_changes_that_name_the_instance() -> None:
    """Of its service, of its policies, and campaigns that agents leave it in; newest first."""
    ensure_default_cluster()

    def create(title: str, kind: str, **fields: object) -> Change:
        return Change.objects.create(
            cluster_id="default", kind=kind, title=title, actor_name="ada", actor_kind="user", **fields
        )

    create("Drain proxy-1", "service", after={"instance": "proxy-1-id"})
    create("Drain proxy-2", "service", after={"instance": "proxy-2-id"})
    create("Reconnect", "reconnect", parameters={"instances_to_leave": ["proxy-1-id", "x"]})
    create("Reconnect others", "reconnect", parameters={"instances_to_leave": ["x"]})
    create("Own values", "policy", after={"proxy-1-id": {"NAME": "1"}})
    rollout = create("Rollout", "policy", after={"proxy": {"NAME": "1"}})
    for position, instance_id in enumerate(("proxy-1-id", "proxy-2-id")):
        rollout.rollout_steps.create(position=position, instance_id=instance_id, name=instance_id)
    titles = [change.title for change in records.read_changes("default", "proxy-1-id", NOW)]
    assert titles == ["Rollout", "Own values", "Reconnect", "Drain proxy-1"]


def test_start_of_a_state() -> None:
    """The first change to it after another state; changes of the reason alone do not begin it anew."""
    for number, (at, old, new) in enumerate(
        [(10.0, "unknown", "ok"), (20.0, "ok", "silent"), (30.0, "silent", "ok"), (40.0, "ok", "ok")]
    ):
        create_instance_change("proxy-1-id", NOW + at, old, new, number)
    assert records.read_state_since("default", "proxy-1-id", "ok", NOW + 99) == NOW + 30
    assert records.read_state_since("default", "proxy-1-id", "ok", NOW + 15) == NOW + 10
    assert records.read_state_since("default", "proxy-1-id", "gone", NOW + 99) is None


def test_incidents_of_the_instance_and_its_region() -> None:
    """Open ones first; pending ones and those of other regions are not in it."""
    ensure_default_cluster()

    def create(kind: str, cause_id: str, state: str, opened_at: float) -> int:
        return Incident.objects.create(
            cluster_id="default", key=f"{kind}/{cause_id}", cause_kind=kind, cause_id=cause_id,
            cause_name=cause_id, generation=opened_at, state=state, severity=1, opened_at=opened_at,
        ).pk  # fmt: skip

    own = create("proxy", "proxy-1-id", "resolved", 30.0)
    create("proxy", "proxy-2-id", "firing", 40.0)
    region = create("region", "north", "firing", 20.0)
    create("region", "south", "firing", 21.0)
    create("backend", "default", "firing", 22.0)
    create("proxy", "proxy-1-id", "pending", 50.0)
    facts = InstanceFacts("proxy-1-id", 2, InstanceKind.PROXY, "proxy-1", "", region="north")
    assert [incident.number for incident in records.read_incidents("default", facts, NOW)] == [region, own]


def test_day_has_the_change_before_it() -> None:
    """The state at the start of the 24 h is that of the last change before them."""
    instance_key("proxy-1-id")
    create_instance_change("proxy-1-id", NOW - 100_000, "unknown", "ok", 1)
    create_instance_change("proxy-1-id", NOW - 100, "ok", "silent", 2)
    day = records.read_day("default", "proxy-1-id", InstanceKind.PROXY, NOW)
    assert [period.label for period in day.lanes[0].periods] == ["OK", "not responding"]
    assert day.range_text == "24 h"
