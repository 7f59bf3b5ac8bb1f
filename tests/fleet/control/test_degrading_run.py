"""A request to degrade that reaches a real instance, or does not."""

from __future__ import annotations

from dataclasses import replace

import grpc.aio

from fleet.control import degrading_run
from fleet.domain.instances import InstanceFacts, InstanceKind
from fleet.nodes.instance_admin import InstanceAdminServicer
from fleet.transport.standing import Standing
from tests.fleet.control.test_degrading import REQUEST

FACTS = InstanceFacts("p-1", 0, InstanceKind.PROXY, "proxy-1", "")


async def test_instance_is_degraded_and_restored() -> None:
    """The instance reports the reason, and nothing once the request is taken back."""
    standing, server = Standing(), grpc.aio.server()
    InstanceAdminServicer("p-1", standing).add_to(server)
    facts = replace(FACTS, address=f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    await server.start()
    assert await degrading_run.send(REQUEST, {0: facts}, None) == ""
    assert standing.said.degraded == "slow disk"
    assert await degrading_run.send(replace(REQUEST, degraded=False), {0: facts}, None) == ""
    assert standing.said.degraded is None
    await server.stop(None)


async def test_instance_that_cannot_be_reached_is_a_sentence() -> None:
    """Not in the record, without an address, or not there."""
    assert await degrading_run.send(REQUEST, {}, None) == "the record has no such instance any more"
    assert await degrading_run.send(REQUEST, {0: FACTS}, None)
    assert await degrading_run.send(REQUEST, {0: replace(FACTS, address="127.0.0.1:1")}, None)
