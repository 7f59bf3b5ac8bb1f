from __future__ import annotations

import pytest

from fleet.vocabulary.error_texts import error_details, summarize_error

REFUSED = (
    "unavailable: failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:41033: "
    "Failed to connect to remote host: Connection refused"
)


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        (REFUSED, "connection refused"),
        (REFUSED.removeprefix("unavailable: "), "connection refused"),
        (f"proxy-1 is not responding ({REFUSED}).", "proxy-1 is not responding (connection refused)."),
        (f"127.0.0.1:4000: {REFUSED}", "127.0.0.1:4000: connection refused"),
        (f"{REFUSED} (111)", "connection refused"),
        (f"proxy-1 is not responding ({REFUSED} (111)).", "proxy-1 is not responding (connection refused)."),
        ("unavailable: Socket closed", "connection closed"),
        ("unavailable: recvmsg:Connection reset by peer", "connection closed"),
        ("unavailable: GOAWAY received; Error code: 2; Debug Text: max_age", "connection closed"),
        ("unavailable: keepalive watchdog timeout", "the connection stopped responding"),
        ("unavailable: ping timeout", "the connection stopped responding"),
        (
            "unavailable: DNS resolution failed for auth.example:3025: C-ares status is not ARES_SUCCESS",
            "the host name cannot be resolved",
        ),
        (
            "unavailable: failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:1: No route to host",
            "the host is unreachable",
        ),
        (
            "unavailable: failed to connect to all addresses; last error: UNKNOWN: Ssl handshake failed: SSL_ERROR_SSL",
            "TLS handshake failed",
        ),
        (
            "unavailable: failed to connect to all addresses; last error: UNAVAILABLE: ipv4:10.0.0.1:1: FD Shutdown",
            "no connection in time",
        ),
        ("Cannot connect to host 10.0.0.1:80 ssl:default [Connect call failed]", "connection failed"),
    ],
)
def test_library_text_becomes_words(text: str, summary: str) -> None:
    """With the sentence around it; the original is kept for those who need it."""
    assert summarize_error(text) == summary
    assert error_details(text) == text
    assert summarize_error(summary) == summary


@pytest.mark.parametrize(
    "text",
    [
        "",
        "deadline exceeded",
        "no response in time",
        "unavailable: the auth is draining",
        "the instance reports NOT_SERVING",
    ],
)
def test_plain_text_stays(text: str) -> None:
    """There is nothing to add to it."""
    assert summarize_error(text) == text
    assert error_details(text) == ""


def test_long_text_is_cut() -> None:
    """At first to a line, on request to a paragraph."""
    text = "x" * 1000
    assert summarize_error(text) == "x" * 159 + "…"
    assert error_details(text) == "x" * 299 + "…"
    assert error_details("x" * 161) == "x" * 161
