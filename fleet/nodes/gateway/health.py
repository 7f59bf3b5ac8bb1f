"""The health service of the gateway itself (grpc.health.v1), for load balancers in front of it.

docs/reference/gateway.md

It covers the whole gateway, service "": SERVING until the gateway drains. Backends have their own health services: the
gateway probes them (backends.py), and callers reach them by a rule that names the service.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

from fleet.nodes.gateway import heads
from fleet.nodes.gateway.error_containment import contain_errors
from fleet.nodes.gateway.heads import RequestHead
from fleet.protocol.retry.grpc_http2 import PREFIX_LENGTH, Status
from fleet.transport.http2.frames import ErrorCode
from fleet.transport.http2.stream import Stream

HEALTH_SERVICE = "grpc.health.v1.Health"
_CHECK_PATH, _WATCH_PATH = f"/{HEALTH_SERVICE}/Check", f"/{HEALTH_SERVICE}/Watch"
#: Longest request, in bytes.
_MAX_REQUEST_BYTES = 4096
_HealthResponse = health_pb2.HealthCheckResponse


class GatewayHealth:
    """Health of the gateway, and the open watches of it."""

    def __init__(self) -> None:
        self.is_serving = True
        self.watches: set[HealthCall] = set()

    def stop_serving(self) -> None:
        """Report NOT_SERVING and end the watches, because a drain does not wait for them."""
        self.is_serving = False
        for watch in list(self.watches):
            watch.end("the gateway is shutting down")

    def serve_call(self, stream: Stream) -> None:
        """Serve a call of the health service."""
        stream.listener = HealthCall(self, stream)


class HealthCall:
    """One call of the health service: receives the events of its caller's stream."""

    def __init__(self, health: GatewayHealth, stream: Stream) -> None:
        self._health = health
        self._stream = stream
        self._path = ""
        self._body = b""
        self._has_sent_head = False
        self._is_done = False

    @contain_errors
    def on_headers(self, head: RequestHead, *, end: bool) -> None:
        """Store the method. A call without a message means the service "", as in protobuf."""
        self._path = self._path or head.path
        if end:
            self._respond()

    @contain_errors
    def on_data(self, data: bytes, *, end: bool) -> None:
        """Store the request."""
        self._body += data
        if len(self._body) > _MAX_REQUEST_BYTES:
            self._finish(Status.RESOURCE_EXHAUSTED, f"the request is larger than {_MAX_REQUEST_BYTES} bytes")
        elif end:
            self._respond()

    @contain_errors
    def on_reset(self, code: ErrorCode, reason: str) -> None:
        """End the call, because the caller cancelled it."""
        del code, reason
        self._close()

    @contain_errors
    def on_lost(self, reason: str) -> None:
        """End the call, because the connection was lost."""
        del reason
        self._close()

    @contain_errors
    def end(self, reason: str) -> None:
        """Report NOT_SERVING to a watch, and end it."""
        if not self._is_done:
            self._send_status(int(_HealthResponse.NOT_SERVING))
            self._finish(Status.UNAVAILABLE, reason)

    def abort(self) -> None:
        """End the call after an internal error."""
        self._close()
        self._stream.reset(ErrorCode.INTERNAL_ERROR)

    def _respond(self) -> None:
        if self._is_done:
            return
        if self._path not in {_CHECK_PATH, _WATCH_PATH}:
            self._finish(Status.UNIMPLEMENTED, f"{self._path} is not implemented")
            return
        if self._body[:1] == b"\1":
            self._finish(Status.UNIMPLEMENTED, "compressed requests are not supported")
            return
        try:
            service = health_pb2.HealthCheckRequest.FromString(self._body[PREFIX_LENGTH:]).service
        except DecodeError:
            self._finish(Status.INTERNAL, "the request is not a valid HealthCheckRequest")
            return
        if self._path == _CHECK_PATH and service:
            self._finish(Status.NOT_FOUND, f"{service} is not a service of the gateway itself")
        elif self._path == _CHECK_PATH:
            self._send_status(self._serving_status)
            self._finish(Status.OK, "")
        else:
            # A watch of an unknown service stays open, as the protocol requires.
            self._send_status(int(_HealthResponse.SERVICE_UNKNOWN) if service else self._serving_status)
            self._health.watches.add(self)

    @property
    def _serving_status(self) -> int:
        return int(_HealthResponse.SERVING if self._health.is_serving else _HealthResponse.NOT_SERVING)

    def _send_status(self, status: int) -> None:
        if not self._has_sent_head:
            self._has_sent_head = True
            self._stream.send_headers(heads.RESPONSE_HEAD_BLOCK)
        message = _HealthResponse(status=status).SerializeToString()
        self._stream.send_data(b"\0" + len(message).to_bytes(4) + message)

    def _finish(self, status: Status, details: str) -> None:
        trailers = heads.encode_trailers(status, details, is_trailers_only=not self._has_sent_head)
        self._stream.send_headers(trailers, end=True)
        if not self._stream.has_pending_data:
            self._stream.reset(ErrorCode.NO_ERROR)  # if the caller has not ended its request
        self._close()

    def _close(self) -> None:
        self._is_done = True
        self._health.watches.discard(self)
