"""Access to a proxy's CONNECT port: by token, by client certificate, or for everybody on this machine."""

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

#: Shortest token, in characters: shorter ones can be guessed.
_SHORTEST_TOKEN = 16
#: Default limit of user connections. Each takes an open file and about 100 KB.
DEFAULT_USER_LIMIT = 10_000
#: Organizational unit of agents' certificates. Agents serve sessions and may not connect.
_AGENT_UNIT = "agent"


@dataclass(frozen=True, slots=True)
class ConnectFlags:
    """Configuration of a proxy's CONNECT port."""

    listen: tuple[str, int]
    #: Address at which others reach the port; None: the listen address.
    advertise: tuple[str, int] | None = None
    #: Tokens. Each of them admits a user.
    tokens: tuple[str, ...] = ()
    #: Most user connections at a time.
    user_limit: int = DEFAULT_USER_LIMIT


def read_tokens(path: Path, flag: str = "--connect-tokens") -> tuple[str, ...]:
    """Read the tokens of a file, one per line, without lines that begin with #. Raises NodeStartError."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise NodeStartError(f"cannot read {flag} {path}: {error}") from None
    tokens = tuple(line for line in lines if line and not line.startswith("#"))
    if not tokens:
        raise NodeStartError(f"{flag} {path} contains no token: write one per line")
    if any(len(token) < _SHORTEST_TOKEN or not token.isascii() or " " in token for token in tokens):
        raise NodeStartError(
            f"{flag} {path}: a token needs at least {_SHORTEST_TOKEN} ASCII characters and no spaces"
        )
    return tokens


class ConnectAccess:
    """The access rule of one port."""

    def __init__(self, flags: ConnectFlags, tls: TLSFiles) -> None:
        """Raises NodeStartError if everybody could connect from other machines, or if the TLS files cannot be used."""
        self._tokens = tuple(token.encode() for token in flags.tokens)
        self._accepts_certificates = tls.enabled and tls.authority is not None
        self.tls = _make_tls_context(tls) if tls.enabled else None
        if not (self._tokens or self._accepts_certificates or addresses.is_loopback(flags.listen[0])):
            raise NodeStartError(
                f"--connect-listen {addresses.join(*flags.listen)} is reachable from other machines: set "
                "--connect-tokens FILE, or --tls-ca to admit users with a client certificate"
            )

    def check(self, authorization: str, certificate: Mapping[str, Any] | None) -> None:
        """Admit a user by the Proxy-Authorization header or the verified certificate. Raises RefusedError."""
        token = connect.token_of(authorization).encode()
        if any(hmac.compare_digest(token, allowed_token) for allowed_token in self._tokens):
            return
        if self._accepts_certificates and certificate:
            if _AGENT_UNIT in _units_of(certificate):
                raise RefusedError(
                    RefusalReason.FORBIDDEN,
                    "not allowed: this is an agent's certificate, and agents may not connect to services",
                )
            return
        if self._tokens or self._accepts_certificates:
            raise RefusedError(RefusalReason.UNAUTHENTICATED, self._describe_credentials(authorization))

    def _describe_credentials(self, authorization: str) -> str:
        ways = ["a token in the Proxy-Authorization header"] if self._tokens else []
        ways += ["a client certificate of this fleet"] if self._accepts_certificates else []
        begin = "unknown token: send" if authorization and self._tokens else "authentication required: send"
        return f"{begin} {' or '.join(ways)}"


def _make_tls_context(tls: TLSFiles) -> ssl.SSLContext:
    if tls.certificate is None or tls.key is None:
        raise NodeStartError(
            "a server with TLS needs a certificate and its key: set both --tls-cert and --tls-key"
        )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(tls.certificate, tls.key)
        if tls.authority is not None:
            context.load_verify_locations(tls.authority)
            # Not required by TLS: a user without a certificate may have a token, and is told what to send.
            context.verify_mode = ssl.CERT_OPTIONAL
    except OSError as error:
        raise NodeStartError(
            f"the CONNECT port cannot use {tls.certificate}, {tls.key} or the CA: {error}"
        ) from None
    return context


def _units_of(certificate: Mapping[str, Any]) -> list[str]:
    return [
        unit
        for part in certificate.get("subject", ())
        for name, unit in part
        if name == "organizationalUnitName"
    ]
