"""The head of a CONNECT request, read by h11 before the connection is handed to a session."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import cast

import h11
from typing_extensions import override

from fleet.processes import background
from fleet.protocol.tunnel import connect
from fleet.protocol.tunnel.connect import RefusalReason, RefusedError

#: Largest head, in bytes.
_LARGEST_HEAD = 16 * 1024
#: Seconds for a refused client to read the response and close.
_LEAVE_WITHIN = 1.0


class RequestProtocol(asyncio.Protocol):
    """One connection until its request has been read and answered."""

    def __init__(self, on_connect: Callable[[RequestProtocol], None]) -> None:
        self._on_connect = on_connect
        self._conn = h11.Connection(h11.SERVER, max_incomplete_event_size=_LARGEST_HEAD)
        self._request: asyncio.Future[h11.Request] = asyncio.get_running_loop().create_future()
        self._request.add_done_callback(_retrieve_exception)
        self._closed = asyncio.Event()
        self.transport: asyncio.Transport
        #: The client has closed its direction.
        self.at_eof = False

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._on_connect(self)

    @override
    def data_received(self, data: bytes) -> None:
        if self._request.done() and self._method != b"CONNECT":
            return  # refused, but the client still sends
        try:
            self._conn.receive_data(data)
            event = h11.NEED_DATA if self._request.done() else self._conn.next_event()
            if isinstance(event, h11.Request):
                self.transport.pause_reading()
                self._request.set_result(event)
        except h11.RemoteProtocolError as error:
            reason = (
                RefusalReason.HEADER_TOO_LARGE
                if error.error_status_hint == RefusalReason.HEADER_TOO_LARGE.status
                else RefusalReason.MALFORMED
            )
            self.transport.pause_reading()
            self._request.set_exception(RefusedError(reason, f"invalid HTTP request: {error}"))

    @override
    def eof_received(self) -> bool:
        self.at_eof = True
        self._on_end()
        return self.transport.can_write_eof()  # half-closed, as TCP allows; TLS does not

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._closed.set()
        self._on_end()

    async def read(self, within: float) -> h11.Request:
        """Return the request. Raises RefusedError after `within` seconds, ConnectionError if the client has left."""
        await asyncio.wait((self._request,), timeout=within)
        if not self._request.done():
            raise RefusedError(
                RefusalReason.REQUEST_TIMEOUT, f"no complete request arrived within {within:g} s"
            )
        return self._request.result()

    def accept(self) -> bytes:
        """Respond with HTTP 200, and return the bytes that followed the head. Raises ConnectionError."""
        if self.transport.is_closing():
            raise ConnectionResetError("the client has left")
        while self._conn.next_event() is not h11.PAUSED:
            pass
        response = h11.Response(status_code=200, headers=[], reason=b"Connection established")
        self.transport.write(self._conn.send(response) or b"")
        return self._conn.trailing_data[0]

    async def refuse(self, refusal: RefusedError) -> None:
        """Respond with an error message, and close."""
        if self.transport.is_closing():
            return
        self.transport.write(self._encode_refusal(refusal))
        if not self.transport.can_write_eof():
            self.transport.close()
            return
        # An immediate close would reset the connection while the client still sends, and lose the response.
        with contextlib.suppress(OSError):
            self.transport.write_eof()
        self.transport.resume_reading()
        if not self.at_eof:
            await background.wait_for(self._closed, _LEAVE_WITHIN)
        self.transport.close()

    def _encode_refusal(self, refusal: RefusedError) -> bytes:
        sentence = str(refusal)
        body = f"{sentence}\n".encode()
        headers = [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
            ("Refloat-Refused", refusal.reason.label),
        ]
        if refusal.reason is RefusalReason.UNAUTHENTICATED:
            headers.append(("Proxy-Authenticate", 'Basic realm="refloat"'))
        if refusal.reason is RefusalReason.METHOD:
            headers.append(("Allow", "CONNECT"))
        response = h11.Response(
            status_code=refusal.reason.status,
            headers=headers,
            reason=connect.status_line_text(sentence).encode(),
        )
        events: list[h11.Event] = [response, h11.Data(data=body), h11.EndOfMessage()]
        if self._method == b"HEAD":
            del events[1]
        return b"".join(self._conn.send(event) or b"" for event in events)

    @property
    def _method(self) -> bytes:
        if self._request.done() and self._request.exception() is None:
            return self._request.result().method
        return b""

    def _on_end(self) -> None:
        if not self._request.done():
            self._request.set_exception(ConnectionResetError("the client has left"))
        elif self.at_eof:
            self._closed.set()


def _retrieve_exception(request: asyncio.Future[h11.Request]) -> None:
    if not request.cancelled():
        request.exception()  # possibly nobody waits for it any more
