"""One try of a call: listens to the stream of a backend and tells its call what comes. docs/gateway.md"""

from __future__ import annotations

from typing import Protocol

from fleet.nodes.gateway.error_containment import contain_errors
from fleet.nodes.gateway.heads import ResponseHead
from fleet.transport.http2.frames import Code
from fleet.transport.http2.stream import Stream


class AttemptListener(Protocol):
    """The call, as its tries need it."""

    def on_attempt_headers(self, attempt: CallAttempt, head: ResponseHead, *, end: bool) -> None:
        """The backend sent a head, trailers, or both at once."""

    def on_attempt_data(self, attempt: CallAttempt, data: bytes, *, end: bool) -> None:
        """The backend sent bytes of messages."""

    def on_attempt_reset(self, attempt: CallAttempt, code: Code, reason: str) -> None:
        """The backend gave the try up."""

    def on_attempt_lost(self, attempt: CallAttempt, reason: str) -> None:
        """The connection to the backend was lost."""

    def abort(self) -> None:
        """End the call after an error of ours."""


class CallAttempt:
    """One try. Its call ignores what comes after it dropped the try, so that nothing late is passed on."""

    __slots__ = ("_call", "is_degraded", "name", "stream")

    def __init__(self, call: AttemptListener) -> None:
        self._call = call
        #: The address of the backend; empty before one is picked.
        self.name = ""
        #: None: the request was not sent yet, or the try is over.
        self.stream: Stream | None = None
        self.is_degraded = False

    @contain_errors
    def on_headers(self, head: ResponseHead, *, end: bool) -> None:
        """Pass a head or trailers to the call."""
        self._call.on_attempt_headers(self, head, end=end)

    @contain_errors
    def on_data(self, data: bytes, *, end: bool) -> None:
        """Pass bytes to the call."""
        self._call.on_attempt_data(self, data, end=end)

    @contain_errors
    def on_reset(self, code: Code, reason: str) -> None:
        """Tell the call of a reset."""
        self._call.on_attempt_reset(self, code, reason)

    @contain_errors
    def on_lost(self, reason: str) -> None:
        """Tell the call of a loss."""
        self._call.on_attempt_lost(self, reason)

    def abort(self) -> None:
        """End the call after an error of ours."""
        self._call.abort()
