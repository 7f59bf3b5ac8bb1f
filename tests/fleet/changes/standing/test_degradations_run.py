"""A request to degrade that reaches a real instance, or does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import grpc.aio
import pytest

from fleet.changes.standing import degradations_run
from fleet.nodes.shared.instance_admin import InstanceAdminServicer
from fleet.transport.channels import add_port
from fleet.transport.declared_status import DeclaredStatus
from fleet.vocabulary.instances import InstanceFacts, InstanceKind
from tests.fakes.certificates import Certificates
from tests.fleet.changes.standing.test_degradations import REQUEST

FACTS = InstanceFacts("p-1", 0, InstanceKind.PROXY, "proxy-1", "")


async def test_instance_is_degraded_and_restored() -> None:
    """The instance reports the reason, and nothing once the request is taken back."""
    standing, server = DeclaredStatus(), grpc.aio.server()
    InstanceAdminServicer("p-1", standing).add_to(server)
    facts = replace(FACTS, address=f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    await server.start()
    assert await degradations_run.send_request(REQUEST, {0: facts}, None) == ""
    assert standing.status.degraded_reason == "slow disk"
    assert await degradations_run.send_request(replace(REQUEST, degraded=False), {0: facts}, None) == ""
    assert standing.status.degraded_reason is None
    await server.stop(None)


@pytest.mark.parametrize("certificate", ["proxy", "auth"])
async def test_server_of_another_role_is_sent_nothing(tmp_path: Path, certificate: str) -> None:
    """The address of a proxy may lead to an auth: the request was about the proxy."""
    certificates = Certificates(tmp_path)
    standing, server = DeclaredStatus(), grpc.aio.server()
    InstanceAdminServicer("p-1", standing).add_to(server)
    port = add_port(server, "127.0.0.1:0", certificates.of("node-1", certificate))
    await server.start()
    facts = replace(FACTS, address=f"127.0.0.1:{port}")
    error = await degradations_run.send_request(REQUEST, {0: facts}, certificates.of("console", "console"))
    assert (error == "") is (standing.status.degraded_reason is not None) is (certificate == "proxy")
    await server.stop(None)


async def test_instance_that_cannot_be_reached_is_a_sentence() -> None:
    """Not in the record, without an address, or not there."""
    assert await degradations_run.send_request(REQUEST, {}, None) == "the instance is no longer in the fleet"
    assert await degradations_run.send_request(REQUEST, {0: FACTS}, None)
    assert await degradations_run.send_request(REQUEST, {0: replace(FACTS, address="127.0.0.1:1")}, None)
