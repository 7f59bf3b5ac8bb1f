"""Texts of failed calls in short words: gRPC's own name every address and layer. Pure."""

from __future__ import annotations

import re

#: Characters of an original text that are shown on request.
MAX_DETAILS_LENGTH = 300
#: A longer text is cut where it is shown at first.
_MAX_SUMMARY_LENGTH = 160

#: Where a text begins that a library wrote for developers, with the status code that Refloat put in front.
_LIBRARY_TEXT = re.compile(
    r"(?:\b(?:unavailable|unknown|internal|cancelled): )?"
    r"(?:failed to connect to|dns resolution failed|cannot connect to host|connections to all backends failing"
    r"|ipv[46]:|unix:|recvmsg:|sendmsg:|socket closed|goaway|keepalive watchdog|ping timeout|stream removed"
    r"|tcp handshaker|end of tcp stream|ssl_error|ssl handshak|handshaker).*$",
    re.IGNORECASE | re.DOTALL,
)
#: What is wrong, by words in a library's text; the first match wins.
_CAUSES = tuple(
    (re.compile(pattern, re.IGNORECASE), summary)
    for pattern, summary in (
        (r"connection refused", "connection refused"),
        (r"keepalive|ping timeout", "the connection stopped responding"),
        (r"dns|resol|c-ares|getaddrinfo|name or service not known", "the host name cannot be resolved"),
        (r"no route to host|unreachable", "the host is unreachable"),
        (r"ssl_|certificate|tls|handshak", "TLS handshake failed"),
        (
            r"reset by peer|broken pipe|socket closed|goaway|end of tcp stream|stream removed",
            "connection closed",
        ),
        (r"timed? ?out|shutdown|deadline", "no connection in time"),
    )
)


def summarize_error(text: str) -> str:
    """Return the text with a library's text in it replaced by a few words: `connection refused`.

    A text without one stays as it is, up to 160 characters.
    """
    summary = _LIBRARY_TEXT.sub(
        lambda match: _summary_of(match[0]) + _sentence_end_of(match[0]), text, count=1
    )
    return summary if len(summary) <= _MAX_SUMMARY_LENGTH else f"{summary[: _MAX_SUMMARY_LENGTH - 1]}…"


def error_details(text: str) -> str:
    """Return the original text, up to 300 characters, if its summary differs from it; otherwise nothing."""
    if summarize_error(text) == text:
        return ""
    return text if len(text) <= MAX_DETAILS_LENGTH else f"{text[: MAX_DETAILS_LENGTH - 1]}…"


def _summary_of(library_text: str) -> str:
    return next(
        (summary for pattern, summary in _CAUSES if pattern.search(library_text)), "connection failed"
    )


def _sentence_end_of(library_text: str) -> str:
    """Return the end of the sentence around a library's text: a parenthesis that the text did not open, a full stop."""
    stop = "." if library_text.endswith(".") else ""
    is_closed = library_text.removesuffix(".").endswith(")")
    closes_sentence = is_closed and library_text.count(")") > library_text.count("(")
    return f"){stop}" if closes_sentence else stop
