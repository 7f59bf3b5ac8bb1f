from __future__ import annotations

import logging
import sys

import pytest

from fleet.processes.log_format import LineFormatter, RefusalFilter, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, ünï © 日本", "plain, ünï © 日本"),
        ("red \x1b[31m", "red \\x1b[31m"),
        ("two\nlines\r\n", "two\\nlines\\r\\n"),
        ("web\u202egnp.exe", "web\\u202egnp.exe"),
        ("a\u2066b\u200bc\x7f", "a\\u2066b\\u200bc\\x7f"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_visible(text: str, shown: str) -> None:
    """Letters of every script stay; what acts on a terminal, or hides, is spelled."""
    assert visible(text) == shown
    assert shown.isprintable()


def _record(message: str, *arguments: object, raised: BaseException | None = None) -> logging.LogRecord:
    info = (type(raised), raised, raised.__traceback__) if raised is not None else None
    return logging.LogRecord("fleet.x", logging.ERROR, "x.py", 1, message, arguments, info)


def test_record_is_one_line() -> None:
    """Whatever a name brings: nobody forges a second record."""
    formatter = LineFormatter("%(levelname)s %(name)s: %(message)s")

    line = formatter.format(_record("agent %s", "x\n2026 ERROR fleet: forged\x1b[2J"))

    assert line == "ERROR fleet.x: agent x\\n2026 ERROR fleet: forged\\x1b[2J"


def test_traceback_keeps_its_lines() -> None:
    """And nothing else that is not printable."""
    try:
        raise ValueError("bad \x1b[31m name")
    except ValueError:
        raised = sys.exc_info()[1]

    text = LineFormatter("%(message)s").format(_record("it failed", raised=raised))

    assert text.splitlines()[0] == "it failed"
    assert text.splitlines()[-1] == "ValueError: bad \\x1b[31m name"


@pytest.mark.parametrize(("status", "kept"), [(400, False), (403, False), (500, True), (None, True)])
def test_refused_requests_are_no_errors(status: int | None, kept: bool) -> None:
    """Faults of ours keep level and traceback; what was refused is a warning in one line."""
    record = _record("Forbidden: /x", raised=PermissionError("no"))
    if status is not None:
        record.status_code = status

    assert RefusalFilter().filter(record)

    assert (record.levelname, record.exc_info is not None) == (
        ("ERROR", True) if kept else ("WARNING", False)
    )
