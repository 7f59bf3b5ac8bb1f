"""Markers of a time range: what overlaps it, and how many at most."""

from __future__ import annotations

import pytest

from dashboards.fleet import replay_markers
from dashboards.fleet.replay_markers import Marker, find_changes, find_incidents, find_started_changes
from fleet.models.changes import Change
from fleet.models.clusters import ensure_default_cluster
from fleet.models.history import InstanceChange
from fleet.models.incidents import Incident, VersionChange
from fleet.models.moments import to_moment
from fleet.models.networking import NetworkingRevision
from fleet.vocabulary.changes import ChangeKind, ChangeState
from fleet.vocabulary.incidents import IncidentState
from tests.fakes.history_rows import create_instance_change, instance_key

pytestmark = pytest.mark.django_db

NOW = 1_700_000_000.0


@pytest.fixture(autouse=True)
def cluster() -> None:
    """Create the cluster."""
    ensure_default_cluster()


def add_incident(name: str, opened_at: float, resolved_at: float | None, state: IncidentState) -> Incident:
    """Create an incident of an instance."""
    return Incident.objects.create(
        cluster_id="default",
        key=f"proxy/{name}",
        cause_kind="proxy",
        cause_id=f"{name}-id",
        cause_name=name,
        generation=1,
        state=state.value,
        severity=2,
        opened_at=opened_at,
        resolved_at=resolved_at,
        summary=f"{name} is not responding.",
    )


def add_change(title: str, start: float | None, end: float | None, state: ChangeState) -> Change:
    """Create a change."""
    return Change.objects.create(
        cluster_id="default",
        kind=next(iter(ChangeKind)).value,
        state=state.value,
        title=title,
        actor_name="ada",
        actor_kind="person",
        started_at=None if start is None else to_moment(start),
        ended_at=None if end is None else to_moment(end),
    )


def test_incidents_that_were_open_in_the_range() -> None:
    """Also when they began before it or have not ended; a pending one is none yet."""
    add_incident("before", NOW - 900, NOW - 800, IncidentState.RESOLVED)
    across = add_incident("across", NOW - 700, NOW - 500, IncidentState.RESOLVED)
    add_incident("open", NOW - 300, None, IncidentState.FIRING)
    add_incident("pending", NOW - 200, None, IncidentState.PENDING)
    add_incident("after", NOW - 50, None, IncidentState.FIRING)
    incidents = find_incidents("default", NOW - 600, NOW - 100)
    assert [(marker.title.split(": ")[1], marker.end) for marker in incidents] == [
        ("across is not responding", NOW - 500),
        ("open is not responding", None),
    ]
    assert (incidents[0].path, incidents[0].severity) == (f"/incidents/{across.pk}/", "critical")
    assert find_incidents("other", NOW - 600, NOW - 100) == []


def test_changes_in_the_range() -> None:
    """Changes that ran, configs of other programs, and version changes, in the order of time."""
    add_change("planned", None, None, ChangeState.PLANNED)
    add_change("earlier", NOW - 900, NOW - 800, ChangeState.VERIFIED)
    change = add_change("rollout", NOW - 700, NOW - 500, ChangeState.VERIFIED)
    add_change("running", NOW - 200, None, ChangeState.RUNNING)
    first = NetworkingRevision.objects.create(
        cluster_id="default", revision="1", document={}, at=to_moment(NOW - 400)
    )
    NetworkingRevision.objects.create(
        cluster_id="default", revision="2", document={}, previous=first, at=to_moment(NOW - 300)
    )
    for old, at in (("17.1", NOW - 250), ("", NOW - 240)):
        VersionChange.objects.create(
            cluster_id="default", instance_id="a", name="proxy-1", old=old, new="17.2", at=at
        )
    changes = find_changes("default", NOW - 600, NOW - 100)
    assert [marker.title.partition(": ")[2] or marker.title for marker in changes] == [
        "rollout",
        "Networking config revision 2",
        "version 17.1 to 17.2",
        "running",
    ]
    assert [marker.path for marker in changes] == [
        f"/changes/{change.pk}/",
        "/networking/",
        "",
        changes[3].path,
    ]
    assert (changes[3].end, changes[3].state) == (None, "running")
    assert find_started_changes("default", NOW - 600, NOW - 100) == [changes[0], changes[3]]


def test_marker_as_of_a_moment() -> None:
    """What happened later is left out: incidents were open then, and changes in progress."""
    incident = Marker("Incident 1: proxy-1", NOW - 300, NOW - 100, severity="critical")
    change = Marker("Change 1: rollout", NOW - 300, NOW - 100, state="verified")
    assert incident.as_of(NOW - 100) is incident
    assert (incident.as_of(NOW - 200).end, incident.as_of(NOW - 200).state) == (None, "")
    assert (change.as_of(NOW - 200).end, change.as_of(NOW - 200).state) == (None, "running")


def test_newest_markers_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of each kind is limited."""
    monkeypatch.setattr(replay_markers, "MAX_MARKERS", 3)
    for number in range(5):
        add_incident(f"proxy-{number}", NOW - 100 + number, None, IncidentState.FIRING)
        add_change(f"change-{number}", NOW - 100 + number, NOW, ChangeState.VERIFIED)
    assert [marker.start for marker in find_incidents("default", NOW - 200, NOW)] == [
        NOW - 98,
        NOW - 97,
        NOW - 96,
    ]
    assert [marker.start for marker in find_changes("default", NOW - 200, NOW)] == [
        NOW - 98,
        NOW - 97,
        NOW - 96,
    ]


def test_other_events_leave_no_change_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """History counts the same changes as Fleet now, however many versions changed since."""
    monkeypatch.setattr(replay_markers, "MAX_MARKERS", 3)
    add_change("rollout", NOW - 150, NOW - 140, ChangeState.VERIFIED)
    for number in range(5):
        VersionChange.objects.create(
            cluster_id="default", instance_id=f"i{number}", name="p", old="1", new="2", at=NOW - 100 + number
        )
    markers = find_changes("default", NOW - 200, NOW)
    assert [marker.is_change for marker in markers] == [True, False, False, False]
    assert [marker for marker in markers if marker.is_change] == find_started_changes(
        "default", NOW - 200, NOW
    )


def test_drains_and_deregistrations() -> None:
    """A drain also if it began before the range or has not ended; rows of an earlier version have none."""
    instance_key("proxy-1-id")
    for instance, ago, old, new, is_draining in (
        ("proxy-1-id", 900, "ok", "ok", True),
        ("proxy-2-id", 800, "ok", "ok", True),
        ("proxy-2-id", 700, "ok", "ok", False),
        ("proxy-1-id", 500, "ok", "unhealthy", True),
        ("proxy-1-id", 400, "ok", "ok", False),
        ("proxy-2-id", 300, "ok", "ok", True),
        ("proxy-3-id", 200, "ok", "gone", None),
        ("proxy-3-id", 100, "gone", "gone", None),
    ):
        change = create_instance_change(instance, NOW - ago, old, new, ago)
        InstanceChange.objects.filter(pk=change.pk).update(is_draining=is_draining)
    assert [
        (marker.title, marker.start - NOW, marker.end and marker.end - NOW)
        for marker in find_changes("default", NOW - 600, NOW)
    ] == [
        ("proxy-1: drain", -900, -400),
        ("proxy-2-id: drain", -300, None),
        ("proxy-3-id: deregistered", -200, -200),
    ]
