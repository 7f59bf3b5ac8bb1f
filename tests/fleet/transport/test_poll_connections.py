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
from tests.fakes.questions import question


async def test_channel_is_kept_until_it_is_discarded(connections: Connections) -> None:
    """One for each address."""
    first = connections.channel("127.0.0.1:1", "auth")
    assert connections.channel("127.0.0.1:1", "auth") is first
    assert connections.channel("127.0.0.1:2", "auth") is not first
    await connections.discard("127.0.0.1:1")
    assert connections.channel("127.0.0.1:1", "auth") is not first


async def test_channels_to_others_are_closed(connections: Connections) -> None:
    """Only those asked for stay."""
    kept, other = connections.channel("127.0.0.1:1", "auth"), connections.channel("127.0.0.1:2", "auth")
    await connections.keep_only({"127.0.0.1:1"})
    assert connections.channel("127.0.0.1:1", "auth") is kept
    assert connections.channel("127.0.0.1:2", "auth") is not other


def test_address_that_is_none() -> None:
    """A ValueError, for the attempt to say."""
    with pytest.raises(ValueError, match="invalid literal"):
        Connections().channel("nowhere", "auth")


async def test_reader_reads_again_within_the_deadline(
    auth: FakeAuth, connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One failure is not seen; a channel for probes is another one, and shows each."""
    asked = auth.asked

    def fails_once(request: Any, context: Any) -> None:
        auth.fails = None if auth.calls else grpc.StatusCode.UNAVAILABLE
        asked(request, context)

    monkeypatch.setattr(auth, "asked", fails_once)
    reader = connections.reader(auth.address, "auth")
    assert connections.reader(auth.address, "auth") is reader
    assert await list_instances(replace(question(connections, auth), channel=reader)) == ()
    auth.calls.clear()
    with pytest.raises(SourceError, match="told to fail"):
        await list_instances(question(connections, auth))
    await connections.discard(auth.address)
    assert connections.reader(auth.address, "auth") is not reader


@pytest.mark.parametrize("certificate", ["auth", "proxy", "gateway", "agent", "console"])
@pytest.mark.parametrize("role", ["auth", "proxy", "gateway"])
async def test_server_with_the_certificate_of_another_role(
    tmp_path: Path, role: str, certificate: str
) -> None:
    """A console reads from an address only what a server of the role that it dials there says."""
    certificates = Certificates(tmp_path)
    shown, ours = certificates.of("node-1", certificate), certificates.of("console", "console")
    server = grpc.aio.server(options=server_options())
    HealthServicer(ProcessHealth(1.0)).add_to(server)
    address = f"127.0.0.1:{add_port(server, '127.0.0.1:0', shown)}"
    await server.start()
    connections = Connections(ours)
    try:
        if certificate == role:
            assert (
                await check_health(connections.channel(address, role), timeout=60)
            ).serving_status is not None
            return
        for channel in (connections.channel(address, role), connections.reader(address, role)):
            with pytest.raises(SourceError, match="unavailable"):
                await check_health(channel, timeout=60)
    finally:
        await connections.close()
        await server.stop(None)


async def test_channel_of_one_role_is_not_lent_to_another(connections: Connections) -> None:
    """The handshake proved the role of the server once, for the role that was dialled."""
    channel = connections.channel("127.0.0.1:1", "auth")

    assert connections.channel("127.0.0.1:1", "proxy") is not channel
    await connections.keep_only(set())
    assert connections.channel("127.0.0.1:1", "auth") is not channel
