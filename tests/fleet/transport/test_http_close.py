"""The header `connection: close` of unhealthy servers, in any ASGI application."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.transport.http_close import CloseUnhealthyMiddleware


class Exchange:
    """A request through the middleware, and its messages."""

    def __init__(
        self, *, is_healthy: bool, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        self.is_healthy = is_healthy
        self.close_count = 0
        self.messages: list[Any] = []
        self._start = {"type": "http.response.start", "status": status, "headers": headers}

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        await send(self._start)
        await send({"type": "http.response.body", "body": b"x"})

    async def run(self, **scope: Any) -> dict[bytes, bytes]:
        async def send(message: Any) -> None:
            self.messages.append(message)

        async def receive() -> Any:
            raise AssertionError("the middleware reads nothing")

        def count_close() -> None:
            self.close_count += 1

        middleware = CloseUnhealthyMiddleware(self.app, lambda: self.is_healthy, count_close)
        await middleware({"type": "http", "http_version": "1.1", **scope}, receive, send)
        assert self.messages[1] == {"type": "http.response.body", "body": b"x"}
        return dict(self.messages[0]["headers"])


async def test_healthy_server_adds_nothing() -> None:
    exchange = Exchange(is_healthy=True, headers=((b"a", b"b"),))
    assert await exchange.run() == {b"a": b"b"}
    assert exchange.close_count == 0


@pytest.mark.parametrize("status", [200, 404, 503])
async def test_unhealthy_server_closes_connections(status: int) -> None:
    """Every response has the header once, whatever the application set."""
    exchange = Exchange(
        is_healthy=False, status=status, headers=((b"a", b"b"), (b"Connection", b"keep-alive"))
    )
    assert await exchange.run() == {b"a": b"b", b"connection": b"close"}
    assert exchange.close_count == 1


@pytest.mark.parametrize(
    "scope", [{"type": "websocket"}, {"type": "lifespan"}, {"http_version": "2"}, {"http_version": "3"}]
)
async def test_other_scopes_are_unchanged(scope: dict[str, str]) -> None:
    """Websockets, lifespan, and HTTP versions that forbid the header."""
    exchange = Exchange(is_healthy=False)
    assert await exchange.run(**scope) == {}
    assert exchange.close_count == 0


async def test_switching_protocols_is_unchanged() -> None:
    """Status 101 hands the connection over."""
    assert await Exchange(is_healthy=False, status=101).run() == {}
