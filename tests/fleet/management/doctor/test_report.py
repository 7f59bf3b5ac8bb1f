from __future__ import annotations

import json

from fleet.management.doctor.findings import error, ok, warning
from fleet.management.doctor.report import format_json, format_text, to_json

_FINDINGS = [
    ok("setting-values", "All settings can be read."),
    warning("redis-eviction", "Keys may go.", "Set noeviction."),
    error("redis-memory", "No memory\x1b[2J.", "Raise the limit."),
]


def test_text() -> None:
    """By area, with words beside the symbols; control characters are escaped."""
    assert format_text(_FINDINGS, with_symbols=True).splitlines() == [
        "Settings",
        "  ✓ ok       setting-values: All settings can be read.",
        "",
        "Redis",
        "  ! warning  redis-eviction: Keys may go.",
        "             Set noeviction.",
        "  ✗ error    redis-memory: No memory\\x1b[2J.",
        "             Raise the limit.",
        "",
        "1 error, 1 warning",
    ]


def test_text_without_symbols_is_ascii() -> None:
    """For terminals of old encodings."""
    text = format_text(_FINDINGS, with_symbols=False)

    assert text.isascii()
    assert "\n  error    redis-memory" in text


def test_json() -> None:
    """One object, with the counts."""
    document = json.loads(format_json(to_json(_FINDINGS, {"refloat": "1.0"})))

    assert (document["errors"], document["warnings"]) == (1, 1)
    assert document["versions"] == {"refloat": "1.0"}
    assert document["findings"][1] == {
        "area": "Redis",
        "name": "redis-eviction",
        "verdict": "warning",
        "summary": "Keys may go.",
        "remedy": "Set noeviction.",
    }
