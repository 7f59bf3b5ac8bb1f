"""Tokens of sessions, in headers and cookies."""

from __future__ import annotations

import hpack
import pytest

from fleet.nodes.gateway.heads import RequestHead, make_request_reader
from fleet.nodes.gateway.sessions import Sessions, token_of
from fleet.protocol.retry.grpc_route import SessionPersistence, SessionType
from fleet.transport.http2.fields import plain

A, B = "10.0.0.1:50051", "10.0.0.2:50051"
CALL = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/a.B/C"),
    (b"content-type", b"application/grpc"),
)


def head(*fields: tuple[bytes, bytes]) -> RequestHead:
    return make_request_reader(secure=False)(plain(*CALL, *fields))


def decoded(block: bytes) -> list[tuple[bytes, bytes]]:
    return [(bytes(name), bytes(value)) for name, value in hpack.Decoder().decode(block, raw=True)]


def test_token_in_a_header() -> None:
    """An answer brings it; a call that carries it goes there, and is not told again."""
    sessions = Sessions(SessionPersistence("X-User", SessionType.HEADER), [A, B])
    assert sessions.address(head()) is None
    (field,) = decoded(sessions.encode_token(head(), A))
    assert field == (b"x-user", token_of(A))

    assert sessions.address(head(field)) == A
    assert sessions.encode_token(head(field), A) == b""
    assert decoded(sessions.encode_token(head(field), B)) == [(b"x-user", token_of(B))]


def test_token_in_a_cookie() -> None:
    """Among other cookies, in one field or in several."""
    sessions = Sessions(SessionPersistence("Session", SessionType.COOKIE), [A, B])
    ((name, value),) = decoded(sessions.encode_token(head(), B))
    assert name == b"set-cookie"
    cookie, _, attributes = value.partition(b"; ")
    assert cookie == b"Session=" + token_of(B)
    assert attributes == b"Path=/; HttpOnly; SameSite=Strict"

    for fields in ([b"a=1; " + cookie + b"; b=2"], [b"a=1", cookie]):
        call = head(*((b"cookie", field) for field in fields))
        assert sessions.address(call) == B
        assert sessions.encode_token(call, B) == b""
    assert sessions.address(head((b"cookie", b"session=" + token_of(B)))) is None


@pytest.mark.parametrize("token", [b"", b"nonsense", b"10.0.0.1:50051", token_of("10.0.0.3:50051")])
def test_token_of_no_address(token: bytes) -> None:
    """It is a call without a session."""
    sessions = Sessions(SessionPersistence("x-user", SessionType.HEADER), [A, B])

    assert sessions.address(head((b"x-user", token))) is None


def test_token_shows_no_address() -> None:
    """A caller learns nothing of what is behind the gateway."""
    assert token_of(A) != token_of(B)
    assert A.encode() not in token_of(A)
    assert len(token_of(A)) == 16
