"""One try of a call: listens to the stream of a backend and tells its call what comes. docs/gateway.md"""

from __future__ import annotations

from typing import Protocol

from fleet.nodes.gateway.error_containment import contained
from fleet.nodes.gateway.heads import ResponseHead
from fleet.transport.http2.frames import Code
from fleet.transport.http2.stream import Stream


class TriedCall(Protocol):
    """The call, as its tries need it."""

    def answered(self, attempt: Try, head: ResponseHead, *, end: bool) -> None:
        """The backend sent a head, trailers, or both at once."""

    def answered_data(self, attempt: Try, data: bytes, *, end: bool) -> None:
        """The backend sent bytes of messages."""

    def was_reset(self, attempt: Try, code: Code, why: str) -> None:
        """The backend gave the try up."""

    def was_lost(self, attempt: Try, why: str) -> None:
        """The connection to the backend was lost."""

    def break_down(self) -> None:
        """End the call after an error of ours."""


class Try:
    """One try. Its call ignores what comes after it dropped the try, so that nothing late is passed on."""

    __slots__ = ("_call", "degraded", "name", "stream")

    def __init__(self, call: TriedCall) -> None:
        self._call = call
        #: The address of the backend; empty before one is picked.
        self.name = ""
        #: None: the request was not sent yet, or the try is over.
        self.stream: Stream | None = None
        self.degraded = False

    @contained
    def on_headers(self, made: ResponseHead, *, end: bool) -> None:
        """Pass a head or trailers to the call."""
        self._call.answered(self, made, end=end)

    @contained
    def on_data(self, data: bytes, *, end: bool) -> None:
        """Pass bytes to the call."""
        self._call.answered_data(self, data, end=end)

    @contained
    def on_reset(self, code: Code, why: str) -> None:
        """Tell the call of a reset."""
        self._call.was_reset(self, code, why)

    @contained
    def on_lost(self, why: str) -> None:
        """Tell the call of a loss."""
        self._call.was_lost(self, why)

    def break_down(self) -> None:
        """End the call after an error of ours."""
        self._call.break_down()
