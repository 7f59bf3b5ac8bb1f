"""Detection of malformed requests and responses, RFC 9113 section 8. Pure.

A gateway must not forward a malformed message: the next reader may interpret it differently.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

#: Name, value, and whether an intermediary must not store the field in a table (RFC 7541 section 7.1.3).
HeaderField = tuple[bytes, bytes, bool]

#: A token without capital letters, RFC 9113 section 8.2.1 and RFC 9110 section 5.6.2.
_FIELD_NAME = re.compile(rb"[-!#$%&'*+.^_`|~0-9a-z]+")
#: Spaces around a value are accepted: gRPC libraries write metadata as their callers gave it.
_INVALID_IN_VALUES = re.compile(rb"[\0\r\n]")
#: Connection-specific fields, RFC 9113 section 8.2.2.
_CONNECTION_FIELDS = frozenset(
    {b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"}
)
_REQUEST_PSEUDO_FIELDS = frozenset({b":method", b":scheme", b":path", b":authority"})
_REQUIRED_PSEUDO_FIELDS = frozenset({b":method", b":scheme", b":path"})
#: Responses with these statuses have no body, whatever their content-length says (RFC 9110 section 8.6).
_STATUSES_WITHOUT_BODY = frozenset({b"204", b"304"})


class HeaderListValidity(NamedTuple):
    """Valid uses of a header list. A fault is a predicate for a message, such as "sent :path twice"; empty if none."""

    #: The fault as the head of a request.
    request_fault: str
    #: The fault as the head of a response.
    response_fault: str
    trailers_fault: str
    #: Bytes of the body that must follow; None without content-length.
    content_length: int | None
    #: Head of an interim response (1xx); the final one follows.
    is_interim: bool


def validate_header_list(fields: Iterable[HeaderField]) -> HeaderListValidity:
    """Return the valid uses of a header list."""
    pseudo_fields: dict[bytes, bytes] = {}
    fault, length, has_regular_field = "", None, False
    for name, value, _ in fields:
        if name[:1] == b":":
            if has_regular_field:
                fault = "sent a pseudo-header field after the others"
            elif name in pseudo_fields:
                fault = f"sent {_text(name)} twice"
            pseudo_fields[name] = value
            continue
        has_regular_field = True
        if _FIELD_NAME.fullmatch(name) is None:
            fault = f"sent {_text(name)!r}, which is not a valid field name"
        elif name in _CONNECTION_FIELDS or (name == b"te" and value != b"trailers"):
            fault = f"sent {_text(name)!r}, which is not allowed in HTTP/2"
        elif name == b"content-length":
            if not value.isdigit() or len(value) > 18 or length not in {None, int(value)}:
                fault = "sent an invalid content-length"
            else:
                length = int(value)
        if _INVALID_IN_VALUES.search(value) is not None:
            fault = f"sent an invalid character in {_text(name)!r}"
    status = pseudo_fields.get(b":status", b"")
    interim = len(status) == 3 and status.startswith(b"1")
    return HeaderListValidity(
        fault or _request_fault(pseudo_fields),
        fault or _response_fault(pseudo_fields),
        fault or ("sent a pseudo-header field in trailers" if pseudo_fields else ""),
        None if interim or status in _STATUSES_WITHOUT_BODY else length,
        interim,
    )


def _request_fault(pseudo_fields: dict[bytes, bytes]) -> str:
    for name, value in pseudo_fields.items():
        if name not in _REQUEST_PSEUDO_FIELDS:
            return f"sent {_text(name)!r} in a request"
        if _INVALID_IN_VALUES.search(value) is not None:
            return f"sent an invalid character in {_text(name)!r}"
    if pseudo_fields.get(b":method") == b"CONNECT":
        return (
            ""
            if pseudo_fields.keys() == {b":method", b":authority"}
            else "sent CONNECT with pseudo-header fields other than :authority"
        )
    missing_fields = _REQUIRED_PSEUDO_FIELDS - pseudo_fields.keys()
    if missing_fields:
        return f"sent a request without {_text(min(missing_fields))}"
    path = pseudo_fields[b":path"]
    if not path.startswith(b"/") and (path, pseudo_fields[b":method"]) != (b"*", b"OPTIONS"):
        return "sent a :path that does not begin with a slash"
    return ""


def _response_fault(pseudo_fields: dict[bytes, bytes]) -> str:
    if pseudo_fields.keys() == {b":status"}:
        return ""
    return (
        "sent a response without :status"
        if b":status" not in pseudo_fields
        else "sent a response with other pseudo-header fields than :status"
    )


def _text(name: bytes) -> str:
    return name.decode("latin-1")[:60]
