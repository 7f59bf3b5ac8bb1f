"""Telling instances."""

from __future__ import annotations

import grpc.aio

from fleet.changes.standing import drains_run
from fleet.changes.standing.drains import DueDrain
from fleet.nodes.shared.instance_admin import InstanceAdminServicer
from fleet.transport.declared_status import DeclaredStatus
from fleet.vocabulary.instances import InstanceKind

PROXY = InstanceKind.PROXY


async def test_instances_are_told() -> None:
    """One takes it, one is not there, one has no address: a sentence for each, and none holds up the others."""
    standing, server = DeclaredStatus(), grpc.aio.server()
    InstanceAdminServicer("p-1", standing).add_to(server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    answers = await drains_run.send_drains(
        [
            DueDrain(1, address, PROXY, True, "kernel"),
            DueDrain(2, "127.0.0.1:1", PROXY, True, ""),
            DueDrain(3, "nowhere", PROXY, True, ""),
        ],
        None,
    )
    assert answers[1] == ""
    assert standing.status.draining_reason == "kernel"
    assert answers[2]
    assert answers[3]
    assert await drains_run.send_drains([DueDrain(1, address, PROXY, False, "")], None) == {1: ""}
    assert standing.status.draining_reason is None
    await server.stop(None)
