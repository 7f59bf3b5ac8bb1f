"""uvicorn's WebSockets with a limit on the seconds in which a client reads. docs/how-to/run-in-production.md.

Used on uvicorn's command line (`--ws fleet.transport.bounded_websocket:BoundedWebSocketProtocol`). uvicorn itself waits
forever for a client that reads nothing: it closes a connection only after the last bytes are sent.
"""

from __future__ import annotations

import asyncio
from typing import Any

from typing_extensions import override
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


class BoundedWebSocketProtocol(WebSocketsSansIOProtocol):
    """One connection. The server keeps at most 64 KiB and one frame for a client that does not read."""

    #: Seconds in which the client must read some of the waiting bytes: 48 KiB, or all of them.
    read_within = 30.0
    #: Seconds to read the last frame, after the client answered no ping.
    close_within = 5.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._read_timer: asyncio.TimerHandle | None = None

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._set_read_timer(None)
        super().connection_lost(exc)

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        self._set_read_timer(self.read_within)

    @override
    def resume_writing(self) -> None:
        self._set_read_timer(None)
        super().resume_writing()

    @override
    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        if self._read_timer is None:
            self._set_read_timer(self.close_within)

    def _set_read_timer(self, seconds: float | None) -> None:
        """Abort the connection in so many seconds, or cancel that."""
        if self._read_timer is not None:
            self._read_timer.cancel()
        self._read_timer = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)
