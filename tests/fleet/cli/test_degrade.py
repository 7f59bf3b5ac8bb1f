"""`refloat degrade` and `undegrade`, against a console that answers on a real port."""

from __future__ import annotations

from tests.fakes.console import FakeConsole
from tests.fleet.cli.test_drain import console, refloat

__all__ = ["console"]
HERE = "/api/v1/instances/p%2F1/degrade"


def test_degrade_and_undegrade(console: FakeConsole) -> None:
    """The time goes in minutes; the answer says until when."""
    answer = {"id": "p/1", "name": "proxy-1", "until": "2026-01-02T03:04:05Z"}
    console.answers[HERE] = (202, answer)
    done = refloat(console, "degrade", "proxy-1", "--for", "90s", "--reason", "slow disk")
    assert done.output == "proxy-1 will be marked degraded until 2026-01-02T03:04:05Z\n"
    back = refloat(console, "undegrade", "p/1", "--reason", "disk replaced")
    assert back.output == "proxy-1 will no longer be marked degraded\n"
    assert [sent for _, sent, _ in console.sent] == [
        {"degraded": True, "reason": "slow disk", "minutes": 1.5},
        {"degraded": False, "reason": "disk replaced"},
    ]
    assert '"until"' in refloat(console, "undegrade", "p/1", "--reason", "x", "--json").output


def test_refusal_of_the_console_is_shown(console: FakeConsole) -> None:
    """With exit code 2, as everywhere."""
    console.answers[HERE] = (503, {"detail": "No worker can be reached."})
    refused = refloat(console, "degrade", "proxy-1", "--reason", "slow disk")
    assert (refused.exit_code, "No worker can be reached." in refused.output) == (2, True)
    assert refloat(console, "degrade", "proxy-1", "--for", "0s", "--reason", "x").exit_code == 2
