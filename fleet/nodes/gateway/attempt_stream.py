"""One attempt of a call: receives events of the backend's stream and passes them to the call.

docs/reference/gateway.md
"""

from __future__ import annotations

from typing import Protocol

from fleet.nodes.gateway.error_containment import contain_errors
from fleet.nodes.gateway.heads import ResponseHead
from fleet.transport.http2.frames import ErrorCode
from fleet.transport.http2.stream import Stream


class AttemptListener(Protocol):
    """What an attempt needs of its call."""

    def on_attempt_headers(self, attempt: CallAttempt, head: ResponseHead, *, end: bool) -> None:
        """Handle headers, trailers, or both at once, from the backend."""

    def on_attempt_data(self, attempt: CallAttempt, data: bytes, *, end: bool) -> None:
        """Handle message bytes from the backend."""

    def on_attempt_reset(self, attempt: CallAttempt, code: ErrorCode, reason: str) -> None:
        """Handle a reset of the attempt by the backend."""

    def on_attempt_lost(self, attempt: CallAttempt, reason: str) -> None:
        """Handle the loss of the connection to the backend."""

    def abort(self) -> None:
        """End the call after an internal error."""


class CallAttempt:
    """One attempt. Its call ignores events that come after it dropped the attempt."""

    __slots__ = ("_call", "address", "is_degraded", "stream")

    def __init__(self, call: AttemptListener) -> None:
        self._call = call
        #: Address of the backend; empty before one is picked.
        self.address = ""
        #: None before the request is sent and after the attempt has ended.
        self.stream: Stream | None = None
        self.is_degraded = False

    @contain_errors
    def on_headers(self, head: ResponseHead, *, end: bool) -> None:
        """Pass headers or trailers to the call."""
        self._call.on_attempt_headers(self, head, end=end)

    @contain_errors
    def on_data(self, data: bytes, *, end: bool) -> None:
        """Pass bytes to the call."""
        self._call.on_attempt_data(self, data, end=end)

    @contain_errors
    def on_reset(self, code: ErrorCode, reason: str) -> None:
        """Pass a reset to the call."""
        self._call.on_attempt_reset(self, code, reason)

    @contain_errors
    def on_lost(self, reason: str) -> None:
        """Pass a lost connection to the call."""
        self._call.on_attempt_lost(self, reason)

    def abort(self) -> None:
        """End the call after an internal error."""
        self._call.abort()
