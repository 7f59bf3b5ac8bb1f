from __future__ import annotations

import pytest
from redis import Redis

from fleet.monitoring.state import StateUnavailableError
from fleet.monitoring.state.identities import ExpiringIdentity, IdentityStore, IdentityValidity
from fleet.monitoring.state.reader import Reader, open_reader

_HOUR, _DAY = 3600.0, 86400.0


def test_identity_is_read_until_the_cluster_has_none(redis: Redis, prefix: str) -> None:
    """Of one cluster only."""
    store, validity = (
        IdentityStore(redis, prefix),
        IdentityValidity("refloat", 1.5, 100.5, ("refloat", "reader")),
    )
    assert store.read("a") is None
    store.write("a", validity)
    assert (store.read("a"), store.read("b")) == (validity, None)
    assert Reader(redis, prefix).identity("a") == validity
    store.write("a", None)
    assert store.read("a") is None


@pytest.mark.parametrize(
    ("lifetime", "warning_seconds"),
    [(_HOUR, _HOUR / 4), (20 * _DAY, 5 * _DAY), (90 * _DAY, 7 * _DAY), (0.0, 0.0), (-_HOUR, 0.0)],
)
def test_identity_is_expiring_in_its_last_quarter_for_a_week_at_most(
    lifetime: float, warning_seconds: float
) -> None:
    """Warnings of identities that a bot renews every 20 min would otherwise never end."""
    validity = IdentityValidity("refloat", 1000.0, 1000.0 + lifetime)
    assert validity.expires_at - validity.expiring_from == warning_seconds
    assert validity.is_expiring(validity.expiring_from)
    assert not validity.is_expiring(validity.expiring_from - 1)
    assert (validity.is_expired(validity.expires_at), validity.is_expired(validity.expires_at - 1)) == (
        True,
        False,
    )


def test_only_an_identity_that_must_be_renewed_is_expiring(redis: Redis, prefix: str) -> None:
    """Before its last quarter there is none."""
    IdentityStore(redis, prefix).write("a", IdentityValidity("refloat", 0.0, 400.0))
    reader = Reader(redis, prefix)
    assert reader.expiring_identity("a", 299.0) is None
    assert reader.expiring_identity("a", 300.0) == ExpiringIdentity(400.0, is_expired=False)
    assert reader.expiring_identity("a", 400.0) == ExpiringIdentity(400.0, is_expired=True)
    assert reader.expiring_identity("b", 400.0) is None


def test_redis_down() -> None:
    with pytest.raises(StateUnavailableError):
        open_reader("redis://127.0.0.1:1/0", "x").identity("a")
