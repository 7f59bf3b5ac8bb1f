from __future__ import annotations

import logging
import sys

import pytest

from fleet.processes.log_format import LineFormatter, RefusalFilter, escape_unprintable


@pytest.mark.parametrize(
    ("text", "escaped_text"),
    [
        ("plain, ünï © 日本", "plain, ünï © 日本"),
        ("red \x1b[31m", "red \\x1b[31m"),
        ("two\nlines\r\n", "two\\nlines\\r\\n"),
        ("web\u202egnp.exe", "web\\u202egnp.exe"),
        ("a\u2066b\u200bc\x7f", "a\\u2066b\\u200bc\\x7f"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_unprintable_characters_are_escaped(text: str, escaped_text: str) -> None:
    """Letters of every script stay; characters that control a terminal or are invisible are escaped."""
    assert escape_unprintable(text) == escaped_text
    assert escaped_text.isprintable()


def _make_record(message: str, *arguments: object, error: BaseException | None = None) -> logging.LogRecord:
    exception_info = (type(error), error, error.__traceback__) if error is not None else None
    return logging.LogRecord("fleet.x", logging.ERROR, "x.py", 1, message, arguments, exception_info)


def test_record_is_one_line_whatever_its_arguments_are() -> None:
    """A name cannot forge a second record."""
    formatter = LineFormatter("%(levelname)s %(name)s: %(message)s")

    line = formatter.format(_make_record("agent %s", "x\n2026 ERROR fleet: forged\x1b[2J"))

    assert line == "ERROR fleet.x: agent x\\n2026 ERROR fleet: forged\\x1b[2J"


def test_traceback_keeps_its_line_breaks() -> None:
    """All other unprintable characters are escaped."""
    try:
        raise ValueError("bad \x1b[31m name")
    except ValueError:
        error = sys.exc_info()[1]

    text = LineFormatter("%(message)s").format(_make_record("it failed", error=error))

    assert text.splitlines()[0] == "it failed"
    assert text.splitlines()[-1] == "ValueError: bad \\x1b[31m name"


@pytest.mark.parametrize(("status", "is_error"), [(400, False), (403, False), (500, True), (None, True)])
def test_refused_requests_are_logged_as_warnings(status: int | None, is_error: bool) -> None:
    """Internal errors keep their level and traceback; refused requests become one warning line."""
    record = _make_record("Forbidden: /x", error=PermissionError("no"))
    if status is not None:
        record.status_code = status

    assert RefusalFilter().filter(record)

    assert (record.levelname, record.exc_info is not None) == (
        ("ERROR", True) if is_error else ("WARNING", False)
    )
