"""The health service of a gateway itself: grpc.health.v1, for whoever balances among gateways. docs/gateway.md

It serves the whole gateway, the service "": SERVING until it drains. Backends have their own health services, which
are probed (gateway_backends.py) and, by a rule that names the service, reached.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

from fleet.nodes.gateway import heads
from fleet.nodes.gateway.error_containment import contained
from fleet.nodes.gateway.heads import RequestHead
from fleet.protocol.retry.grpc_http2 import PREFIX, Status
from fleet.transport.http2.frames import Code
from fleet.transport.http2.stream import Stream

SERVICE = "grpc.health.v1.Health"
_CHECK, _WATCH = f"/{SERVICE}/Check", f"/{SERVICE}/Watch"
#: The name of a service is not longer. Bytes.
_LONGEST = 4096
_Serving = health_pb2.HealthCheckResponse


class GatewayHealth:
    """What the gateway says of itself, and the watches that wait for it to change."""

    def __init__(self) -> None:
        self.serving = True
        self.watches: set[HealthCall] = set()

    def leave(self) -> None:
        """Take no new calls from now on: tell the watches, and end them, for a drain does not wait for them."""
        self.serving = False
        for watch in list(self.watches):
            watch.end("the gateway ends")

    def answer(self, stream: Stream) -> None:
        """Answer a call of the health service."""
        stream.listener = HealthCall(self, stream)


class HealthCall:
    """One call of the health service: listens to its caller's stream."""

    def __init__(self, health: GatewayHealth, stream: Stream) -> None:
        self._health = health
        self._stream = stream
        self._path = ""
        self._body = b""
        self._begun = False
        self._done = False

    @contained
    def on_headers(self, made: RequestHead, *, end: bool) -> None:
        """Take the method; a call without a message is one for "", as protobuf has it."""
        self._path = self._path or made.path
        if end:
            self._answer()

    @contained
    def on_data(self, data: bytes, *, end: bool) -> None:
        """Take the request."""
        self._body += data
        if len(self._body) > _LONGEST:
            self._finish(Status.RESOURCE_EXHAUSTED, f"a request of more than {_LONGEST} bytes")
        elif end:
            self._answer()

    @contained
    def on_reset(self, code: Code, why: str) -> None:
        """The caller gave up."""
        del code, why
        self._forget()

    @contained
    def on_lost(self, why: str) -> None:
        """The caller is gone."""
        del why
        self._forget()

    @contained
    def end(self, why: str) -> None:
        """Say NOT_SERVING to a watch, and end it."""
        if not self._done:
            self._send(int(_Serving.NOT_SERVING))
            self._finish(Status.UNAVAILABLE, why)

    def break_down(self) -> None:
        """End the call after an error of ours."""
        self._forget()
        self._stream.reset(Code.INTERNAL_ERROR)

    def _answer(self) -> None:
        if self._done:
            return
        if self._path not in {_CHECK, _WATCH}:
            self._finish(Status.UNIMPLEMENTED, f"{self._path} is not implemented")
            return
        if self._body[:1] == b"\1":
            self._finish(Status.UNIMPLEMENTED, "a compressed request cannot be read")
            return
        try:
            service = health_pb2.HealthCheckRequest.FromString(self._body[PREFIX:]).service
        except DecodeError:
            self._finish(Status.INTERNAL, "the request cannot be read")
            return
        if self._path == _CHECK and service:
            self._finish(Status.NOT_FOUND, f"{service} is not a service of the gateway itself")
        elif self._path == _CHECK:
            self._send(self._now)
            self._finish(Status.OK, "")
        else:
            # A watch of an unknown service stays open, as the protocol has it.
            self._send(int(_Serving.SERVICE_UNKNOWN) if service else self._now)
            self._health.watches.add(self)

    @property
    def _now(self) -> int:
        return int(_Serving.SERVING if self._health.serving else _Serving.NOT_SERVING)

    def _send(self, status: int) -> None:
        if not self._begun:
            self._begun = True
            self._stream.send_headers(heads.HEAD)
        message = _Serving(status=status).SerializeToString()
        self._stream.send_data(b"\0" + len(message).to_bytes(4) + message)

    def _finish(self, status: Status, details: str) -> None:
        trailers = heads.trailers(status, details, alone=not self._begun)
        self._stream.send_headers(trailers, end=True)
        if not self._stream.waiting:
            self._stream.reset(Code.NO_ERROR)  # where the caller has not ended its request
        self._forget()

    def _forget(self) -> None:
        self._done = True
        self._health.watches.discard(self)
