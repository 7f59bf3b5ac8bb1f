"""Shapes of requests, responses and trailers, and their faults."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.transport.http2.fields import plain
from fleet.transport.http2.messages import validate_header_list

REQUEST = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a.B/C"), (b":authority", b"a.b:1"))
RESPONSE = ((b":status", b"200"),)


def test_well_formed_messages() -> None:
    """A request, a response and trailers are each valid only as such."""
    request, response = (
        validate_header_list(plain(*REQUEST, (b"te", b"trailers"))),
        validate_header_list(plain(*RESPONSE, (b"x-a", b"b"))),
    )
    trailers = validate_header_list(plain((b"grpc-status", b"0"), (b"grpc-message", " nö ".encode())))

    assert not request.request_fault
    assert not response.response_fault
    assert not trailers.trailers_fault
    assert request.response_fault == "sent a response without :status"
    assert response.request_fault == "sent ':status' in a request"
    assert request.trailers_fault == response.trailers_fault == "sent a pseudo-header field in trailers"
    assert trailers.request_fault == "sent a request without :method"


@pytest.mark.parametrize(
    ("field", "fault"),
    [
        ((b"X-Big", b"1"), "sent 'X-Big', which is not a valid field name"),
        ((b"", b"1"), "sent '', which is not a valid field name"),
        ((b"a b", b"1"), "sent 'a b', which is not a valid field name"),
        ((b"connection", b"close"), "sent 'connection', which is not allowed in HTTP/2"),
        ((b"transfer-encoding", b"chunked"), "sent 'transfer-encoding', which is not allowed in HTTP/2"),
        ((b"te", b"gzip"), "sent 'te', which is not allowed in HTTP/2"),
        ((b"content-length", b"1, 2"), "sent an invalid content-length"),
        ((b"content-length", b"-1"), "sent an invalid content-length"),
        ((b"x-a", b"b\r\nx-c: d"), "sent an invalid character in 'x-a'"),
        ((b"x-a", b"\0"), "sent an invalid character in 'x-a'"),
        ((b":path", b"/"), "sent a pseudo-header field after the others"),
    ],
)
def test_malformed_fields(field: tuple[bytes, bytes], fault: str) -> None:
    """RFC 9113, section 8.2; later valid fields change nothing."""
    for head in (REQUEST, RESPONSE, ()):
        validity = validate_header_list(plain(*head, (b"x-first", b"1"), field, (b"x-last", b"1")))
        assert {validity.request_fault, validity.response_fault, validity.trailers_fault} == {fault}


@pytest.mark.parametrize(
    ("changed_fields", "fault"),
    [
        ({b":method": None}, "sent a request without :method"),
        ({b":scheme": None}, "sent a request without :scheme"),
        ({b":path": None}, "sent a request without :path"),
        ({b":path": b""}, "sent a :path that does not begin with a slash"),
        ({b":path": b"a"}, "sent a :path that does not begin with a slash"),
        ({b":path": b"/a\n"}, "sent an invalid character in ':path'"),
        ({b":odd": b"1"}, "sent ':odd' in a request"),
        ({b":method": b"CONNECT"}, "sent CONNECT with pseudo-header fields other than :authority"),
    ],
)
def test_malformed_requests(changed_fields: dict[bytes, bytes | None], fault: str) -> None:
    """RFC 9113, section 8.3.1."""
    pairs = {**dict(REQUEST), **changed_fields}
    fields = plain(*((name, value) for name, value in pairs.items() if value is not None))

    assert validate_header_list(fields).request_fault == fault


def test_other_methods_are_well_formed() -> None:
    assert not validate_header_list(plain((b":method", b"CONNECT"), (b":authority", b"a:1"))).request_fault
    assert not validate_header_list(
        plain((b":method", b"OPTIONS"), (b":scheme", b"http"), (b":path", b"*"))
    ).request_fault


def test_repeated_pseudo_header_field_is_a_fault() -> None:
    """Even with the same value."""
    for pair in REQUEST:
        fault = f"sent {pair[0].decode()} twice"
        assert validate_header_list(plain(*REQUEST, pair)).request_fault == fault
    assert validate_header_list(plain(*RESPONSE, *RESPONSE)).response_fault == "sent :status twice"


def test_content_length() -> None:
    """It may be repeated with the same value; some responses never have a body."""
    length = (b"content-length", b"42")
    assert validate_header_list(plain(*RESPONSE)).content_length is None
    assert validate_header_list(plain(*RESPONSE, length, length)).content_length == 42
    assert validate_header_list(plain(*RESPONSE, length, (b"content-length", b"43"))).response_fault
    assert validate_header_list(plain((b":status", b"304"), length)).content_length is None
    assert validate_header_list(plain((b":status", b"103"), length)).content_length is None


def test_interim_responses() -> None:
    """Only 1xx is interim."""
    are_interim = [
        validate_header_list(plain((b":status", status))).is_interim
        for status in (b"100", b"103", b"200", b"1", b"10000")
    ]

    assert are_interim == [True, True, False, False, False]


@given(st.lists(st.tuples(st.binary(max_size=12), st.binary(max_size=12), st.booleans()), max_size=8))
def test_any_list_has_a_shape(fields: list[tuple[bytes, bytes, bool]]) -> None:
    """For any fields; no list is valid as request and as trailers."""
    validity = validate_header_list(fields)

    assert validity.request_fault or validity.trailers_fault
