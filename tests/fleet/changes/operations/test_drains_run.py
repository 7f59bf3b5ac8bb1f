"""Drain requests that are sent to instances."""

from __future__ import annotations

import grpc.aio

from fleet.changes.operations import drains_run
from fleet.changes.operations.drains import DueDrain
from fleet.nodes.shared.instance_admin import InstanceAdminServicer
from fleet.transport.declared_status import DeclaredStatus
from fleet.vocabulary.instances import InstanceKind

PROXY = InstanceKind.PROXY


async def test_drains_are_sent_to_instances() -> None:
    """Each unreachable instance has an error; the others are drained."""
    declared_status, server = DeclaredStatus(), grpc.aio.server()
    InstanceAdminServicer("p-1", declared_status).add_to(server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    errors = await drains_run.send_drain_requests(
        [
            DueDrain(1, address, PROXY, True, "kernel"),
            DueDrain(2, "127.0.0.1:1", PROXY, True, ""),
            DueDrain(3, "nowhere", PROXY, True, ""),
        ],
        None,
    )
    assert errors[1] == ""
    assert declared_status.status.draining_reason == "kernel"
    assert errors[2]
    assert errors[3]
    assert await drains_run.send_drain_requests([DueDrain(1, address, PROXY, False, "")], None) == {1: ""}
    assert declared_status.status.draining_reason is None
    await server.stop(None)
