"""Connection: close while unhealthy, around any ASGI application."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.transport.http_close import CloseUnhealthy


class Served:
    """One request through the middleware, and what came out."""

    def __init__(
        self, *, healthy: bool, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        self.healthy = healthy
        self.closed = 0
        self.sent: list[Any] = []
        self._start = {"type": "http.response.start", "status": status, "headers": headers}

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        await send(self._start)
        await send({"type": "http.response.body", "body": b"x"})

    async def run(self, **scope: Any) -> dict[bytes, bytes]:
        async def send(message: Any) -> None:
            self.sent.append(message)

        async def receive() -> Any:
            raise AssertionError("the middleware reads nothing")

        def closed() -> None:
            self.closed += 1

        middleware = CloseUnhealthy(self.app, lambda: self.healthy, closed)
        await middleware({"type": "http", "http_version": "1.1", **scope}, receive, send)
        assert self.sent[1] == {"type": "http.response.body", "body": b"x"}
        return dict(self.sent[0]["headers"])


async def test_healthy_keeps_alive() -> None:
    """Nothing is added, nothing counted."""
    served = Served(healthy=True, headers=((b"a", b"b"),))
    assert await served.run() == {b"a": b"b"}
    assert served.closed == 0


@pytest.mark.parametrize("status", [200, 404, 503])
async def test_unhealthy_closes(status: int) -> None:
    """Every response, good or bad, carries the header once, whatever the application said there."""
    served = Served(healthy=False, status=status, headers=((b"a", b"b"), (b"Connection", b"keep-alive")))
    assert await served.run() == {b"a": b"b", b"connection": b"close"}
    assert served.closed == 1


@pytest.mark.parametrize(
    "scope", [{"type": "websocket"}, {"type": "lifespan"}, {"http_version": "2"}, {"http_version": "3"}]
)
async def test_what_is_none_of_its_business(scope: dict[str, str]) -> None:
    """Sockets, lifespan, and HTTP versions in which the header is forbidden pass through."""
    served = Served(healthy=False)
    assert await served.run(**scope) == {}
    assert served.closed == 0


async def test_switching_protocols_is_left_alone() -> None:
    """101 hands the connection over."""
    assert await Served(healthy=False, status=101).run() == {}
