"""What a cluster's source cannot do there, as the newest round found it: docs/reference/sources.md.

It outlives the record's epochs. Without a stored value a cluster has every capability that its source declares.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

from redis import Redis

from fleet.monitoring.state.connect import map_redis_errors
from fleet.monitoring.state.keys import Keys
from fleet.vocabulary.capabilities import Capability

#: Characters of a stored reason, which may contain the text of an instance.
_MAX_REASON_LENGTH = 500


class MissingCapabilityStore:
    """Missing capabilities of every cluster, each with the reason."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix

    def write(self, cluster: str, capabilities: Mapping[Capability, str]) -> None:
        """Store the missing capabilities if they changed. Raises StateUnavailableError."""
        key = Keys(self._prefix, cluster).missing_capabilities
        blob = pack_missing(capabilities)
        with map_redis_errors():
            stored_blob = cast("bytes | None", self._redis.get(key)) or b""
            if stored_blob == blob:
                return
            if capabilities:
                self._redis.set(key, blob)
            else:
                self._redis.delete(key)

    def read(self, cluster: str) -> dict[Capability, str]:
        """Return the missing capabilities with the reasons. Raises StateUnavailableError."""
        with map_redis_errors():
            blob = cast("bytes | None", self._redis.get(Keys(self._prefix, cluster).missing_capabilities))
        return unpack_missing(blob)


def pack_missing(capabilities: Mapping[Capability, str]) -> bytes:
    """Return missing capabilities as stored: empty without any."""
    if not capabilities:
        return b""
    document = {
        capability.value: capabilities[capability][:_MAX_REASON_LENGTH] for capability in sorted(capabilities)
    }
    return json.dumps(document, separators=(",", ":")).encode()


def unpack_missing(blob: bytes | None) -> dict[Capability, str]:
    """Return stored missing capabilities, without those of another version."""
    document: dict[str, str] = json.loads(blob or b"{}")
    known_slugs = set(Capability)
    return {Capability(slug): reason for slug, reason in document.items() if slug in known_slugs}
