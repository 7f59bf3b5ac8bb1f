"""Invalid input of peers: every case is counted, and logged once per kind and peer.

A peer that sends invalid messages sends them again and again: a log line for each would hide all others.
"""

from __future__ import annotations

import logging

from prometheus_client import CollectorRegistry, Counter

log = logging.getLogger(__name__)

#: Most kinds and peers that are remembered: peers can make up names without limit.
_MAX_LOGGED_KEYS = 1_000


class Refusals:
    """Count and log of the input that one program refused."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counter = Counter(
            "refloat_refused_inputs",
            "Messages and resources refused because they could not be used, by kind",
            ["kind"],
            registry=registry,
        )
        self._logged_keys: set[tuple[str, str]] = set()

    def count(self, kind: str) -> None:
        """Count a refusal that another log line reports."""
        self._counter.labels(kind).inc()

    def record(self, kind: str, peer: str, subject: str, reason: str) -> None:
        """Count a refusal, and log `KIND.refused` once per kind and peer."""
        self.count(kind)
        self.log_once(kind, peer, subject, reason)

    def log_once(self, kind: str, peer: str, subject: str, reason: str) -> None:
        """Log `KIND.refused` once per kind and peer, for refusals that another metric counts."""
        if (kind, peer) in self._logged_keys or len(self._logged_keys) >= _MAX_LOGGED_KEYS:
            return
        self._logged_keys.add((kind, peer))
        log.warning("%s.refused: %s: %s", kind, subject, reason)


def host_of(peer: str) -> str:
    """Return the host of a gRPC peer, without the port, which differs per connection."""
    return peer.rpartition(":")[0] or peer
