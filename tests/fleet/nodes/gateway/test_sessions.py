"""Session tokens in headers and cookies."""

from __future__ import annotations

import hpack
import pytest

from fleet.nodes.gateway.heads import RequestHead, make_request_reader
from fleet.nodes.gateway.sessions import SessionTokens, token_of
from fleet.protocol.retry.grpc_route import SessionPersistence, SessionType
from fleet.transport.http2.fields import plain

A, B = "10.0.0.1:50051", "10.0.0.2:50051"
CALL_HEADERS = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/a.B/C"),
    (b"content-type", b"application/grpc"),
)


def request_head(*fields: tuple[bytes, bytes]) -> RequestHead:
    return make_request_reader(secure=False)(plain(*CALL_HEADERS, *fields))


def decode_headers(block: bytes) -> list[tuple[bytes, bytes]]:
    return [(bytes(name), bytes(value)) for name, value in hpack.Decoder().decode(block, raw=True)]


def test_header_token_selects_its_address() -> None:
    """A response sets the token; a call with the token goes to its address and gets no new token."""
    session_tokens = SessionTokens(SessionPersistence("X-User", SessionType.HEADER), [A, B])
    assert session_tokens.address_of(request_head()) is None
    (field,) = decode_headers(session_tokens.encode_token(request_head(), A))
    assert field == (b"x-user", token_of(A))

    assert session_tokens.address_of(request_head(field)) == A
    assert session_tokens.encode_token(request_head(field), A) == b""
    assert decode_headers(session_tokens.encode_token(request_head(field), B)) == [(b"x-user", token_of(B))]


def test_cookie_token_selects_its_address() -> None:
    """The cookie may stand among others, in one header or in several."""
    session_tokens = SessionTokens(SessionPersistence("Session", SessionType.COOKIE), [A, B])
    ((name, value),) = decode_headers(session_tokens.encode_token(request_head(), B))
    assert name == b"set-cookie"
    cookie, _, attributes = value.partition(b"; ")
    assert cookie == b"Session=" + token_of(B)
    assert attributes == b"Path=/; HttpOnly; SameSite=Strict"

    for fields in ([b"a=1; " + cookie + b"; b=2"], [b"a=1", cookie]):
        call = request_head(*((b"cookie", field) for field in fields))
        assert session_tokens.address_of(call) == B
        assert session_tokens.encode_token(call, B) == b""
    assert session_tokens.address_of(request_head((b"cookie", b"session=" + token_of(B)))) is None


@pytest.mark.parametrize("token", [b"", b"nonsense", b"10.0.0.1:50051", token_of("10.0.0.3:50051")])
def test_token_of_unknown_address_is_ignored(token: bytes) -> None:
    """The call counts as one without a session."""
    session_tokens = SessionTokens(SessionPersistence("x-user", SessionType.HEADER), [A, B])

    assert session_tokens.address_of(request_head((b"x-user", token))) is None


def test_token_does_not_reveal_the_address() -> None:
    """A caller learns no addresses behind the gateway."""
    assert token_of(A) != token_of(B)
    assert A.encode() not in token_of(A)
    assert len(token_of(A)) == 16
