"""Log lines with escaped control characters: they contain untrusted text, such as agent names and request paths."""

from __future__ import annotations

import logging
from types import TracebackType

from typing_extensions import override

_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def escape_unprintable(text: str, keep: str = "") -> str:
    r"""Return `text` with characters escaped that are not printable: control characters, line ends, direction marks.

    Characters in `keep` stay; all others that are not printable become escapes such as `\x1b` or `\u202e`.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


class LineFormatter(logging.Formatter):
    """Formats a record as one line; the lines of a traceback follow."""

    @override
    def formatMessage(self, record: logging.LogRecord) -> str:
        return escape_unprintable(super().formatMessage(record))

    @override
    def formatException(self, ei: _ExcInfo) -> str:
        return escape_unprintable(super().formatException(ei), keep="\n")


def create_handler(line_format: str = "%(asctime)s %(levelname)s %(name)s %(message)s") -> logging.Handler:
    """Return the handler for `logging.basicConfig`: one line per record, on stderr."""
    stream_handler = logging.StreamHandler()
    stream_handler.setFormatter(LineFormatter(line_format))
    return stream_handler


def replace_stack(record: logging.LogRecord, reason: str) -> None:
    """Write a reason into the line of a record in place of its stack, unless the line has the reason already."""
    message = record.getMessage()
    record.msg, record.args = message if reason in message else f"{message}: {reason}", ()
    record.exc_info, record.exc_text = None, None


class RefusalFilter(logging.Filter):
    """Logs each refused request as one warning, where Django logs a traceback for every 403 and every invalid host."""

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(record, "status_code", 500) < 500:
            record.exc_info, record.exc_text = None, None
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        return True
