"""What a client shows to a Teleport cluster, and why it cannot be used. Does not load cryptography, which is slow."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from fleet.vocabulary.clusters import TELEPORT_SERVER_NAME


class IdentityFileError(Exception):
    """An identity that cannot be used; the message says why and what to do, and has nothing of the private key."""


class IdentityExpired(IdentityFileError):
    """The certificate is not valid any more."""

    def __init__(self, user: str, expires_at: datetime) -> None:
        super().__init__(
            f"The identity of user {user} expired at {expires_at:%Y-%m-%d %H:%M} UTC. "
            "Sign a new identity, or let a bot (tbot) renew the file"
        )
        self.user = user
        self.expires_at = expires_at


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """What a client shows to a Teleport cluster, in PEM, and how it knows the cluster."""

    private_key: bytes = field(repr=False)
    certificate: bytes
    #: CAs of the cluster's hosts. They did not sign `certificate`, which is signed by the CA of its users.
    authorities: bytes
    user: str
    #: Aware, UTC: the certificate is refused from then on.
    expires_at: datetime
    server_name: str = TELEPORT_SERVER_NAME
