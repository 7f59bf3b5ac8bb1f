"""The far end of a socket, in the process: what a browser's WebSocket is to an ASGI application.

channels.testing has one too, but importing it wants daphne.
"""

from __future__ import annotations

import contextlib
from typing import Any

from asgiref.testing import ApplicationCommunicator

from tests.fakes.waiting import DEADLINE

Headers = list[tuple[bytes, bytes]]


class Socket:
    """One connection to an ASGI application."""

    def __init__(self, application: Any, path: str, headers: Headers) -> None:
        path, _, query = path.partition("?")
        scope = {
            "type": "websocket",
            "path": path,
            "query_string": query.encode(),
            "headers": headers,
            "subprotocols": [],
        }
        self._link = ApplicationCommunicator(application, scope)

    async def connect(self) -> bool:
        """Request the handshake; return whether it was accepted."""
        await self._link.send_input({"type": "websocket.connect"})
        is_accepted: bool = (await self._link.receive_output(DEADLINE))["type"] == "websocket.accept"
        if not is_accepted:
            await self._link.wait(DEADLINE)
        return is_accepted

    async def send(self, **frame: Any) -> None:
        """Send `text=` or `bytes=`."""
        await self._link.send_input({"type": "websocket.receive", "text": None, "bytes": None, **frame})

    async def receive(self, seconds: float) -> dict[str, Any]:
        """Take the next frame, or `websocket.close`; TimeoutError when none comes."""
        frame: dict[str, Any] = await self._link.receive_output(seconds)
        return frame

    async def leave(self) -> None:
        """Go away, as a closed tab does."""
        await self._link.send_input({"type": "websocket.disconnect", "code": 1001})
        with contextlib.suppress(TimeoutError):
            await self._link.wait(DEADLINE)
