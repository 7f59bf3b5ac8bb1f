"""Log lines that no stranger's text can break: names of agents, paths and hosts of requests stand in them."""

from __future__ import annotations

import logging
from types import TracebackType

from typing_extensions import override

_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def visible(text: str, keep: str = "") -> str:
    r"""Spell out what a terminal would obey or not show: control characters, line ends, marks of direction.

    `keep` names characters that stay; all others that are not printable become escapes, as in `\x1b` or `\u202e`.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


class LineFormatter(logging.Formatter):
    """One record, one line; the lines of a traceback follow it."""

    @override
    def formatMessage(self, record: logging.LogRecord) -> str:
        return visible(super().formatMessage(record))

    @override
    def formatException(self, ei: _ExcInfo) -> str:
        return visible(super().formatException(ei), keep="\n")


def handler(format_of: str = "%(asctime)s %(levelname)s %(name)s %(message)s") -> logging.Handler:
    """Return what a program gives `logging.basicConfig` as its only handler: lines on stderr."""
    lines = logging.StreamHandler()
    lines.setFormatter(LineFormatter(format_of))
    return lines


class RefusalFilter(logging.Filter):
    """Make one warning of each request that was refused: Django logs a traceback for every 403 and every wrong host."""

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(record, "status_code", 500) < 500:
            record.exc_info, record.exc_text = None, None
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        return True
