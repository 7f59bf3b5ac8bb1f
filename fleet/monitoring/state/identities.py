"""The identity with which Refloat reads each cluster: whose it is, and how long its certificate is valid.

Workers write it, because only they can read its file. It is independent of the record's epochs.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import cast

from redis import Redis

from fleet.monitoring.state.connect import map_redis_errors
from fleet.monitoring.state.keys import Keys

#: An identity is expiring in the last quarter of its lifetime, and at most this long before its end: one of an hour,
#: which a bot renews, for 15 min; one of a year for a week.
_LONGEST_WARNING_SECONDS = 7 * 86400.0
_WARNING_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class IdentityValidity:
    """Owner and validity of a client certificate; times in seconds since the epoch."""

    common_name: str
    valid_from: float
    expires_at: float
    #: Names of the roles in the certificate, as Teleport issues it.
    roles: tuple[str, ...] = ()

    @property
    def expiring_from(self) -> float:
        """When people should be warned, unless the identity has been renewed."""
        lifetime = max(0.0, self.expires_at - self.valid_from)
        return self.expires_at - min(_LONGEST_WARNING_SECONDS, _WARNING_SHARE * lifetime)

    def is_expiring(self, now: float) -> bool:
        """Return whether the identity has expired or will do so soon."""
        return now >= self.expiring_from

    def is_expired(self, now: float) -> bool:
        """Return whether the cluster refuses the identity."""
        return now >= self.expires_at


@dataclass(frozen=True, slots=True)
class ExpiringIdentity:
    """An identity that has expired, or will do so soon; seconds since the epoch."""

    expires_at: float
    is_expired: bool


class IdentityStore:
    """The identity of Refloat for every cluster."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix

    def write(self, cluster: str, validity: IdentityValidity | None) -> None:
        """Store an identity; None: the cluster is read without one. Raises StateUnavailableError."""
        key = Keys(self._prefix, cluster).identity
        with map_redis_errors():
            if validity is None:
                self._redis.delete(key)
            else:
                self._redis.set(key, json.dumps(asdict(validity)))

    def read(self, cluster: str) -> IdentityValidity | None:
        """Return the stored identity; None without one. Raises StateUnavailableError."""
        with map_redis_errors():
            blob = cast("bytes | None", self._redis.get(Keys(self._prefix, cluster).identity))
        if blob is None:
            return None
        document = json.loads(blob)
        return IdentityValidity(**{**document, "roles": tuple(document.get("roles", ()))})
