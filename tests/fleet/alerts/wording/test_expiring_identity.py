from __future__ import annotations

from fleet.alerts.wording.expiring_identity import describe_expiring_identity, identity_cause_of
from fleet.monitoring.state.identities import ExpiringIdentity


def test_sentence_changes_only_when_the_identity_expires() -> None:
    """One cause for each cluster."""
    start = "The identity of Refloat for cluster eu"
    assert describe_expiring_identity("eu", ExpiringIdentity(36000.0, is_expired=False)) == (
        f"{start} expires at 1970-01-01 10:00 UTC."
    )
    assert describe_expiring_identity("eu", ExpiringIdentity(36000.0, is_expired=True)) == (
        f"{start} expired at 1970-01-01 10:00 UTC."
    )
    assert identity_cause_of("eu").key == "identity/eu"
