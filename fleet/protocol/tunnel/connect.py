"""HTTP CONNECT to an agent's service: parsing of requests, and every reason to refuse one. Pure.

Users' programs send `CONNECT SERVICE.AGENT:PORT`. The port is arbitrary and ignored: the name alone identifies the
service. Every other request is refused with a message: this is not an open relay.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from fleet.protocol.tunnel import agent_services
from fleet.protocol.tunnel.agent_services import ServiceNameError

#: Header with the proxy's id, on requests to a proxy that has the agent's tunnel.
PEER_HEADER = "Refloat-Peer"
#: Maximum length of a message in a status line, characters.
_LONGEST_STATUS_TEXT = 200
_HIGHEST_PORT, _MOST_DIGITS = 65535, 5
_HINT = "ask for SERVICE.AGENT, such as web.agent-7"


class RefusalReason(Enum):
    """Reason for a refusal: the word in metrics and logs, and the HTTP status."""

    MALFORMED = ("malformed", 400)
    NAME = ("name", 400)
    UNAUTHENTICATED = ("unauthenticated", 407)
    FORBIDDEN = ("forbidden", 403)
    NO_AGENT = ("no-agent", 404)
    METHOD = ("method", 405)
    REQUEST_TIMEOUT = ("request-timeout", 408)
    AMBIGUOUS = ("ambiguous", 409)
    HEADER_TOO_LARGE = ("header-too-large", 431)
    #: A proxy that should have the agent's tunnel refused, or cannot be reached.
    PEER = ("peer", 502)
    #: The agent refused: no such service, or the service cannot be reached.
    AGENT = ("agent", 502)
    #: The proxy has reached its maximum number of user connections.
    BUSY = ("busy", 503)
    DRAINING = ("draining", 503)
    TIMEOUT = ("timeout", 504)

    @property
    def label(self) -> str:
        """The word in metrics and logs."""
        return self.value[0]

    @property
    def status(self) -> int:
        return self.value[1]


class RefusedError(Exception):
    """A refused request; the message is for the user."""

    def __init__(self, reason: RefusalReason, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ServiceTarget:
    """The service, and the id or name of the agent that exposes it, of a request."""

    service: str
    agent: str


def parse(authority: str) -> ServiceTarget:
    """Parse the authority of a CONNECT request. Raises RefusedError."""
    host, colon, port = authority.rpartition(":")
    if not colon:
        host = authority
    elif not (port.isascii() and port.isdigit()):
        raise RefusedError(RefusalReason.NAME, f"{authority!r} has no numeric port: {_HINT}")
    elif len(port) > _MOST_DIGITS or not 0 < int(port) <= _HIGHEST_PORT:
        raise RefusedError(RefusalReason.NAME, f"port {port[:10]} is out of range: use 1 to {_HIGHEST_PORT}")
    if _is_address(host):
        raise RefusedError(
            RefusalReason.NAME,
            f"{host} is an IP address, but only services of agents can be reached here: {_HINT}",
        )
    service, _, agent = host.partition(".")
    if not agent:
        raise RefusedError(RefusalReason.NAME, f"{host!r} does not name a service of an agent: {_HINT}")
    try:
        return ServiceTarget(agent_services.check_name(service.lower()), agent)
    except ServiceNameError as error:
        raise RefusedError(RefusalReason.NAME, str(error)) from None


def check_framing(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Raise RefusedError for a CONNECT with a body (RFC 9110, 9.3.6: it has none).

    A reader that accepts a body would see the request end elsewhere. Header names must be lower case.
    """
    for name, value in headers:
        if name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0 ")):
            sentence = f"a CONNECT request must not have a body: remove {name.decode('ascii')}"
            raise RefusedError(RefusalReason.MALFORMED, sentence)


def token_of(authorization: str) -> str:
    """Return the token of a Proxy-Authorization header (Bearer, or the password of Basic); empty without one."""
    scheme, _, credentials = authorization.strip().partition(" ")
    credentials = credentials.strip()
    if scheme.lower() == "bearer":
        return credentials
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(credentials, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return ""
    return ""


def status_line_text(sentence: str) -> str:
    """Return a message fit for a status line (ASCII, limited length), where many programs show nothing else."""
    text = "".join(char if " " <= char <= "~" else " " for char in sentence)
    return text if len(text) <= _LONGEST_STATUS_TEXT else f"{text[: _LONGEST_STATUS_TEXT - 3]}..."


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
