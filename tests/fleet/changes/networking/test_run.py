from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import grpc
import pytest
from django.contrib.auth.models import User

from fleet.changes import ChangeRefusedError, engine, runners
from fleet.changes.instance_dialer import AuthClient
from fleet.changes.networking import revisions
from fleet.changes.networking import run as networking_run
from fleet.changes.networking.run import NetworkingRunner
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import Cluster, ClusterLease
from fleet.models.networking import NetworkingReading, NetworkingRevision
from fleet.protocol.networking.config import NetworkingConfig
from fleet.vocabulary.changes import ChangeState
from tests.fakes.config_auth import ConfigAuth, run_config_auth
from tests.fakes.reader import FakeReader
from tests.fakes.step_contexts import create_step_context, record_snapshot_of
from tests.fleet.changes.conftest import NOW, actor_of

RECORD = record_snapshot_of(FakeReader(states=[], as_of=NOW.timestamp()), NOW.timestamp())


@pytest.fixture
def auth() -> Iterator[ConfigAuth]:
    """An auth on a real port."""
    with run_config_auth() as config_auth:
        yield config_auth


def _auths(auth: ConfigAuth) -> AuthClient:
    # The first auth is unreachable, so the second one is used.
    return AuthClient([("127.0.0.1:1", "auth"), (auth.address, "auth")], None, asyncio.run)


def _confirmed(cluster: Cluster, user: User, auth: ConfigAuth, **fields: object) -> Change:
    networking_run.read_config(cluster.pk, _auths(auth), NOW)
    current = revisions.require_current_revision(cluster.pk)
    config = replace(revisions.resource_of(current).config, **fields)  # type: ignore[arg-type] # fields by name
    change = revisions.plan_change(cluster.pk, current.revision, config, actor_of(user), NOW, RECORD)
    return engine.confirm(change, actor_of(user), reason="a test", typed_name="", now=NOW)


def _run(change: Change, auth: ConfigAuth, delay: timedelta = timedelta()) -> Change:
    _step(change, _auths(auth), delay)
    change.refresh_from_db()
    return change


def _step(change: Change, auths: AuthClient, delay: timedelta = timedelta()) -> None:
    NetworkingRunner().step(change, create_step_context((NOW + delay).timestamp, auth_client=auths))


def _stored(auth: ConfigAuth) -> NetworkingConfig:
    networking_run.read_config("default", _auths(auth), NOW)
    return revisions.resource_of(revisions.require_current_revision("default")).config


def test_run_updates_the_config_and_stores_the_revision(
    cluster: Cluster, alice: User, auth: ConfigAuth
) -> None:
    """Unknown fields are kept; the revision and the audit row contain author, reason and both configs."""
    auth.config.spec.MergeFromString(b"\x9a\x06\x01?")
    change = _run(_confirmed(cluster, alice, auth, keep_alive_interval=30.0), auth)
    assert change.state == ChangeState.VERIFIED
    assert auth.config.spec.keep_alive_interval == 30 * 10**9
    assert b"\x9a\x06\x01?" in auth.config.spec.SerializeToString()
    row = revisions.require_current_revision(cluster.pk)
    assert (row.revision, row.author, row.reason, row.change) == ("1+", "alice", "a test", change)
    assert row.previous is not None
    entry = AuditEntry.objects.get(action="networking-config.verified")
    assert (entry.reason, entry.before["spec"]["keep_alive_interval"]) == ("a test", "5m0s")
    assert entry.after["spec"]["keep_alive_interval"] == "30s"
    assert ClusterLease.objects.get().holder == ""


@pytest.mark.parametrize("stale_reads", [2, 100])
def test_run_does_not_read_back_the_cache_of_an_auth(
    cluster: Cluster, alice: User, auth: ConfigAuth, stale_reads: int
) -> None:
    """A read may return the config before the write for a moment; the response to the write counts if it lasts."""
    change = _confirmed(cluster, alice, auth, keep_alive_interval=30.0)
    auth.stale_reads = stale_reads
    change = _run(change, auth)
    assert (change.state, change.detail) == (ChangeState.VERIFIED, "written as revision 1+")


@pytest.mark.parametrize("stale_reads", [0, 2])
def test_run_with_a_lost_response_writes_once(
    cluster: Cluster, alice: User, auth: ConfigAuth, stale_reads: int
) -> None:
    """Another auth shows the config of the change, at once or after its cache: this is no conflict."""
    change = _confirmed(cluster, alice, auth, keep_alive_interval=30.0)
    auth.loses_response, auth.stale_reads = True, stale_reads
    port = auth.address.rpartition(":")[2]
    _step(change, AuthClient([(auth.address, "auth"), (f"localhost:{port}", "auth")], None, asyncio.run))
    change.refresh_from_db()
    assert (change.state, change.detail) == (ChangeState.VERIFIED, "written as revision 1+")
    assert auth.updates == 1


def test_run_after_a_concurrent_update_fails_without_writing(
    cluster: Cluster, alice: User, auth: ConfigAuth
) -> None:
    """The concurrent update is stored as a revision."""
    change = _confirmed(cluster, alice, auth, keep_alive_count_max=9)
    auth.update_concurrently(web_idle_timeout=60 * 10**9)
    assert _run(change, auth).state == ChangeState.FAILED
    assert "changed in the meantime" in change.detail
    assert _stored(auth).web_idle_timeout == 60.0
    assert auth.updates == 0
    assert engine.find_running_change(cluster.pk) is None


