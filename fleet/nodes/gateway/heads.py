"""Headers and trailers of calls: what the gateway decides by, and the block to pass on. docs/reference/gateway.md"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fleet.protocol.destination.instance_status import DEGRADED_HEADER, DRAINING_HEADER
from fleet.protocol.retry import grpc_http2
from fleet.protocol.retry.grpc_http2 import Status
from fleet.protocol.retry.policy import PREVIOUS_ATTEMPTS, PUSHBACK
from fleet.transport.http2.fields import HeaderFields, encode, plain
from fleet.transport.http2.messages import HeaderField

_DEGRADED, _DRAINING = DEGRADED_HEADER.encode(), DRAINING_HEADER.encode()
_TIMEOUT = b"grpc-timeout"
_ATTEMPTS = PREVIOUS_ATTEMPTS.encode()
#: Headers of a response that the gateway itself sends.
HEAD = encode(plain((b":status", b"200"), (b"content-type", b"application/grpc")))


@dataclass(frozen=True, slots=True)
class RequestHead:
    """Headers of a request."""

    path: str
    authority: str
    #: The caller's timeout, seconds from the arrival of the headers.
    timeout: float | None
    #: Header block to pass on, without a deadline.
    block: bytes
    #: HTTP status to respond with instead of a call.
    refusal: int | None
    method: str
    #: Fields of the block except pseudo-headers.
    fields: HeaderFields = ()


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """Headers of a response, or its trailers, or both at once."""

    http: int | None
    grpc: bool
    status: Status | None
    message: bytes
    pushback: str | None
    #: From Envoy's header.
    is_degraded: bool
    #: Why the instance accepts no new calls; None: it does.
    draining_reason: str | None
    block: bytes


def make_request_reader(*, secure: bool) -> Callable[[HeaderFields], RequestHead]:
    """Return a function that reads the headers of requests. `secure`: backends use TLS, so the scheme is https."""
    scheme = b"https" if secure else b"http"

    def make(fields: HeaderFields) -> RequestHead:
        return _request(fields, scheme)

    return make


def _request(fields: HeaderFields, scheme: bytes) -> RequestHead:
    pseudo: dict[bytes, bytes] = {}
    fields_to_pass: list[HeaderField] = []
    timeout, content, host = None, b"", b""
    for field in fields:
        name, value, _ = field
        if name.startswith(b":"):
            pseudo[name] = value
            continue
        if name == _TIMEOUT:
            timeout = grpc_http2.read_timeout(value)
            continue
        if name == b"content-type":
            content = value
        elif name == b"host":
            host = value
            continue
        fields_to_pass.append(field)
    path, authority = pseudo.get(b":path", b""), pseudo.get(b":authority", host)
    head = plain((b":method", b"POST"), (b":scheme", scheme), (b":path", path), (b":authority", authority))
    method = pseudo.get(b":method", b"")
    return RequestHead(
        path.decode("latin-1"),
        authority.decode("latin-1"),
        timeout,
        encode((*head, *fields_to_pass)),
        _refusal(method, content),
        method.decode("latin-1"),
        tuple(fields_to_pass),
    )


def _refusal(method: bytes, content: bytes) -> int | None:
    if method != b"POST":
        return 405
    return None if content.startswith(b"application/grpc") else 415


def read_response(fields: HeaderFields) -> ResponseHead:
    """Read headers or trailers of a response."""
    http: int | None = None
    status: Status | None = None
    message, pushback, grpc, is_degraded = b"", None, False, False
    draining_reason: str | None = None
    for name, value, _ in fields:
        if name == b":status":
            http = int(value) if value.isdigit() and len(value) == 3 else 0
        elif name == b"grpc-status":
            status = Status.read(value)
        elif name == b"grpc-message":
            message = value
        elif name == b"content-type":
            grpc = value.startswith(b"application/grpc")
        elif name == PUSHBACK.encode():
            pushback = value.decode("latin-1")
        elif name == _DEGRADED:
            is_degraded = True
        elif name == _DRAINING:
            draining_reason = value.decode("latin-1")
    return ResponseHead(http, grpc, status, message, pushback, is_degraded, draining_reason, encode(fields))


def encode_request_head(head: RequestHead, seconds: float | None, attempts_before: int) -> bytes:
    """Return the header block of one attempt."""
    block = head.block
    if seconds is not None:
        block += encode(plain((_TIMEOUT, grpc_http2.write_timeout(seconds))))
    if attempts_before:
        block += encode(plain((_ATTEMPTS, str(attempts_before).encode())))
    return block


def trailers(status: Status, message: str, *, is_trailers_only: bool) -> bytes:
    """Return the trailers of a call that the gateway itself ends; `is_trailers_only`: no headers were sent before."""
    fields = plain(
        (b"grpc-status", str(int(status)).encode()), (b"grpc-message", grpc_http2.write_message(message))
    )
    if is_trailers_only:
        fields = (*plain((b":status", b"200"), (b"content-type", b"application/grpc")), *fields)
    return encode(fields)
