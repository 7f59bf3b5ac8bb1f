"""What a node could not use: each is counted, and told once of its kind and of who it came from.

Who sends what is malformed sends it again and again, so a line for each would bury the others.
"""

from __future__ import annotations

import logging

from prometheus_client import CollectorRegistry, Counter

log = logging.getLogger(__name__)

#: Kinds and peers that are remembered, at most: names cost nothing to who makes them up.
_MAX_LOGGED_KEYS = 1_000


class Refusals:
    """Those of one node."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counter = Counter(
            "refloat_refused", "What could not be used, by kind", ["kind"], registry=registry
        )
        self._logged_keys: set[tuple[str, str]] = set()

    def count(self, kind: str) -> None:
        """Count one, where another line tells of it."""
        self._counter.labels(kind).inc()

    def refuse(self, kind: str, peer: str, subject: str, reason: str) -> None:
        """Count one, and log `KIND.refused` once of a kind and peer."""
        self.count(kind)
        self.log_once(kind, peer, subject, reason)

    def log_once(self, kind: str, peer: str, subject: str, reason: str) -> None:
        """Log `KIND.refused` once of a kind and peer, where another metric counts it."""
        if (kind, peer) in self._logged_keys or len(self._logged_keys) >= _MAX_LOGGED_KEYS:
            return
        self._logged_keys.add((kind, peer))
        log.warning("%s.refused: %s: %s", kind, subject, reason)


def host_of(peer: str) -> str:
    """Who a gRPC peer is without its port, which is another for each connection."""
    return peer.rpartition(":")[0] or peer
