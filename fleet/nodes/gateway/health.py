"""The health service of a gateway itself: grpc.health.v1, for whoever balances among gateways. docs/gateway.md

It serves the whole gateway, the service "": SERVING until it drains. Backends have their own health services, which
are probed (gateway_backends.py) and, by a rule that names the service, reached.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

from fleet.nodes.gateway import heads
from fleet.nodes.gateway.error_containment import contain_errors
from fleet.nodes.gateway.heads import RequestHead
from fleet.protocol.retry.grpc_http2 import PREFIX, Status
from fleet.transport.http2.frames import Code
from fleet.transport.http2.stream import Stream

SERVICE = "grpc.health.v1.Health"
_CHECK, _WATCH = f"/{SERVICE}/Check", f"/{SERVICE}/Watch"
#: The name of a service is not longer. Bytes.
_LONGEST = 4096
_HealthResponse = health_pb2.HealthCheckResponse


class GatewayHealth:
    """What the gateway says of itself, and the watches that wait for it to change."""

    def __init__(self) -> None:
        self.serving = True
        self.watches: set[HealthCall] = set()

    def stop_serving(self) -> None:
        """Take no new calls from now on: tell the watches, and end them, for a drain does not wait for them."""
        self.serving = False
        for watch in list(self.watches):
            watch.end("the gateway ends")

    def serve_call(self, stream: Stream) -> None:
        """Answer a call of the health service."""
        stream.listener = HealthCall(self, stream)


class HealthCall:
    """One call of the health service: listens to its caller's stream."""

    def __init__(self, health: GatewayHealth, stream: Stream) -> None:
        self._health = health
        self._stream = stream
        self._path = ""
        self._body = b""
        self._head_sent = False
        self._is_done = False

    @contain_errors
    def on_headers(self, head: RequestHead, *, end: bool) -> None:
        """Take the method; a call without a message is one for "", as protobuf has it."""
        self._path = self._path or head.path
        if end:
            self._answer()

    @contain_errors
    def on_data(self, data: bytes, *, end: bool) -> None:
        """Take the request."""
        self._body += data
        if len(self._body) > _LONGEST:
            self._finish(Status.RESOURCE_EXHAUSTED, f"a request of more than {_LONGEST} bytes")
        elif end:
            self._answer()

    @contain_errors
    def on_reset(self, code: Code, reason: str) -> None:
        """The caller gave up."""
        del code, reason
        self._close()

    @contain_errors
    def on_lost(self, reason: str) -> None:
        """The caller is gone."""
        del reason
        self._close()

    @contain_errors
    def end(self, reason: str) -> None:
        """Say NOT_SERVING to a watch, and end it."""
        if not self._is_done:
            self._send(int(_HealthResponse.NOT_SERVING))
            self._finish(Status.UNAVAILABLE, reason)

    def abort(self) -> None:
        """End the call after an error of ours."""
        self._close()
        self._stream.reset(Code.INTERNAL_ERROR)

    def _answer(self) -> None:
        if self._is_done:
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
            self._send(self._serving_status)
            self._finish(Status.OK, "")
        else:
            # A watch of an unknown service stays open, as the protocol has it.
            self._send(int(_HealthResponse.SERVICE_UNKNOWN) if service else self._serving_status)
            self._health.watches.add(self)

    @property
    def _serving_status(self) -> int:
        return int(_HealthResponse.SERVING if self._health.serving else _HealthResponse.NOT_SERVING)

    def _send(self, status: int) -> None:
        if not self._head_sent:
            self._head_sent = True
            self._stream.send_headers(heads.HEAD)
        message = _HealthResponse(status=status).SerializeToString()
        self._stream.send_data(b"\0" + len(message).to_bytes(4) + message)

    def _finish(self, status: Status, details: str) -> None:
        trailers = heads.trailers(status, details, is_trailers_only=not self._head_sent)
        self._stream.send_headers(trailers, end=True)
        if not self._stream.has_pending_data:
            self._stream.reset(Code.NO_ERROR)  # where the caller has not ended its request
        self._close()

    def _close(self) -> None:
        self._is_done = True
        self._health.watches.discard(self)
