"""Header lists of calls and of responses."""

from __future__ import annotations

import hpack
import pytest

from fleet.nodes.gateway import heads
from fleet.nodes.gateway.heads import make_request_reader, read_response_head
from fleet.protocol.retry import grpc_http2
from fleet.protocol.retry.grpc_http2 import Status
from fleet.transport.http2.fields import plain

CALL_HEADERS = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/a.B/C"),
    (b":authority", b"a.b:1"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc+proto"),
)


def decode_headers(block: bytes) -> list[tuple[bytes, bytes]]:
    return [(bytes(name), bytes(value)) for name, value in hpack.Decoder().decode(block, raw=True)]


def test_request_head_is_forwarded_without_deadline() -> None:
    """The deadline is parsed and removed; all other headers are forwarded in their order."""
    fields = plain(*CALL_HEADERS, (b"grpc-timeout", b"250m"), (b"x-bin", b"AAE"), (b"x-bin", b"AAI"))
    head = make_request_reader(secure=True)(fields)

    assert (head.path, head.authority, head.timeout, head.refusal_status) == ("/a.B/C", "a.b:1", 0.25, None)
    headers = decode_headers(head.block)
    assert headers[:4] == [(b":method", b"POST"), (b":scheme", b"https"), *CALL_HEADERS[2:4]]
    assert headers[4:] == [*CALL_HEADERS[4:], (b"x-bin", b"AAE"), (b"x-bin", b"AAI")]


def test_retry_has_its_own_deadline_and_attempt_count() -> None:
    """The first attempt has neither unless it has a deadline."""
    head = make_request_reader(secure=False)(plain(*CALL_HEADERS))

    assert heads.encode_request_head(head, None, 0) == head.block
    (name, timeout), attempts = decode_headers(heads.encode_request_head(head, 1.5, 2))[-2:]
    assert name == b"grpc-timeout"
    assert grpc_http2.read_timeout(timeout) == pytest.approx(1.5, abs=1e-5)
    assert attempts == (b"grpc-previous-rpc-attempts", b"2")


def test_host_header_becomes_missing_authority() -> None:
    """RFC 9113 section 8.3.1 allows this; the gateway sends it as the authority."""
    fields = plain(*(pair for pair in CALL_HEADERS if pair[0] != b":authority"), (b"host", b"c.d"))
    head = make_request_reader(secure=False)(fields)

    assert head.authority == "c.d"
    assert (b":authority", b"c.d") in decode_headers(head.block)
    assert b"host" not in dict(decode_headers(head.block))


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({b":method": b"GET"}, 405),
        ({b"content-type": b"text/html"}, 415),
    ],
)
def test_request_that_is_no_grpc_call_is_refused_in_http(changes: dict[bytes, bytes], refusal: int) -> None:
    """The refusal is the HTTP status."""
    pairs = {**dict(CALL_HEADERS), **changes}
    head = make_request_reader(secure=False)(plain(*pairs.items()))

    assert head.refusal_status == refusal
    assert head.method == pairs[b":method"].decode()


def test_response_head_and_trailers_are_parsed() -> None:
    """The gateway decides by the HTTP status, the gRPC status, the pushback and the degraded header."""
    head = read_response_head(plain((b":status", b"200"), (b"content-type", b"application/grpc")))
    end = read_response_head(
        plain((b"grpc-status", b"14"), (b"grpc-message", b"a%20b"), (b"grpc-retry-pushback-ms", b"5"))
    )

    assert (head.http_status, head.is_grpc, head.status) == (200, True, None)
    assert (end.http_status, end.status, end.message, end.pushback) == (
        None,
        Status.UNAVAILABLE,
        b"a%20b",
        "5",
    )
    assert not end.is_degraded
    assert read_response_head(plain((b"x-envoy-degraded", b""))).is_degraded


def test_trailers_of_the_gateway_can_be_a_whole_response() -> None:
    """With `is_trailers_only` they include the response head."""
    block = heads.encode_trailers(Status.UNAVAILABLE, "nö", is_trailers_only=True)

    assert decode_headers(block) == [
        (b":status", b"200"),
        (b"content-type", b"application/grpc"),
        (b"grpc-status", b"14"),
        (b"grpc-message", b"n%C3%B6"),
    ]
    assert len(decode_headers(heads.encode_trailers(Status.OK, "", is_trailers_only=False))) == 2