def test_run_fails_if_the_cluster_does_not_support_the_field(
    cluster: Cluster, alice: User, auth: ConfigAuth
) -> None:
    """The field is off when it is read back; later plans of the field are refused."""
    auth.drops_unknown_field = True
    fields = {
        "tunnel_strategy": "proxy_peering",
        "agent_connection_count": 1,
        "graceful_tunnel_closing": True,
    }
    change = _run(_confirmed(cluster, alice, auth, **fields), auth)
    assert (change.state, "does not support" in change.detail) == (ChangeState.FAILED, True)
    assert NetworkingReading.objects.get().knows_closing is False
    current = revisions.require_current_revision(cluster.pk)
    again = replace(revisions.resource_of(current).config, graceful_tunnel_closing=True)
    with pytest.raises(ChangeRefusedError) as refusal:
        revisions.plan_change(cluster.pk, current.revision, again, actor_of(alice), NOW, RECORD)
    assert set(refusal.value.problems) == {"graceful_tunnel_closing"}


def test_run_with_unreachable_auths_is_retried_and_then_fails(
    cluster: Cluster, alice: User, auth: ConfigAuth
) -> None:
    """After a minute a worker ends it."""
    change = _confirmed(cluster, alice, auth, keep_alive_count_max=9)
    auth.error_code = grpc.StatusCode.UNAVAILABLE
    assert _run(change, auth).state == ChangeState.RUNNING
    assert "retrying" in change.detail
    assert list(runners.find_due("fleet.tasks.look_after_networking", cluster.changes.all())) == [change]
    assert _run(change, auth, timedelta(minutes=2)).state == ChangeState.FAILED


def test_run_resumed_after_a_crash_writes_once(cluster: Cluster, alice: User, auth: ConfigAuth) -> None:
    """The next worker finds the config already written."""
    change = engine.start(_confirmed(cluster, alice, auth, keep_alive_count_max=9), NOW)
    auth.update_concurrently(keep_alive_count_max=9)
    assert _run(change, auth).state == ChangeState.VERIFIED
    assert auth.updates == 0


@pytest.mark.parametrize("status", [grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.PERMISSION_DENIED])
def test_run_refused_by_the_auth_fails_with_its_error(
    cluster: Cluster, alice: User, auth: ConfigAuth, status: grpc.StatusCode
) -> None:
    """The detail contains the error of the auth."""
    change = _confirmed(cluster, alice, auth, keep_alive_count_max=9)
    auth.error_code = status
    assert _run(change, auth).state == ChangeState.FAILED
    assert "because" in change.detail


def test_run_by_a_second_worker_with_an_old_row_does_nothing(
    cluster: Cluster, alice: User, auth: ConfigAuth
) -> None:
    """Both workers saw the change as confirmed: the audit log has one start, and none that was refused."""
    change = _confirmed(cluster, alice, auth, keep_alive_count_max=9)
    old_row = Change.objects.get(pk=change.pk)
    assert _run(change, auth).state == ChangeState.VERIFIED
    assert _run(old_row, auth).state == ChangeState.VERIFIED
    assert auth.updates == 1
    starts = AuditEntry.objects.filter(change_id=change.pk, action="networking-config.start")
    assert [entry.outcome for entry in starts] == ["succeeded"]


def test_run_waits_while_another_change_runs(cluster: Cluster, alice: User, auth: ConfigAuth) -> None:
    """The detail names the running change."""
    first = _confirmed(cluster, alice, auth, keep_alive_count_max=9)
    second = _confirmed(cluster, alice, auth, keep_alive_count_max=8)
    engine.start(first, NOW)
    assert _run(second, auth).state == ChangeState.CONFIRMED
    assert f"change {first.pk} by alice is running in cluster default" in second.detail


def test_read_records_external_writes_and_errors(cluster: Cluster, auth: ConfigAuth) -> None:
    """An external write is in the audit log; a read error is stored."""
    networking_run.read_config(cluster.pk, _auths(auth), NOW)
    auth.update_concurrently(keep_alive_count_max=9)
    networking_run.read_config(cluster.pk, _auths(auth), NOW)
    networking_run.read_config(cluster.pk, _auths(auth), NOW)
    assert NetworkingRevision.objects.count() == 2
    assert AuditEntry.objects.get().action == "networking-config.external-write"
    auth.error_code = grpc.StatusCode.UNAVAILABLE
    networking_run.read_config(cluster.pk, _auths(auth), NOW)
    last_reading = revisions.last_reading_of(cluster.pk)
    assert last_reading is not None
    assert last_reading.error


def test_undo_marks_the_original_change_as_undone(cluster: Cluster, alice: User, auth: ConfigAuth) -> None:
    """An undo is a change of its own."""
    first = _run(_confirmed(cluster, alice, auth, keep_alive_count_max=9), auth)
    current = revisions.require_current_revision(cluster.pk)
    assert current.previous is not None
    config = revisions.resource_of(current.previous).config
    undo_change = revisions.plan_change(
        cluster.pk, current.revision, config, actor_of(alice), NOW, RECORD, undone_change_id=first.pk
    )
    _run(engine.confirm(undo_change, actor_of(alice), reason="back", typed_name="", now=NOW), auth)
    first.refresh_from_db()
    assert first.state == ChangeState.UNDONE
    assert _stored(auth).keep_alive_count_max == 3


def test_run_uses_the_auth_if_the_gateway_may_not_write(
    cluster: Cluster, alice: User, auth: ConfigAuth
) -> None:
    """With TLS a gateway presents its own certificate to auths, which refuse its writes."""
    change = _confirmed(cluster, alice, auth, keep_alive_count_max=9)
    with run_config_auth() as gateway:
        gateway.error_code = grpc.StatusCode.PERMISSION_DENIED
        auths = AuthClient([(gateway.address, "gateway"), (auth.address, "auth")], None, asyncio.run)
        _step(change, auths)
    change.refresh_from_db()
    assert change.state == ChangeState.VERIFIED
    assert auth.config.spec.keep_alive_count_max == 9
