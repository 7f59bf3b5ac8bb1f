"""Session persistence of a rule (GEP-1619): calls with the token of an address return to that address.

docs/reference/gateway.md

The gateway stores nothing. A token is a hash of the address that responded, so every gateway with the same backends can
read it, also after a restart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from fleet.nodes.gateway.heads import RequestHead
from fleet.protocol.retry.grpc_route import SessionPersistence, SessionType
from fleet.transport.http2.fields import encode, plain

_COOKIE_ATTRIBUTES = "Path=/; HttpOnly; SameSite=Strict"


class SessionTokens:
    """The tokens of the addresses of one rule."""

    def __init__(self, persistence: SessionPersistence, addresses: Iterable[str]) -> None:
        self._is_cookie = persistence.kind is SessionType.COOKIE
        # HTTP/2 field names are in lower case; names of cookies are case-sensitive.
        self._field_name = persistence.name.encode() if self._is_cookie else persistence.name.lower().encode()
        self._addresses = {token_of(address): address for address in addresses}

    def address_of(self, head: RequestHead) -> str | None:
        """Return the address whose token a call carries; None without a token of this rule."""
        return self._addresses.get(self._read_token(head))

    def encode_token(self, head: RequestHead, address: str) -> bytes:
        """Return the fields to add to a response from this address: its token, unless the call carries it already."""
        token = token_of(address)
        if self._read_token(head) == token:
            return b""
        if not self._is_cookie:
            return encode(plain((self._field_name, token)))
        return encode(
            plain((b"set-cookie", b"%s=%s; %s" % (self._field_name, token, _COOKIE_ATTRIBUTES.encode())))
        )

    def _read_token(self, head: RequestHead) -> bytes:
        """Return the first token that a call carries; empty if there is none."""
        for name, value, _ in head.fields:
            if not self._is_cookie and name == self._field_name:
                return value
            if self._is_cookie and name == b"cookie":
                for pair in value.split(b";"):
                    key, _, content = pair.strip().partition(b"=")
                    if key == self._field_name:
                        return content
        return b""


def token_of(address: str) -> bytes:
    """Return the token of an address. It does not reveal the address to callers."""
    return hashlib.blake2s(address.encode(), digest_size=8).hexdigest().encode()
