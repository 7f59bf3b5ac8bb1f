"""Heads of calls and of answers."""

from __future__ import annotations

import hpack
import pytest

from fleet.nodes.gateway import heads
from fleet.nodes.gateway.heads import make_request_reader, read_response
from fleet.protocol.retry import grpc_http2
from fleet.protocol.retry.grpc_http2 import Status
from fleet.transport.http2.fields import plain

CALL = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/a.B/C"),
    (b":authority", b"a.b:1"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc+proto"),
)


def decoded(block: bytes) -> list[tuple[bytes, bytes]]:
    return [(bytes(name), bytes(value)) for name, value in hpack.Decoder().decode(block, raw=True)]


def test_head_of_a_call() -> None:
    """The deadline is taken out; everything else passes in its order."""
    fields = plain(*CALL, (b"grpc-timeout", b"250m"), (b"x-bin", b"AAE"), (b"x-bin", b"AAI"))
    head = make_request_reader(secure=True)(fields)

    assert (head.path, head.authority, head.timeout, head.refusal) == ("/a.B/C", "a.b:1", 0.25, None)
    sent = decoded(head.block)
    assert sent[:4] == [(b":method", b"POST"), (b":scheme", b"https"), *CALL[2:4]]
    assert sent[4:] == [*CALL[4:], (b"x-bin", b"AAE"), (b"x-bin", b"AAI")]


def test_try_has_its_own_deadline_and_count() -> None:
    """Of a retry; the first try says neither unless it has one."""
    head = make_request_reader(secure=False)(plain(*CALL))

    assert heads.encode_request(head, None, 0) == head.block
    (name, timeout), attempts = decoded(heads.encode_request(head, 1.5, 2))[-2:]
    assert name == b"grpc-timeout"
    assert grpc_http2.read_timeout(timeout) == pytest.approx(1.5, abs=1e-5)
    assert attempts == (b"grpc-previous-rpc-attempts", b"2")


def test_host_is_the_authority_when_there_is_none() -> None:
    """As RFC 9113 section 8.3.1 allows; it is sent on as authority."""
    fields = plain(*(pair for pair in CALL if pair[0] != b":authority"), (b"host", b"c.d"))
    head = make_request_reader(secure=False)(fields)

    assert head.authority == "c.d"
    assert (b":authority", b"c.d") in decoded(head.block)
    assert b"host" not in dict(decoded(head.block))


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        ({b":method": b"GET"}, 405),
        ({b"content-type": b"text/html"}, 415),
    ],
)
def test_head_of_no_call(changed: dict[bytes, bytes], refusal: int) -> None:
    """It is answered in HTTP."""
    pairs = {**dict(CALL), **changed}
    head = make_request_reader(secure=False)(plain(*pairs.items()))

    assert head.refusal == refusal
    assert head.method == pairs[b":method"].decode()


def test_head_and_trailers_of_an_answer() -> None:
    """What the gateway decides by."""
    head = read_response(plain((b":status", b"200"), (b"content-type", b"application/grpc")))
    end = read_response(
        plain((b"grpc-status", b"14"), (b"grpc-message", b"a%20b"), (b"grpc-retry-pushback-ms", b"5"))
    )

    assert (head.http, head.grpc, head.status) == (200, True, None)
    assert (end.http, end.status, end.message, end.pushback) == (None, Status.UNAVAILABLE, b"a%20b", "5")
    assert not end.is_degraded
    assert read_response(plain((b"x-envoy-degraded", b""))).is_degraded


def test_end_that_the_gateway_decides() -> None:
    """Alone it is a whole answer."""
    block = heads.trailers(Status.UNAVAILABLE, "nö", is_trailers_only=True)

    assert decoded(block) == [
        (b":status", b"200"),
        (b"content-type", b"application/grpc"),
        (b"grpc-status", b"14"),
        (b"grpc-message", b"n%C3%B6"),
    ]
    assert len(decoded(heads.trailers(Status.OK, "", is_trailers_only=False))) == 2
