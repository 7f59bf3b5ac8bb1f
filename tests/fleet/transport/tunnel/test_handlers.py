"""What serves sessions."""

from __future__ import annotations

import socket

import pytest

from fleet.protocol.tunnel import TunnelError
from fleet.transport.tunnel.handlers import Serve, dial
from fleet.transport.tunnel.pump import Policy
from tests.fakes.tunnel import Ground, echo, echo_tcp


async def test_dial_a_service_that_is_down_is_a_refusal_with_its_address() -> None:
    """Who asked for the session learns what could not be reached."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(TunnelError, match=f"127.0.0.1:{port} cannot be reached"):
            await dial("127.0.0.1", port, Policy())


async def test_dialled_and_discarded_closes_its_connection(ground: Ground) -> None:
    """A session whose stream never came leaves no connection open."""
    taken = await dial("127.0.0.1", await ground.service(echo_tcp), Policy())
    taken.discard()
    assert taken._wire.transport is not None
    assert taken._wire.transport.is_closing()


async def test_serve_serves_with_its_function(ground: Ground) -> None:
    """A coroutine function is enough of a handler."""
    pair = await ground.pair()
    await pair.client.write(b"x")
    await pair.client.write_eof()
    await Serve(echo).serve(pair.server)
    await pair.server.write_eof()
    assert await pair.client.read() == b"x"
    Serve(echo).discard()
