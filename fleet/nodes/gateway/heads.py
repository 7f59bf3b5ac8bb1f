"""Headers and trailers of calls: what the gateway decides by, and the block to pass on. docs/reference/gateway.md"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fleet.protocol.destination.instance_status import DEGRADED_HEADER, DRAINING_HEADER
from fleet.protocol.retry import grpc_http2
from fleet.protocol.retry.grpc_http2 import Status
from fleet.protocol.retry.policy import PREVIOUS_ATTEMPTS, PUSHBACK
from fleet.transport.http2.fields import HeaderFields, encode, encode_name, encode_text, plain
from fleet.transport.http2.messages import HeaderField

_DEGRADED_HEADER, _DRAINING_HEADER = DEGRADED_HEADER.encode(), DRAINING_HEADER.encode()
_TIMEOUT_HEADER = b"grpc-timeout"
#: Each call with a deadline has another value.
_TIMEOUT_NAME = encode_name(_TIMEOUT_HEADER)
_ATTEMPTS_HEADER = PREVIOUS_ATTEMPTS.encode()
#: Headers of a response that the gateway itself sends.
RESPONSE_HEAD_BLOCK = encode(plain((b":status", b"200"), (b"content-type", b"application/grpc")))


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
    refusal_status: int | None
    method: str
    #: Fields of the block except pseudo-headers.
    fields: HeaderFields = ()


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """Headers of a response, or its trailers, or both at once."""

    http_status: int | None
    is_grpc: bool
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
        return _read_request(fields, scheme)

    return make


def _read_request(fields: HeaderFields, scheme: bytes) -> RequestHead:
    pseudo: dict[bytes, bytes] = {}
    fields_to_pass: list[HeaderField] = []
    timeout, content_type, host = None, b"", b""
    for field in fields:
        name, value, _ = field
        if name.startswith(b":"):
            pseudo[name] = value
            continue
        if name == _TIMEOUT_HEADER:
            timeout = grpc_http2.read_timeout(value)
            continue
        if name == b"content-type":
            content_type = value
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
        _refusal_status_of(method, content_type),
        method.decode("latin-1"),
        tuple(fields_to_pass),
    )


def _refusal_status_of(method: bytes, content_type: bytes) -> int | None:
    if method != b"POST":
        return 405
    return None if content_type.startswith(b"application/grpc") else 415


def read_response_head(fields: HeaderFields) -> ResponseHead:
    """Read headers or trailers of a response."""
    http_status: int | None = None
    status: Status | None = None
    message, pushback, is_grpc, is_degraded = b"", None, False, False
    draining_reason: str | None = None
    for name, value, _ in fields:
        if name == b":status":
            http_status = int(value) if value.isdigit() and len(value) == 3 else 0
        elif name == b"grpc-status":
            status = Status.read(value)
        elif name == b"grpc-message":
            message = value
        elif name == b"content-type":
            is_grpc = value.startswith(b"application/grpc")
        elif name == PUSHBACK.encode():
            pushback = value.decode("latin-1")
        elif name == _DEGRADED_HEADER:
            is_degraded = True
        elif name == _DRAINING_HEADER:
            draining_reason = value.decode("latin-1")
    return ResponseHead(
        http_status, is_grpc, status, message, pushback, is_degraded, draining_reason, encode(fields)
    )


def encode_request_head(
    head: RequestHead, remaining_seconds: float | None, previous_attempt_count: int
) -> bytes:
    """Return the header block of one attempt."""
    block = head.block
    if remaining_seconds is not None:
        block += _TIMEOUT_NAME + encode_text(grpc_http2.write_timeout(remaining_seconds))
    if previous_attempt_count:
        block += encode(plain((_ATTEMPTS_HEADER, str(previous_attempt_count).encode())))
    return block


def encode_trailers(status: Status, message: str, *, is_trailers_only: bool) -> bytes:
    """Return the trailers of a call that the gateway itself ends; `is_trailers_only`: no headers were sent before."""
    fields = plain(
        (b"grpc-status", str(int(status)).encode()), (b"grpc-message", grpc_http2.write_message(message))
    )
    if is_trailers_only:
        fields = (*plain((b":status", b"200"), (b"content-type", b"application/grpc")), *fields)
    return encode(fields)
