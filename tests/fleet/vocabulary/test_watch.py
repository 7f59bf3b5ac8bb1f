"""The initial watch of an instance."""

from __future__ import annotations

from fleet.protocol.destination.health import Health
from fleet.vocabulary.watch import INITIAL_WATCH


def test_initial_watch_has_unknown_health_and_no_drain() -> None:
    """Before the first poll."""
    assert INITIAL_WATCH.active.signal.health is Health.UNKNOWN
    assert INITIAL_WATCH.drain_request is None
