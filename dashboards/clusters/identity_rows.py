"""The identity of Refloat for a cluster, for its page and the API: whose it is, and when it expires."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from dashboards.shared import record_reader
from fleet.monitoring.state import StateUnavailableError
from fleet.protocol.durations import format_readable


@dataclass(frozen=True, slots=True)
class IdentityRow:
    """An identity at one time."""

    common_name: str
    expires_at: datetime
    #: `Expires in 2 h`, `Expired 5 min ago`.
    sentence: str
    is_expiring: bool
    roles: tuple[str, ...]


def read_identity(cluster: str, now: float) -> IdentityRow | None:
    """Return the identity of a cluster; None if there is none, or Redis is unavailable. `now`: Unix time, seconds."""
    try:
        validity = record_reader.reader().identity(cluster)
    except StateUnavailableError:
        return None
    if validity is None:
        return None
    remaining_text = format_readable(_round(abs(validity.expires_at - now)))
    return IdentityRow(
        validity.common_name,
        datetime.fromtimestamp(validity.expires_at, UTC),
        f"Expired {remaining_text} ago" if validity.is_expired(now) else f"Expires in {remaining_text}",
        validity.is_expiring(now),
        validity.roles,
    )


def _round(seconds: float) -> int:
    """Return seconds as people read them: whole days, hours or minutes."""
    for unit in (86400, 3600, 60):
        if seconds >= 2 * unit:
            return int(seconds // unit) * unit
    return int(seconds)
