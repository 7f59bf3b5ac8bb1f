"""`refloat degrade` and `undegrade`, against a console that answers on a real port."""

from __future__ import annotations

from tests.fakes.console import FakeConsole
from tests.fleet.cli.test_drain import console, refloat

__all__ = ["console"]
PATH = "/api/v1/instances/p%2F1/degrade"


def test_degrade_and_undegrade(console: FakeConsole) -> None:
    """The duration is sent in minutes; the output contains the end."""
    answer = {"id": "p/1", "name": "proxy-1", "ends_at": "2026-01-02T03:04:05Z"}
    console.responses[PATH] = (202, answer)
    degrade_outcome = refloat(console, "degrade", "proxy-1", "--for", "90s", "--reason", "slow disk")
    assert degrade_outcome.output == "proxy-1 will be marked degraded until 2026-01-02 03:04:05 UTC\n"
    undegrade_outcome = refloat(console, "undegrade", "p/1", "--reason", "disk replaced")
    assert undegrade_outcome.output == "proxy-1 will no longer be marked degraded\n"
    assert [body for _, body, _ in console.posts] == [
        {"is_degraded": True, "reason": "slow disk", "minutes": 1.5},
        {"is_degraded": False, "reason": "disk replaced"},
    ]
    assert '"ends_at"' in refloat(console, "undegrade", "p/1", "--reason", "x", "--json").output


def test_refusal_of_the_console_is_shown(console: FakeConsole) -> None:
    """With exit code 2, as everywhere."""
    console.responses[PATH] = (503, {"detail": "No worker can be reached."})
    outcome = refloat(console, "degrade", "proxy-1", "--reason", "slow disk")
    assert (outcome.exit_code, "No worker can be reached." in outcome.output) == (2, True)
    assert refloat(console, "degrade", "proxy-1", "--for", "0s", "--reason", "x").exit_code == 2
