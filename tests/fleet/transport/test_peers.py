"""Identity of peers by their certificates."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from fleet.transport import certificate_authority, channels, peers
from fleet.transport.tls import TLSFiles
from tests.fakes.certificates import Certificates, channel_with


def test_role_in_a_certificate(tmp_path: Path) -> None:
    """The role that the authority wrote; other data has none."""
    ca = certificate_authority.ensure_authority(tmp_path, now=datetime.now(UTC))
    pair = certificate_authority.issue(ca, "agents-1", role="agent", now=datetime.now(UTC))
    assert peers.role_in(pair.certificate.read_bytes()) == "agent"
    assert peers.role_in(pair.ca.read_bytes()) == ""
    assert peers.role_in(b"nonsense") == ""


async def test_caller_of_a_certificate(tmp_path: Path) -> None:
    """A certificate without a role differs from no certificate."""
    certificates = Certificates(tmp_path)
    callers: list[tuple[peers.Caller | None, str | None]] = []

    async def call(request: bytes, context: Any) -> bytes:
        callers.append((peers.caller_of(context), peers.role_of(context)))
        return request

    handlers = {"Call": grpc.unary_unary_rpc_method_handler(call)}
    for server_files, client_files in (
        (certificates.of("auth-1", "auth"), certificates.of("agents-1", "agent", "refloat:agents:a-1..2")),
        (certificates.of("auth-1", "auth"), certificates.of("x", "")),
        (TLSFiles(), TLSFiles()),
    ):
        server = grpc.aio.server(options=channels.server_options())
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("S", handlers),))
        port = channels.add_port(server, "127.0.0.1:0", server_files)
        await server.start()
        async with channel_with(f"127.0.0.1:{port}", client_files) as channel:
            await channel.unary_unary("/S/Call")(b"", timeout=30)
        await server.stop(None)
    assert callers == [
        (peers.Caller("agent", ("agents-1", "refloat:agents:a-1..2")), "agent"),
        (peers.Caller("", ("x",)), ""),
        (None, None),
    ]
