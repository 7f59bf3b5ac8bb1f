"""HTTP CONNECT to an agent's service: what may be asked for, and every way it is refused. Pure.

`CONNECT SERVICE.AGENT:PORT` as users' programs send it. The port is theirs to choose and is not looked at: a service is
its name. Whatever else is asked for is refused in a sentence: this is no open relay.
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

#: The header by which a proxy says, to one that has the agent's tunnel, which proxy it is.
PEER_HEADER = "Refloat-Peer"
#: Of a sentence in a status line, characters.
_LONGEST_REASON = 200
_HIGHEST_PORT, _MOST_DIGITS = 65535, 5
_EXAMPLE = "ask for SERVICE.AGENT, such as web.agent-7"


class RefusalReason(Enum):
    """Why somebody is refused: the word that metrics and logs have for it, and the status of HTTP."""

    MALFORMED = ("malformed", 400)
    NAME = ("name", 400)
    UNAUTHENTICATED = ("unauthenticated", 407)
    FORBIDDEN = ("forbidden", 403)
    NO_AGENT = ("no-agent", 404)
    METHOD = ("method", 405)
    SLOW = ("slow", 408)
    AMBIGUOUS = ("ambiguous", 409)
    LARGE = ("large", 431)
    #: By a proxy that should have the agent's tunnel, or it cannot be reached.
    PEER = ("peer", 502)
    #: By the agent: no such service, or it cannot be reached.
    AGENT = ("agent", 502)
    #: It has as many users as it may.
    BUSY = ("busy", 503)
    LEAVING = ("leaving", 503)
    TIMEOUT = ("timeout", 504)

    @property
    def label(self) -> str:
        """As metrics and logs have it."""
        return self.value[0]

    @property
    def status(self) -> int:
        """Of HTTP."""
        return self.value[1]


class RefusedError(Exception):
    """Somebody is not let through; the sentence is for him."""

    def __init__(self, reason: RefusalReason, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """A service, and the id or the name of the agent that exposes it."""

    service: str
    agent: str


def parse(target: str) -> ServiceAddress:
    """Read what CONNECT asks for. Raises RefusedError."""
    host, colon, port = target.rpartition(":")
    if not colon:
        host = target
    elif not (port.isascii() and port.isdigit()):
        raise RefusedError(RefusalReason.NAME, f"{target!r} has no port that is a number: {_EXAMPLE}")
    elif len(port) > _MOST_DIGITS or not 0 < int(port) <= _HIGHEST_PORT:
        raise RefusedError(RefusalReason.NAME, f"port {port[:10]} is none: ports are 1 to {_HIGHEST_PORT}")
    if _is_address(host):
        raise RefusedError(
            RefusalReason.NAME, f"{host} is an address, and this port leads to agents' services alone: {_EXAMPLE}"
        )
    service, _, agent = host.partition(".")
    if not agent:
        raise RefusedError(RefusalReason.NAME, f"{host!r} is no service of an agent: {_EXAMPLE}")
    try:
        return ServiceAddress(agent_services.check_name(service.lower()), agent)
    except ServiceNameError as error:
        raise RefusedError(RefusalReason.NAME, str(error)) from None


def check_framing(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Refuse a CONNECT with a body: it has none (RFC 9110, 9.3.6), and who reads one ends it elsewhere than we do.

    Names are in small letters. Raises RefusedError.
    """
    for name, value in headers:
        if name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0 ")):
            sentence = f"a CONNECT has no body: leave {name.decode('ascii')} out"
            raise RefusedError(RefusalReason.MALFORMED, sentence)


def token_of(authorization: str) -> str:
    """The token in a Proxy-Authorization: of Bearer, or the password of Basic; empty when there is none."""
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
    """A sentence as a status line may have it, where many programs show nothing else of an answer."""
    text = "".join(char if " " <= char <= "~" else " " for char in sentence)
    return text if len(text) <= _LONGEST_REASON else f"{text[: _LONGEST_REASON - 3]}..."


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
