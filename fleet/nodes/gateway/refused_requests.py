"""Requests that are no gRPC calls: the gateway answers them itself, in HTTP. docs/gateway.md"""

from __future__ import annotations

from typing import Any

from fleet.nodes.gateway.error_containment import contain_errors
from fleet.transport.http2.fields import encode, plain
from fleet.transport.http2.frames import Code
from fleet.transport.http2.stream import Stream

#: The rest of a refused request is read to its end so that the peer's mistakes in it are seen; a longer rest is not
#: wanted. Bytes.
_READ = 64 * 1024
_SENTENCES = {
    405: b"This is a gateway for gRPC calls: they are sent by POST.\n",
    415: b"This is a gateway for gRPC calls: their content-type begins with application/grpc.\n",
}


class RefusedRequest:
    """Listens to the stream of one refused request."""

    def __init__(self, stream: Stream, http: int, *, body: bool) -> None:
        """Answer with an HTTP status, and with a sentence if a body is allowed."""
        self._stream = stream
        self._http = http
        self._body = body
        self._remaining_bytes = _READ
        self._has_answered = False

    @contain_errors
    def on_headers(self, head: Any, *, end: bool) -> None:
        """Answer at once; trailers change nothing."""
        del head, end
        if self._has_answered:
            return
        self._has_answered = True
        sentence = _SENTENCES[self._http]
        fields = plain(
            (b":status", str(self._http).encode()),
            (b"content-type", b"text/plain; charset=utf-8"),
        )
        if self._http == 405:
            fields = (*fields, *plain((b"allow", b"POST")))
        if self._body:
            fields = (*fields, *plain((b"content-length", str(len(sentence)).encode())))
        self._stream.send_headers(encode(fields), end=not self._body)
        if self._body:
            self._stream.send_data(sentence, end=True)

    @contain_errors
    def on_data(self, data: bytes, *, end: bool) -> None:
        """Pass over the rest of the request."""
        self._remaining_bytes -= len(data)
        if self._remaining_bytes < 0 and not end:
            # The answer is whole without it: RFC 9113 section 8.1.
            self._stream.reset(Code.NO_ERROR)

    @contain_errors
    def on_reset(self, code: Code, reason: str) -> None:
        """Do nothing: the request is refused already."""

    @contain_errors
    def on_lost(self, reason: str) -> None:
        """Do nothing: the request is refused already."""

    def abort(self) -> None:
        """End this request after an error of ours."""
        self._stream.reset(Code.INTERNAL_ERROR)
