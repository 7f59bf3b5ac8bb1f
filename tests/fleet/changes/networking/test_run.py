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
from tests.fakes.config_auth import ConfigAuth, serving
from tests.fakes.reader import FakeReader
from tests.fakes.steps import context_of, record_of
from tests.fleet.changes.conftest import NOW, by

RECORD = record_of(FakeReader(states=[], as_of=NOW.timestamp()), NOW.timestamp())


@pytest.fixture
def auth() -> Iterator[ConfigAuth]:
    """An auth on a real port."""
    with serving() as running:
        yield running


def _auths(auth: ConfigAuth) -> AuthClient:
    # The first one is gone: the second is asked.
    return AuthClient([("127.0.0.1:1", "auth"), (auth.address, "auth")], None, asyncio.run)


def _confirmed(cluster: Cluster, user: User, auth: ConfigAuth, **fields: object) -> Change:
    networking_run.read_config(cluster.pk, _auths(auth), NOW)
    current = revisions.require_current_revision(cluster.pk)
    config = replace(revisions.resource_of(current).config, **fields)  # type: ignore[arg-type] # fields by name
    change = revisions.plan_change(cluster.pk, current.revision, config, by(user), NOW, RECORD)
    return engine.confirm(change, by(user), reason="a test", typed_name="", now=NOW)


def _run(change: Change, auth: ConfigAuth, at: timedelta = timedelta()) -> Change:
    _step(change, _auths(auth), at)
    change.refresh_from_db()
    return change


def _step(change: Change, auths: AuthClient, at: timedelta = timedelta()) -> None:
    NetworkingRunner().step(change, context_of((NOW + at).timestamp, auth_client=auths))


def _stored(auth: ConfigAuth) -> NetworkingConfig:
    networking_run.read_config("default", _auths(auth), NOW)
    return revisions.resource_of(revisions.require_current_revision("default")).config


def test_run_updates_reads_back_and_keeps_the_revision(
    cluster: Cluster, alice: User, auth: ConfigAuth
) -> None:
    """Unknown fields survive; revision, audit row and reading say who, why, before and after."""
    auth.held.spec.MergeFromString(b"\x9a\x06\x01?")
    change = _run(_confirmed(cluster, alice, auth, keep_alive_interval=30.0), auth)
    assert change.state == ChangeState.VERIFIED
    assert auth.held.spec.keep_alive_interval == 30 * 10**9
    assert b"\x9a\x06\x01?" in auth.held.spec.SerializeToString()
    row = revisions.require_current_revision(cluster.pk)
    assert (row.revision, row.who, row.reason, row.change) == ("1+", "alice", "a test", change)
    assert row.previous is not None
    entry = AuditEntry.objects.get(action="networking-config.verified")
    assert (entry.reason, entry.before["spec"]["keep_alive_interval"]) == ("a test", "5m0s")
    assert entry.after["spec"]["keep_alive_interval"] == "30s"
    assert ClusterLease.objects.get().holder == ""


def test_run_by_somebody_else_first_loses_nothing(cluster: Cluster, alice: User, auth: ConfigAuth) -> None:
    """A write between plan and run: nothing of ours is written, theirs is kept as a revision."""
    change = _confirmed(cluster, alice, auth, keep_alive_count_max=9)
    auth.somebody_else_writes(web_idle_timeout=60 * 10**9)
    assert _run(change, auth).state == ChangeState.FAILED
    assert "changed in the meantime" in change.detail
    assert _stored(auth).web_idle_timeout == 60.0
    assert auth.updates == 0
    assert engine.find_running_change(cluster.pk) is None


def test_run_on_a_cluster_that_does_not_know_the_field(
    cluster: Cluster, alice: User, auth: ConfigAuth
) -> None:
    """Read back, the switch is off: the change failed, says so, and the switch is refused from now on."""
    auth.old = True
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
    with pytest.raises(ChangeRefusedError) as refused:
        revisions.plan_change(cluster.pk, current.revision, again, by(alice), NOW, RECORD)
    assert set(refused.value.problems) == {"graceful_tunnel_closing"}


