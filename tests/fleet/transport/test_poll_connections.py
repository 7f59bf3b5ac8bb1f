from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.health import check_health
from fleet.monitoring.sources.presence import list_instances
from fleet.transport.channels import add_port, server_options
from fleet.transport.health import HealthServicer
from fleet.transport.poll_connections import Connections
from fleet.transport.process import ProcessHealth
from tests.fakes.certificates import Certificates
from tests.fakes.instances import FakeAuth
from tests.fakes.source_contexts import make_source_context


async def test_channel_is_kept_until_it_is_discarded(connections: Connections) -> None:
    """There is one channel for each address."""
    first = connections.channel("127.0.0.1:1", "auth")
    assert connections.channel("127.0.0.1:1", "auth") is first
    assert connections.channel("127.0.0.1:2", "auth") is not first
    await connections.discard("127.0.0.1:1")
    assert connections.channel("127.0.0.1:1", "auth") is not first


async def test_keep_only_closes_other_channels(connections: Connections) -> None:
    kept_channel, closed_channel = (
        connections.channel("127.0.0.1:1", "auth"),
        connections.channel("127.0.0.1:2", "auth"),
    )
    await connections.keep_only({"127.0.0.1:1"})
    assert connections.channel("127.0.0.1:1", "auth") is kept_channel
    assert connections.channel("127.0.0.1:2", "auth") is not closed_channel


def test_invalid_address_raises_a_value_error() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        Connections().channel("nowhere", "auth")


async def test_reader_retries_within_the_deadline(
    auth: FakeAuth, connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One failure is not visible; a separate channel for probes shows each."""
    note_call = auth.note_call

    def fail_once(request: Any, context: Any) -> None:
        auth.error_code = None if auth.calls else grpc.StatusCode.UNAVAILABLE
        note_call(request, context)

    monkeypatch.setattr(auth, "note_call", fail_once)
    reader = connections.read_channel(auth.address, "auth")
    assert connections.read_channel(auth.address, "auth") is reader
    assert await list_instances(replace(make_source_context(connections, auth), channel=reader)) == ()
    auth.calls.clear()
    with pytest.raises(SourceError, match="told to fail"):
        await list_instances(make_source_context(connections, auth))
    await connections.discard(auth.address)
    assert connections.read_channel(auth.address, "auth") is not reader


@pytest.mark.parametrize("certificate", ["auth", "proxy", "gateway", "agent", "console"])
@pytest.mark.parametrize("role", ["auth", "proxy", "gateway"])
async def test_server_with_another_roles_certificate_is_refused(
    tmp_path: Path, role: str, certificate: str
) -> None:
    """A console reads only from servers of the expected role."""
    certificates = Certificates(tmp_path)
    server_files, client_files = certificates.of("node-1", certificate), certificates.of("console", "console")
    server = grpc.aio.server(options=server_options())
    HealthServicer(ProcessHealth(1.0)).add_to(server)
    address = f"127.0.0.1:{add_port(server, '127.0.0.1:0', server_files)}"
    await server.start()
    connections = Connections(client_files)
    try:
        if certificate == role:
            assert (
                await check_health(connections.channel(address, role), timeout=60)
            ).serving_status is not None
            return
        for channel in (connections.channel(address, role), connections.read_channel(address, role)):
            with pytest.raises(SourceError, match="unavailable"):
                await check_health(channel, timeout=60)
    finally:
        await connections.close()
        await server.stop(None)


async def test_channel_is_used_for_one_role(connections: Connections) -> None:
    """The handshake proved the role of the server only for the expected role."""
    channel = connections.channel("127.0.0.1:1", "auth")

    assert connections.channel("127.0.0.1:1", "proxy") is not channel
    await connections.keep_only(set())
    assert connections.channel("127.0.0.1:1", "auth") is not channel
