"""Requests that are not gRPC calls: the gateway responds to them in plain HTTP. docs/reference/gateway.md"""

from __future__ import annotations

from typing import Any

from fleet.nodes.gateway.error_containment import contain_errors
from fleet.transport.http2.fields import encode, plain
from fleet.transport.http2.frames import ErrorCode
from fleet.transport.http2.stream import Stream

#: Most bytes that are read of a refused request's body, so that errors of the peer in it are noticed.
_MAX_READ_BYTES = 64 * 1024
_SENTENCES = {
    405: b"This gateway serves gRPC calls only: send them by POST.\n",
    415: b"This gateway serves gRPC calls only: their content-type starts with application/grpc.\n",
}


class RefusedRequest:
    """Receives the events of a refused request."""

    def __init__(self, stream: Stream, http_status: int, *, body: bool) -> None:
        """Prepare a response with an HTTP status, and with a message if a body is allowed."""
        self._stream = stream
        self._http_status = http_status
        self._has_body = body
        self._remaining_bytes = _MAX_READ_BYTES
        self._has_responded = False

    @contain_errors
    def on_headers(self, head: Any, *, end: bool) -> None:
        """Respond at once. Trailers change nothing."""
        del head, end
        if self._has_responded:
            return
        self._has_responded = True
        sentence = _SENTENCES[self._http_status]
        fields = plain(
            (b":status", str(self._http_status).encode()),
            (b"content-type", b"text/plain; charset=utf-8"),
        )
        if self._http_status == 405:
            fields = (*fields, *plain((b"allow", b"POST")))
        if self._has_body:
            fields = (*fields, *plain((b"content-length", str(len(sentence)).encode())))
        self._stream.send_headers(encode(fields), end=not self._has_body)
        if self._has_body:
            self._stream.send_data(sentence, end=True)

    @contain_errors
    def on_data(self, data: bytes, *, end: bool) -> None:
        """Discard the rest of the request."""
        self._remaining_bytes -= len(data)
        if self._remaining_bytes < 0 and not end:
            # The response is complete without the request: RFC 9113 section 8.1.
            self._stream.reset(ErrorCode.NO_ERROR)

    @contain_errors
    def on_reset(self, code: ErrorCode, reason: str) -> None:
        """Do nothing: the request is refused already."""

    @contain_errors
    def on_lost(self, reason: str) -> None:
        """Do nothing: the request is refused already."""

    def abort(self) -> None:
        """End this request after an internal error."""
        self._stream.reset(ErrorCode.INTERNAL_ERROR)