def test_run_out_of_reach_is_tried_again_and_then_given_up(
    cluster: Cluster, alice: User, auth: ConfigAuth
) -> None:
    """It stays under way for a minute; the worker that comes then ends it."""
    change = _confirmed(cluster, alice, auth, keep_alive_count_max=9)
    auth.fails = grpc.StatusCode.UNAVAILABLE
    assert _run(change, auth).state == ChangeState.RUNNING
    assert "retrying" in change.detail
    assert list(runners.find_due("fleet.tasks.look_after_networking", cluster.changes.all())) == [change]
    assert _run(change, auth, timedelta(minutes=2)).state == ChangeState.FAILED


def test_run_resumed_after_the_worker_died_writes_once(
    cluster: Cluster, alice: User, auth: ConfigAuth
) -> None:
    """It wrote and died: the next one finds it written."""
    change = engine.start(_confirmed(cluster, alice, auth, keep_alive_count_max=9), NOW)
    auth.somebody_else_writes(keep_alive_count_max=9)
    assert _run(change, auth).state == ChangeState.VERIFIED
    assert auth.updates == 0


@pytest.mark.parametrize("status", [grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.PERMISSION_DENIED])
def test_run_refused_says_why(
    cluster: Cluster, alice: User, auth: ConfigAuth, status: grpc.StatusCode
) -> None:
    """In the auth's words."""
    change = _confirmed(cluster, alice, auth, keep_alive_count_max=9)
    auth.fails = status
    assert _run(change, auth).state == ChangeState.FAILED
    assert "because" in change.detail


def test_run_while_another_has_the_cluster_waits(cluster: Cluster, alice: User, auth: ConfigAuth) -> None:
    """It says for whom, and is carried out later."""
    first = _confirmed(cluster, alice, auth, keep_alive_count_max=9)
    second = _confirmed(cluster, alice, auth, keep_alive_count_max=8)
    engine.start(first, NOW)
    assert _run(second, auth).state == ChangeState.CONFIRMED
    assert f"change {first.pk} by alice is running in default" in second.detail


def test_read_takes_note_of_what_others_wrote(cluster: Cluster, auth: ConfigAuth) -> None:
    """A new revision nobody here wrote is a row of the log; one that cannot be read is an error that is shown."""
    networking_run.read_config(cluster.pk, _auths(auth), NOW)
    auth.somebody_else_writes(keep_alive_count_max=9)
    networking_run.read_config(cluster.pk, _auths(auth), NOW)
    networking_run.read_config(cluster.pk, _auths(auth), NOW)
    assert NetworkingRevision.objects.count() == 2
    assert AuditEntry.objects.get().action == "networking-config.seen"
    auth.fails = grpc.StatusCode.UNAVAILABLE
    networking_run.read_config(cluster.pk, _auths(auth), NOW)
    reading = revisions.read_state_of(cluster.pk)
    assert reading is not None
    assert reading.error


def test_undo_marks_what_it_takes_back(cluster: Cluster, alice: User, auth: ConfigAuth) -> None:
    """A revert is a change through the same plan."""
    first = _run(_confirmed(cluster, alice, auth, keep_alive_count_max=9), auth)
    current = revisions.require_current_revision(cluster.pk)
    assert current.previous is not None
    config = revisions.resource_of(current.previous).config
    back = revisions.plan_change(
        cluster.pk, current.revision, config, by(alice), NOW, RECORD, undone_change_id=first.pk
    )
    _run(engine.confirm(back, by(alice), reason="back", typed_name="", now=NOW), auth)
    first.refresh_from_db()
    assert first.state == ChangeState.UNDONE
    assert _stored(auth).keep_alive_count_max == 3


def test_run_goes_past_a_gateway_that_may_not_write(cluster: Cluster, alice: User, auth: ConfigAuth) -> None:
    """With TLS a gateway reads for a console and shows auths its own certificate: the auth itself is asked then."""
    change = _confirmed(cluster, alice, auth, keep_alive_count_max=9)
    with serving() as gateway:
        gateway.fails = grpc.StatusCode.PERMISSION_DENIED
        auths = AuthClient([(gateway.address, "gateway"), (auth.address, "auth")], None, asyncio.run)
        _step(change, auths)
    change.refresh_from_db()
    assert change.state == ChangeState.VERIFIED
    assert auth.held.spec.keep_alive_count_max == 9
