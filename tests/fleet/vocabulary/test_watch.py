"""What is kept from poll to poll."""

from __future__ import annotations

from fleet.protocol.destination.health import Health
from fleet.vocabulary.watch import INITIAL_WATCH


def test_unwatched_says_nothing() -> None:
    """Before the first poll nothing is concluded, and nobody drains."""
    assert INITIAL_WATCH.active.signal.health is Health.UNKNOWN
    assert INITIAL_WATCH.drain_request is None
