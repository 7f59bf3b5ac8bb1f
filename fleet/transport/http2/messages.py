"""Detection of malformed requests and responses, RFC 9113 section 8. Pure.

A gateway must not forward a malformed message: the next reader may interpret it differently.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

#: Name, value, and whether an intermediary must not store the field in a table (RFC 7541 section 7.1.3).
Field = tuple[bytes, bytes, bool]

#: A token without capital letters, RFC 9113 section 8.2.1 and RFC 9110 section 5.6.2.
_NAME = re.compile(rb"[-!#$%&'*+.^_`|~0-9a-z]+")
#: Spaces around a value are accepted: gRPC libraries write metadata as their callers gave it.
_NOT_IN_VALUES = re.compile(rb"[\0\r\n]")
#: Connection-specific fields, RFC 9113 section 8.2.2.
_OF_CONNECTION = frozenset(
    {b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"}
)
_OF_REQUESTS = frozenset({b":method", b":scheme", b":path", b":authority"})
_REQUIRED = frozenset({b":method", b":scheme", b":path"})
#: Responses with these statuses have no body, whatever their content-length says (RFC 9110 section 8.6).
_WITHOUT_BODY = frozenset({b"204", b"304"})


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
    interim: bool


def shape(fields: Iterable[Field]) -> HeaderListValidity:
    """Return the shape of a header list."""
    pseudo: dict[bytes, bytes] = {}
    fault, length, regular = "", None, False
    for name, value, _ in fields:
        if name[:1] == b":":
            if regular:
                fault = "sent a pseudo-header field after the others"
            elif name in pseudo:
                fault = f"sent {_text(name)} twice"
            pseudo[name] = value
            continue
        regular = True
        if _NAME.fullmatch(name) is None:
            fault = f"sent {_text(name)!r}, which is not a valid field name"
        elif name in _OF_CONNECTION or (name == b"te" and value != b"trailers"):
            fault = f"sent {_text(name)!r}, which is not allowed in HTTP/2"
        elif name == b"content-length":
            if not value.isdigit() or len(value) > 18 or length not in {None, int(value)}:
                fault = "sent an invalid content-length"
            else:
                length = int(value)
        if _NOT_IN_VALUES.search(value) is not None:
            fault = f"sent an invalid character in {_text(name)!r}"
    status = pseudo.get(b":status", b"")
    interim = len(status) == 3 and status.startswith(b"1")
    return HeaderListValidity(
        fault or _request_fault(pseudo),
        fault or _response_fault(pseudo),
        fault or ("sent a pseudo-header field in trailers" if pseudo else ""),
        None if interim or status in _WITHOUT_BODY else length,
        interim,
    )


def _request_fault(pseudo: dict[bytes, bytes]) -> str:
    for name, value in pseudo.items():
        if name not in _OF_REQUESTS:
            return f"sent {_text(name)!r} in a request"
        if _NOT_IN_VALUES.search(value) is not None:
            return f"sent an invalid character in {_text(name)!r}"
    if pseudo.get(b":method") == b"CONNECT":
        return (
            ""
            if pseudo.keys() == {b":method", b":authority"}
            else "sent CONNECT with pseudo-header fields other than :authority"
        )
    missing_fields = _REQUIRED - pseudo.keys()
    if missing_fields:
        return f"sent a request without {_text(min(missing_fields))}"
    path = pseudo[b":path"]
    if not path.startswith(b"/") and (path, pseudo[b":method"]) != (b"*", b"OPTIONS"):
        return "sent a :path that does not begin with a slash"
    return ""


def _response_fault(pseudo: dict[bytes, bytes]) -> str:
    if pseudo.keys() == {b":status"}:
        return ""
    return (
        "sent a response without :status"
        if b":status" not in pseudo
        else "sent a response with other pseudo-header fields than :status"
    )


def _text(name: bytes) -> str:
    return name.decode("latin-1")[:60]
