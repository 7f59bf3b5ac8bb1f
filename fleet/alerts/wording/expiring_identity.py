"""The cause and the sentence of an identity of Refloat that expires. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from fleet.monitoring.state.identities import ExpiringIdentity
from fleet.vocabulary.incidents import Cause, CauseKind


def identity_cause_of(cluster: str) -> Cause:
    """Return the cause: one for each cluster."""
    return Cause(CauseKind.IDENTITY, cluster, "identity of Refloat")


def describe_expiring_identity(cluster: str, identity: ExpiringIdentity) -> str:
    """Return when the identity expires, as a sentence. It changes only when the identity has expired."""
    verb = "expired" if identity.is_expired else "expires"
    expires_at = f"{datetime.fromtimestamp(identity.expires_at, UTC):%Y-%m-%d %H:%M} UTC"
    return f"The identity of Refloat for cluster {cluster} {verb} at {expires_at}."
