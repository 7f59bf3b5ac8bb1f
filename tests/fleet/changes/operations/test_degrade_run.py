"""Requests to mark a real instance as degraded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import grpc.aio
import pytest
from django.contrib.auth.models import User

from fleet.changes import engine
from fleet.changes.base_runner import StepContext
from fleet.changes.instance_dialer import Dialer
from fleet.changes.kinds import kind_of
from fleet.changes.operations.degrade_run import DegradeRunner
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import Cluster
from fleet.nodes.shared.instance_admin import InstanceAdminServicer
from fleet.transport.channels import add_port
from fleet.transport.declared_status import DeclaredStatus
from fleet.transport.tls import TLSFiles
from fleet.vocabulary.changes import ChangeState
from fleet.vocabulary.instances import InstanceFacts, InstanceKind
from tests.fakes.certificates import Certificates
from tests.fakes.step_contexts import create_step_context, record_snapshot_of
from tests.fleet.changes.conftest import NOW, actor_of
from tests.fleet.changes.operations.test_degradations import REQUEST, make_change


class LiveInstance:
    """An instance that serves its admin API in an event loop of this test."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self.declared_status = loop, DeclaredStatus()

    def start(self, tls: TLSFiles | None = None) -> None:
        """Serve on a free port."""
        self.loop.run_until_complete(self._start(tls))

    async def _start(self, tls: TLSFiles | None) -> None:
        self.server = grpc.aio.server()
        InstanceAdminServicer("p-1", self.declared_status).add_to(self.server)
        port = add_port(self.server, "127.0.0.1:0", tls)
        await self.server.start()
        self.address = f"127.0.0.1:{port}"

    def context(self, tls: TLSFiles | None = None, at: float = NOW.timestamp()) -> StepContext:
        """Return the context of a step that knows the instance."""
        facts = InstanceFacts("p-1", 0, InstanceKind.PROXY, "proxy-1", self.address)
        return create_step_context(lambda: at, dialer=Dialer([facts], tls, self.loop.run_until_complete))

    def stop(self) -> None:
        """Close all connections."""
        self.loop.run_until_complete(self.server.stop(None))


@pytest.fixture
def instance() -> Iterator[LiveInstance]:
    loop = asyncio.new_event_loop()
    live_instance = LiveInstance(loop)
    yield live_instance
    live_instance.stop()
    loop.close()


def _step(change: Change, context: StepContext) -> Change:
    DegradeRunner().step(change, context)
    change.refresh_from_db()
    return change


def test_instance_is_degraded_and_restored(cluster: Cluster, alice: User, instance: LiveInstance) -> None:
    """The instance reports the reason until the undo clears the mark."""
    instance.start()
    change = _step(make_change(alice), instance.context())
    assert (change.state, change.detail) == (
        ChangeState.VERIFIED,
        "proxy-1 is marked as degraded until 12:10:00 UTC",
    )
    assert instance.declared_status.status.degraded_reason == "slow disk"
    undo = kind_of(change).undo(change, actor_of(alice), NOW, record_snapshot_of(None, NOW.timestamp()))
    undo = engine.confirm(undo, actor_of(alice), reason="disk replaced", typed_name="", now=NOW)
    assert _step(undo, instance.context()).state == ChangeState.VERIFIED
    assert instance.declared_status.status.degraded_reason is None
    change.refresh_from_db()
    assert change.state == ChangeState.UNDONE


@pytest.mark.parametrize("certificate", ["proxy", "auth"])
def test_server_of_another_role_gets_no_request(
    cluster: Cluster, alice: User, instance: LiveInstance, tmp_path: Path, certificate: str
) -> None:
    """The address of a proxy may belong to an auth."""
    certificates = Certificates(tmp_path)
    instance.start(certificates.of("node-1", certificate))
    change = _step(make_change(alice), instance.context(certificates.of("console", "console")))
    is_proxy = certificate == "proxy"
    assert (change.state == ChangeState.VERIFIED) is is_proxy
    assert (instance.declared_status.status.degraded_reason is not None) is is_proxy


def test_failures_end_the_change(cluster: Cluster, alice: User, instance: LiveInstance) -> None:
    """Missing in the fleet, or unreachable; the audit log says so."""
    instance.start()
    unknown_instance = replace(REQUEST, instance="p-9")
    change = _step(make_change(alice, unknown_instance), instance.context())
    assert (change.state, "no longer in the fleet" in change.detail) == (ChangeState.FAILED, True)
    entry = AuditEntry.objects.latest("pk")
    assert (entry.action, entry.change_id) == ("degrade.failed", change.pk)
    instance.address = "127.0.0.1:1"
    assert _step(make_change(alice), instance.context()).state == ChangeState.FAILED


def test_old_request_is_not_sent(cluster: Cluster, alice: User, instance: LiveInstance) -> None:
    """No worker ran for a minute: an operator would not expect its effect any more."""
    instance.start()
    late = (NOW + timedelta(seconds=61)).timestamp()
    change = _step(make_change(alice), instance.context(at=late))
    assert (change.state, change.detail) == (ChangeState.FAILED, "no worker took the request within 60 s")
    assert instance.declared_status.status.degraded_reason is None
