from __future__ import annotations

import time
from datetime import timedelta

import pytest
from django.utils import timezone

from dashboards.alerts.runbooks.scopes import read_scope
from dashboards.shared import record_reader
from fleet.models.actions import DesiredPolicy
from fleet.models.changes import Change
from fleet.models.clusters import ensure_default_cluster
from fleet.models.history import FleetMinute
from fleet.models.incidents import Incident
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.runbooks import RunbookCause
from tests.fakes.policy_nodes import FakePolicyBook, PolicyNode
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db


@pytest.fixture
def group_incident(fake_reader: FakeReader) -> Incident:
    """An incident of the region in which proxy-1 fails."""
    fake_reader.proxy_state = InstanceState.SILENT
    return Incident.objects.create(
        cluster=ensure_default_cluster(), key="backend/default", cause_kind="cluster", cause_id="default",
        cause_name="cluster default", generation=1, state="firing", severity=2, opened_at=time.time() - 90,
    )  # fmt: skip


def test_incident_of_several_instances_lists_those_that_fail(group_incident: Incident) -> None:
    """No single instance is selected."""
    scope = read_scope("default", RunbookCause.CLUSTER, group_incident.pk, "", time.time())
    assert scope.remedies.instance is None
    assert [card.name for card in scope.failing_instances] == ["proxy-1"]
    assert (scope.suggestion, scope.unlisted_count) == (RunbookCause.CLUSTER, 0)


def test_comparison_begins_before_the_incident(group_incident: Incident) -> None:
    """If the history reaches back to that."""
    now = time.time()
    assert read_scope("default", RunbookCause.VERSION, group_incident.pk, "", now).remedies.compare_at == ""
    FleetMinute.objects.create(
        cluster_id="default", at=now - 3600, stranded_peak=0, at_risk_peak=0, state_counts=b"", groups=b""
    )
    scope = read_scope("default", RunbookCause.VERSION, group_incident.pk, "", now)
    assert scope.remedies.compare_at.endswith("Z")


def test_newest_change_that_can_be_undone_is_found(group_incident: Incident) -> None:
    """Of policies or the networking config; one that changed nothing, or never started, is none."""
    started_at = timezone.now() - timedelta(minutes=9)
    common = {"cluster_id": "default", "actor_name": "ada", "actor_kind": "person", "state": "verified"}
    DesiredPolicy.objects.create(cluster_id="default", target="auth", name="NAME", value="1")
    set_value = {"auth": {"NAME": "1"}}
    undoable, *_ = (
        Change.objects.create(kind=kind, before=before, after=set_value, started_at=at, title="t", **common)
        for kind, before, at in (
            ("policy", {}, started_at),
            ("policy", set_value, started_at + timedelta(minutes=1)),
            ("reconnect", {}, started_at + timedelta(minutes=2)),
            ("policy", {}, None),
        )
    )
    scope = read_scope("default", RunbookCause.VERSION, 0, "", time.time())
    assert scope.remedies.undoable_change == undoable.pk


def test_drift_names_the_instances_that_differ(
    fake_reader: FakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other runbooks do not read the policies; without a record none is known."""
    ensure_default_cluster()
    book = FakePolicyBook(auth_id_1=PolicyNode("auth-1"))
    monkeypatch.setattr(record_reader, "policy_report_store", lambda: book)
    assert read_scope("default", RunbookCause.DRIFT, 0, "", time.time()).remedies.drifted_instances == ()
    DesiredPolicy.objects.create(cluster_id="default", target="auth", name=AUTH_TTL_VARIABLE, value="5m")
    drifted_instances = (("auth-id-1", "auth-1"),)
    scope = read_scope("default", RunbookCause.DRIFT, 0, "", time.time())
    assert scope.remedies.drifted_instances == drifted_instances
    assert read_scope("default", RunbookCause.AUTH, 0, "", time.time()).remedies.drifted_instances == ()
    fake_reader.down = True
    assert read_scope("default", RunbookCause.DRIFT, 0, "", time.time()).remedies.drifted_instances == ()
