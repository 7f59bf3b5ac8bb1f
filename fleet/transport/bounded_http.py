"""uvicorn's HTTP/1.1 with limits on the bytes and seconds of each request. docs/how-to/run-in-production.md.

Used on uvicorn's command line (`--http fleet.transport.bounded_http:BoundedProtocol`), and as the base of the
instances' own protocol. uvicorn itself accepts a head of any size, and waits for the rest of a request forever.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

from typing_extensions import override
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle


class TooManyRequestsError(Exception):
    """More requests on a connection wait for the previous response than allowed."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection. Limits are checked after each read, so memory is bounded by a limit plus one read (256 KiB)."""

    #: Maximum bytes of a request line and its headers.
    largest_head = 64 * 1024
    #: Maximum bytes of a whole request, trailers included; Django reads at most 2.5 MB of a body.
    largest_request = 4 * 1024 * 1024
    #: Maximum requests that wait for the previous response. One read of uvicorn's may bring thousands, 10 KB each.
    most_pending_requests = 16
    #: Seconds from the connection, or from the first byte of a later request, to the end of the head.
    head_within = 15.0
    #: Seconds from the end of the head to the end of the request.
    request_within = 60.0
    #: Seconds in which the client must read some of a waiting response: 48 KiB, or its end.
    read_within = 60.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        #: Bytes of the current request.
        self._received_bytes = 0
        self._awaits_head = True
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None
        #: The request whose response is being sent, or was sent last.
        self._response_cycle: RequestResponseCycle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in the base
        super().connection_made(transport)
        self._set_deadline(self.head_within)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._set_deadline(None)
        self._cancel_read_timer()
        # uvicorn informs only the newest request; the one being answered would keep writing.
        if self._response_cycle is not None:
            self._response_cycle.disconnected = True
            self._response_cycle.message_event.set()
        super().connection_lost(exc)

    @override
    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._response_cycle = cycle
        super()._start_asgi_task(cycle, app)

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        # A client that reads nothing would hold the connection and the response forever.
        self._read_timer = self.loop.call_later(self.read_within, self.transport.abort)

    @override
    def resume_writing(self) -> None:
        self._cancel_read_timer()
        super().resume_writing()

    @override
    def data_received(self, data: bytes) -> None:
        self._received_bytes += len(data)
        if self._deadline_timer is None:
            # Also for a blank line: it begins no request, but starts the time for one.
            self._set_deadline(self.head_within)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._awaits_head and self._received_bytes > self.largest_head:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        elif self._received_bytes > self.largest_request:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)

    @override
    def handle_websocket_upgrade(self) -> None:
        self._set_deadline(None)
        super().handle_websocket_upgrade()

    @override
    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._received_bytes, self._awaits_head = 0, True
        if self._deadline_timer is None:
            self._set_deadline(self.head_within)

    @override
    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= self.most_pending_requests:
            # Any exception here stops the parsing, and uvicorn answers 400.
            raise TooManyRequestsError
        super().on_headers_complete()
        self._awaits_head = False
        self._set_deadline(self.request_within)

    @override
    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._received_bytes, self._awaits_head = 0, True
        self._set_deadline(None)

    def _set_deadline(self, seconds: float | None) -> None:
        """Set the timeout in seconds for the next step; None: no timeout, while the response is sent."""
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        self._deadline_timer = None if seconds is None else self.loop.call_later(seconds, self._on_deadline)

    def _on_deadline(self) -> None:
        self._deadline_timer = None
        if self.transport.is_closing():
            return
        if self._awaits_head and self._is_responding():
            self._set_deadline(
                self.head_within
            )  # a stray line while the previous response is still being sent
        else:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)

    def _cancel_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
        self._read_timer = None

    def _is_responding(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _refuse(self, status: HTTPStatus) -> None:
        """Close the connection; send the status first unless a response is being sent."""
        self._set_deadline(None)
        if not self._is_responding():
            line = f"HTTP/1.1 {status.value} {status.phrase}\r\n"
            self.transport.write(f"{line}content-length: 0\r\nconnection: close\r\n\r\n".encode("ascii"))
        self.transport.close()
