from __future__ import annotations

from datetime import UTC, datetime

from fleet.transport.client_identity import ClientIdentity, IdentityExpired

_EXPIRES_AT = datetime(2027, 1, 2, 3, 4, tzinfo=UTC)


def test_expired_identity_says_what_to_do() -> None:
    error = IdentityExpired("refloat", _EXPIRES_AT)
    assert str(error) == (
        "The identity of user refloat expired at 2027-01-02 03:04 UTC. "
        "Sign a new identity, or let a bot (tbot) renew the file"
    )


def test_private_key_is_in_no_representation() -> None:
    identity = ClientIdentity(b"secret", b"certificate", b"authorities", "refloat", _EXPIRES_AT)
    assert "secret" not in repr(identity)
