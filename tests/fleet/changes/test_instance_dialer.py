"""Calls to real instances."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fleet.changes.instance_dialer import Dialer, call_instance_admin
from fleet.monitoring.sources import SourceError
from fleet.nodes.auth.server import Auth
from fleet.nodes.shared import node_policies
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE
from fleet.protocol.recovery.service_config import ServiceConfig
from fleet.transport.admin import AdminError, UnreachableError
from fleet.vocabulary.instances import InstanceFacts, InstanceKind
from tests.fakes.plane import Plane


@pytest.fixture
async def plane(valkey_url: str, prefix: str) -> AsyncIterator[Plane]:
    """Real nodes, ended with the test."""
    new_plane = Plane(valkey_url, prefix)
    yield new_plane
    await new_plane.close()


def _facts(identity: str, address: str) -> InstanceFacts:
    return InstanceFacts(identity, 0, InstanceKind.AUTH, identity, address)


async def test_failed_admin_call_is_a_sentence() -> None:
    """Of an instance that does not respond, and of an address that is none."""
    for address in ("127.0.0.1:1", "nowhere"):
        error = await call_instance_admin(
            address, InstanceKind.PROXY, None, lambda instance: instance.drain("to try")
        )
        assert error, address


async def test_dialer_calls_reach_the_instance(plane: Plane, tmp_path: Path) -> None:
    """Unknown and unreachable instances raise errors."""
    restart_delays: list[float | None] = []
    own = node_policies.load("auth", tmp_path, {})
    auth = Auth(
        plane.instance_flags("auth", "auth-1", ttl=600.0),
        ServiceConfig(),
        policies=own,
        request_restart=restart_delays.append,
    )
    await auth.start()
    plane.adopt(auth)
    proxy = await plane.proxy(ttl=600.0)
    instances = [
        _facts("auth", auth.instance.grpc_address),
        _facts("proxy", proxy.instance.grpc_address),
        _facts("dead", "127.0.0.1:1"),
        _facts("odd", "nowhere"),
    ]
    dialer = Dialer(instances, None, asyncio.run)

    def run_calls() -> None:
        report, serving = dialer.read_policies("auth")
        assert serving
        dialer.send_policies("auth", report.revision, {AUTH_TTL_VARIABLE: "30s"})
        assert dialer.read_policies("auth")[0].accepted_values == {AUTH_TTL_VARIABLE: "30s"}
        dialer.drain("auth", "to try")
        dialer.undrain("auth")
        dialer.restart("auth", report.run_id, "to try", 2.0)
        assert dialer.advise("proxy", "x", "to try", ["nobody"]).absent_ids == ("nobody",)
        with pytest.raises(SourceError):
            dialer.read_policies("dead")
        with pytest.raises(SourceError):
            dialer.read_policies("unknown")
        with pytest.raises(UnreachableError):
            dialer.drain("dead", "")
        with pytest.raises(AdminError):
            dialer.drain("odd", "")

    await asyncio.to_thread(run_calls)
    assert restart_delays == [2.0]
