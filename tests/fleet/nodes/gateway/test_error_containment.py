"""Internal errors end one call only."""

from __future__ import annotations

import pytest

from fleet.nodes.gateway.error_containment import contain_errors


class FailingCall:
    """A call that fails for negative numbers."""

    def __init__(self) -> None:
        self.abort_count = 0
        self.received_numbers: list[tuple[int, bool]] = []

    @contain_errors
    def on_data(self, number: int, *, end: bool) -> None:
        if number < 0:
            raise ValueError("a bug")
        self.received_numbers.append((number, end))

    @contain_errors
    def on_timeout(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("another bug")

    def abort(self) -> None:
        self.abort_count += 1


def test_contained_error_aborts_its_own_call(caplog: pytest.LogCaptureFixture) -> None:
    """The error is logged with its traceback and not raised; other uses of the object are not affected."""
    failing_call = FailingCall()
    failing_call.on_data(1, end=True)
    failing_call.on_data(-1, end=True)
    failing_call.on_data(2, end=False)

    assert failing_call.received_numbers == [(1, True), (2, False)]
    assert failing_call.abort_count == 1
    assert "internal error in FailingCall.on_data: one call ends" in caplog.text
    assert "ValueError: a bug" in caplog.text


def test_errors_of_timers_are_contained(caplog: pytest.LogCaptureFixture) -> None:
    failing_call = FailingCall()
    failing_call.on_timeout(1.0)
    failing_call.on_timeout(-1.0)

    assert failing_call.abort_count == 1
    assert "internal error in FailingCall.on_timeout: one call ends" in caplog.text
