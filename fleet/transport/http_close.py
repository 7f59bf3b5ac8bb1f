"""`Connection: close` on every response of an unhealthy server, so that HTTP clients move to another one.

RFD 226, "Auth HTTP Clients". An ASGI middleware for any application. A keep-alive connection outlives a load balancer's
decision to send no new clients; this ends it after the current response, and no earlier.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

#: Turns the middleware on in an auth.
ENV_VARIABLE = "TELEPORT_UNSTABLE_HTTP_CLOSE_UNHEALTHY"


class CloseUnhealthyMiddleware:
    """Wraps an ASGI application; `is_healthy` is called when a response begins."""

    def __init__(
        self, app: App, is_healthy: Callable[[], bool], on_close: Callable[[], None] = lambda: None
    ) -> None:
        """Wrap `app`; `on_close` is called for each connection that is closed this way."""
        self._app = app
        self._is_healthy = is_healthy
        self._on_close = on_close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        # HTTP/2 forbids the header; its servers end connections with GOAWAY (RFC 9113, 8.2.2).
        if scope["type"] != "http" or scope.get("http_version", "1.1") not in ("1.0", "1.1"):
            await self._app(scope, receive, send)
            return

        async def send_with_close(message: Message) -> None:
            # 101 switches to another protocol: the connection is no longer HTTP.
            if (
                message["type"] == "http.response.start"
                and message["status"] >= 200
                and not self._is_healthy()
            ):
                headers = [pair for pair in message.get("headers", ()) if pair[0].lower() != b"connection"]
                message = {**message, "headers": [*headers, (b"connection", b"close")]}
                self._on_close()
            await send(message)

        await self._app(scope, receive, send_with_close)
