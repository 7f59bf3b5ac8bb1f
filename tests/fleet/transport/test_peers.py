"""Who is at the other end, by certificate."""

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
    """The role that the authority wrote is read; what is no certificate has none."""
    ca = certificate_authority.ensure_authority(tmp_path, now=datetime.now(UTC))
    pair = certificate_authority.issue(ca, "agents-1", role="agent", now=datetime.now(UTC))
    assert peers.role_in(pair.certificate.read_bytes()) == "agent"
    assert peers.role_in(pair.ca.read_bytes()) == ""
    assert peers.role_in(b"nonsense") == ""


async def test_caller_by_its_certificate(tmp_path: Path) -> None:
    """Role and names of who calls; a certificate without a role is not the same as no certificate."""
    certificates = Certificates(tmp_path)
    seen: list[tuple[peers.Caller | None, str | None]] = []

    async def call(request: bytes, context: Any) -> bytes:
        seen.append((peers.caller_of(context), peers.role_of(context)))
        return request

    handlers = {"Call": grpc.unary_unary_rpc_method_handler(call)}
    for own, shown in (
        (certificates.of("auth-1", "auth"), certificates.of("agents-1", "agent", "refloat:agents:a-1..2")),
        (certificates.of("auth-1", "auth"), certificates.of("x", "")),
        (TLSFiles(), TLSFiles()),
    ):
        server = grpc.aio.server(options=channels.server_options())
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("S", handlers),))
        port = channels.add_port(server, "127.0.0.1:0", own)
        await server.start()
        async with channel_with(f"127.0.0.1:{port}", shown) as channel:
            await channel.unary_unary("/S/Call")(b"", timeout=30)
        await server.stop(None)
    assert seen == [
        (peers.Caller("agent", ("agents-1", "refloat:agents:a-1..2")), "agent"),
        (peers.Caller("", ("x",)), ""),
        (None, None),
    ]
