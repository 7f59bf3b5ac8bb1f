"""Requests to mark a real instance degraded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import grpc.aio
import pytest

from fleet.changes.operations import degradations_run
from fleet.nodes.shared.instance_admin import InstanceAdminServicer
from fleet.transport.channels import add_port
from fleet.transport.declared_status import DeclaredStatus
from fleet.vocabulary.instances import InstanceFacts, InstanceKind
from tests.fakes.certificates import Certificates
from tests.fleet.changes.operations.test_degradations import REQUEST

FACTS = InstanceFacts("p-1", 0, InstanceKind.PROXY, "proxy-1", "")


async def test_instance_is_degraded_and_restored() -> None:
    """The instance reports the reason until the mark is cleared."""
    declared_status, server = DeclaredStatus(), grpc.aio.server()
    InstanceAdminServicer("p-1", declared_status).add_to(server)
    facts = replace(FACTS, address=f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    await server.start()
    assert await degradations_run.send_request(REQUEST, {0: facts}, None) == ""
    assert declared_status.status.degraded_reason == "slow disk"
    assert await degradations_run.send_request(replace(REQUEST, is_degraded=False), {0: facts}, None) == ""
    assert declared_status.status.degraded_reason is None
    await server.stop(None)


@pytest.mark.parametrize("certificate", ["proxy", "auth"])
async def test_server_of_another_role_gets_no_request(tmp_path: Path, certificate: str) -> None:
    """The address of a proxy may belong to an auth."""
    certificates = Certificates(tmp_path)
    declared_status, server = DeclaredStatus(), grpc.aio.server()
    InstanceAdminServicer("p-1", declared_status).add_to(server)
    port = add_port(server, "127.0.0.1:0", certificates.of("node-1", certificate))
    await server.start()
    facts = replace(FACTS, address=f"127.0.0.1:{port}")
    error = await degradations_run.send_request(REQUEST, {0: facts}, certificates.of("console", "console"))
    assert (error == "") is (declared_status.status.degraded_reason is not None) is (certificate == "proxy")
    await server.stop(None)


async def test_unreachable_instance_is_an_error() -> None:
    """Missing in the record, without an address, or unreachable."""
    assert await degradations_run.send_request(REQUEST, {}, None) == "the instance is no longer in the fleet"
    assert await degradations_run.send_request(REQUEST, {0: FACTS}, None)
    assert await degradations_run.send_request(REQUEST, {0: replace(FACTS, address="127.0.0.1:1")}, None)
