"""Errors of ours in one call."""

from __future__ import annotations

import pytest

from fleet.nodes.gateway.error_containment import contain_errors


class Thing:
    """Fails as it is told."""

    def __init__(self) -> None:
        self.broke = 0
        self.seen: list[tuple[int, bool]] = []

    @contain_errors
    def take(self, number: int, *, end: bool = False) -> None:
        if number < 0:
            raise ValueError("a bug")
        self.seen.append((number, end))

    def abort(self) -> None:
        self.broke += 1


def test_error_ends_its_own_object(caplog: pytest.LogCaptureFixture) -> None:
    """It is on the log with its traceback, and nothing is raised; what goes well is untouched."""
    thing = Thing()
    thing.take(1, end=True)
    thing.take(-1)
    thing.take(2)

    assert thing.seen == [(1, True), (2, False)]
    assert thing.broke == 1
    assert "internal error in Thing.take: one call ends" in caplog.text
    assert "ValueError: a bug" in caplog.text
