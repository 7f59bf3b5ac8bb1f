from __future__ import annotations

import logging

import pytest

from dashboards.config.repeated_stacks import RepeatedStackFilter
from fleet.processes.log_format import LineFormatter

_FIRST_AT = 1_800_000_000.0


def _raise(error: Exception) -> Exception:
    """Return an error with a stack, as a handler of errors gets it."""
    try:
        raise error
    except type(error) as raised_error:
        return raised_error


def _log(stacks: RepeatedStackFilter, error: Exception, at: float) -> str:
    """Return what a log shows of an error at a time."""
    exc_info = (type(error), error, error.__traceback__)
    record = logging.LogRecord("fleet.x", logging.ERROR, __file__, 1, "cluster %s", ("prod",), exc_info)
    record.created = at
    assert stacks.filter(record)
    return LineFormatter("%(levelname)s %(message)s").format(record)


def test_stack_is_logged_once_in_ten_minutes() -> None:
    """In between, the error and its place are one line."""
    stacks, error = RepeatedStackFilter(), _raise(ValueError("no such agent\nand more"))
    assert "Traceback" in _log(stacks, error, _FIRST_AT)
    for seconds in (0.0, 1.0, 599.0):
        line = _log(stacks, error, _FIRST_AT + seconds)
        assert line.startswith("ERROR cluster prod: ValueError: no such agent (")
        assert "test_repeated_stacks.py:" in line
        assert line.endswith(", stack above)")
    assert "Traceback" in _log(stacks, error, _FIRST_AT + 600.0)


def test_clock_that_goes_back_hides_no_stack() -> None:
    stacks, error = RepeatedStackFilter(), _raise(ValueError("x"))
    _log(stacks, error, _FIRST_AT)
    assert "Traceback" in _log(stacks, error, _FIRST_AT - 3600.0)


def test_other_error_has_its_stack() -> None:
    """Another type with the same frames, and the same error on another way to the line that raises it."""
    stacks = RepeatedStackFilter()
    _log(stacks, _raise(ValueError("x")), _FIRST_AT)
    assert "Traceback" in _log(stacks, _raise(KeyError("x")), _FIRST_AT + 1.0)
    with pytest.raises(ValueError, match="x") as error_info:
        raise _raise(ValueError("x"))
    assert "Traceback" in _log(stacks, error_info.value, _FIRST_AT + 1.0)


def test_number_of_remembered_stacks_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old ones are forgotten; they would be logged again anyway."""
    monkeypatch.setattr("dashboards.config.repeated_stacks._MAX_STACKS", 2)
    stacks = RepeatedStackFilter()
    for number, kind in enumerate((ValueError, KeyError, TypeError, OSError)):
        assert "Traceback" in _log(stacks, _raise(kind("x")), _FIRST_AT + number * 700.0)
    assert len(stacks._logged_at) <= 2


def test_line_without_a_stack_stays() -> None:
    """And one whose error was never raised."""
    stacks = RepeatedStackFilter()
    record = logging.LogRecord("fleet.x", logging.ERROR, __file__, 1, "cluster %s", ("prod",), None)
    assert stacks.filter(record)
    assert record.getMessage() == "cluster prod"
    assert _log(stacks, ValueError("x"), _FIRST_AT) == "ERROR cluster prod\nValueError: x"
