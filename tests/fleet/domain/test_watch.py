"""What is kept from poll to poll."""

from __future__ import annotations

from fleet.domain.watch import UNWATCHED
from fleet.protocol.destination import Health


def test_unwatched_says_nothing() -> None:
    """Before the first poll nothing is concluded, and nobody drains."""
    assert UNWATCHED.active.signal.health is Health.UNKNOWN
    assert UNWATCHED.draining is None
