"""Who may use a proxy's CONNECT port: who shows a token or a certificate, or everybody of this machine."""

from __future__ import annotations

import hmac
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.nodes.shared import addresses
from fleet.nodes.shared.lifecycle import NodeStartError
from fleet.protocol.tunnel import connect
from fleet.protocol.tunnel.connect import RefusalReason, RefusedError
from fleet.transport.tls import TLSFiles

#: What is shorter is guessed.
_SHORTEST_TOKEN = 16
#: Each is a file that is open and some 100 KB.
DEFAULT_LIMIT = 10_000
#: The organizational unit of agents' certificates: they serve, users connect.
_AGENTS = "agent"


@dataclass(frozen=True, slots=True)
class ConnectFlags:
    """How a proxy's CONNECT port is configured."""

    listen: tuple[str, int]
    #: Where others reach it; None is the port itself.
    advertise: tuple[str, int] | None = None
    #: Any of them lets a user in.
    tokens: tuple[str, ...] = ()
    #: User connections at a time.
    limit: int = DEFAULT_LIMIT


def read_tokens(path: Path, flag: str = "--connect-tokens") -> tuple[str, ...]:
    """Read tokens, one a line, lines that begin with # aside. Raises StartError."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise NodeStartError(f"{flag} {path} cannot be read: {error}") from None
    tokens = tuple(line for line in lines if line and not line.startswith("#"))
    if not tokens:
        raise NodeStartError(f"{flag} {path} has no token: one a line")
    if any(len(token) < _SHORTEST_TOKEN or not token.isascii() or " " in token for token in tokens):
        raise NodeStartError(
            f"{flag} {path}: a token is {_SHORTEST_TOKEN} or more characters of ASCII, without spaces"
        )
    return tokens


class ConnectAccess:
    """The rule of one port."""

    def __init__(self, flags: ConnectFlags, tls: TLSFiles) -> None:
        """Make it. Raises StartError when everybody could come in from anywhere, or TLS cannot be had."""
        self._tokens = tuple(token.encode() for token in flags.tokens)
        self._certificates = tls.enabled and tls.authority is not None
        self.tls = _context(tls) if tls.enabled else None
        if not (self._tokens or self._certificates or addresses.is_loopback(flags.listen[0])):
            raise NodeStartError(
                f"--connect-listen {addresses.join(*flags.listen)} can be reached from other machines: give "
                "--connect-tokens FILE, or --tls-ca to let in who has a certificate"
            )

    def check(self, authorization: str, certificate: Mapping[str, Any] | None) -> None:
        """Let somebody in by his Proxy-Authorization or his verified certificate. Raises RefusedError."""
        token = connect.token_of(authorization).encode()
        if any(hmac.compare_digest(token, allowed_token) for allowed_token in self._tokens):
            return
        if self._certificates and certificate:
            if _AGENTS in _units(certificate):
                raise RefusedError(
                    RefusalReason.FORBIDDEN, "this is the certificate of an agent: agents serve, and do not connect"
                )
            return
        if self._tokens or self._certificates:
            raise RefusedError(RefusalReason.UNAUTHENTICATED, self._credentials_hint(authorization))

    def _credentials_hint(self, authorization: str) -> str:
        ways = ["a token as Proxy-Authorization"] if self._tokens else []
        ways += ["a certificate of this fleet"] if self._certificates else []
        begin = "the token is not known: show" if authorization and self._tokens else "show"
        return f"{begin} {' or '.join(ways)}"


def _context(tls: TLSFiles) -> ssl.SSLContext:
    if tls.certificate is None or tls.key is None:
        raise NodeStartError("a server with TLS needs a certificate and its key")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(tls.certificate, tls.key)
        if tls.authority is not None:
            context.load_verify_locations(tls.authority)
            # Not demanded by TLS: who shows none may have a token, and is told what to show.
            context.verify_mode = ssl.CERT_OPTIONAL
    except OSError as error:
        raise NodeStartError(
            f"the CONNECT port cannot use {tls.certificate}, {tls.key} or the CA: {error}"
        ) from None
    return context


def _units(certificate: Mapping[str, Any]) -> list[str]:
    return [
        unit
        for part in certificate.get("subject", ())
        for name, unit in part
        if name == "organizationalUnitName"
    ]
