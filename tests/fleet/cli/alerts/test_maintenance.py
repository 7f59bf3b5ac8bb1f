from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner, Result

from fleet.cli.main import main
from tests.fakes.console import TOKEN, FakeConsole, run_console

_WINDOW: dict[str, Any] = {
    "number": 3, "cluster": "default", "name": "night", "matchers": "cause=proxy-1", "rule": "FREQ=DAILY",
    "first_day": "2026-01-01", "start_time": "22:00:00", "duration_seconds": 28800.0, "time_zone": "UTC",
    "schedule": "every day from 22:00 to 06:00 the next day UTC", "reason": "backups", "creator": "ada",
    "is_enabled": True, "is_active": False, "next_at": "2026-01-02T22:00:00Z", "problem": "", "version": "v1",
}  # fmt: skip
_PATH = "/api/v1/maintenance-windows"


def _run(console: FakeConsole, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["maintenance", *arguments, "--url", console.url, "--token", TOKEN])


def test_windows_are_listed() -> None:
    """With their schedule in words, state and next occurrence."""
    windows = [
        _WINDOW,
        _WINDOW | {"number": 4, "is_enabled": False},
        _WINDOW | {"number": 5, "problem": "bad zone"},
    ]
    with run_console() as console:
        console.responses[_PATH] = (200, {"maintenance_windows": windows})
        output = _run(console, "list").output
        console.responses[_PATH] = (200, {"maintenance_windows": []})
        assert _run(console, "list").output == "no maintenance windows\n"
    assert "2026-01-02 22:00:00 UTC" in output
    assert "every day from 22:00 to 06:00 the next day UTC" in output
    assert [line.split()[-5] for line in output.splitlines()[1:]] == ["enabled", "disabled", "invalid"]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--every", "day"], "FREQ=DAILY"),
        (["--every", "week", "--on", "sun,Sa"], "FREQ=WEEKLY;BYDAY=SA,SU"),
        (["--every", "2 weeks", "--on", "tuesday"], "FREQ=WEEKLY;INTERVAL=2;BYDAY=TU"),
        (["--every", "month", "--on", "last"], "FREQ=MONTHLY;BYMONTHDAY=-1"),
        (["--every", "month", "--on", "15"], "FREQ=MONTHLY;BYMONTHDAY=15"),
        (["--rule", "FREQ=YEARLY"], "FREQ=YEARLY"),
    ],
)
def test_window_is_added(flags: list[str], expected: str) -> None:
    """The days become a rule; matchers with blanks stay together."""
    with run_console() as console:
        console.responses[_PATH] = (201, _WINDOW)
        outcome = _run(
            console, "add", "night", "rule=Agents at risk", "kind=proxy", "--reason", "backups", "--from", "9:00",
            "--to", "10:30", "--time-zone", "Europe/Berlin", *flags,
        )  # fmt: skip
    assert console.posts[0][1] == {
        "name": "night", "matchers": "'rule=Agents at risk' kind=proxy", "reason": "backups", "rule": expected,
        "start_time": "09:00", "end_time": "10:30", "time_zone": "Europe/Berlin",
    }  # fmt: skip
    assert (
        outcome.output
        == "maintenance window 3 added: night, every day from 22:00 to 06:00 the next day UTC\n"
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--every", "day", "--from", "25:00", "--to", "06:00"], "is not a time of day"),
        (["--every", "hour", "--from", "22:00", "--to", "06:00"], "is not day, week, '2 weeks' or month"),
        (["--every", "week", "--from", "22:00", "--to", "06:00"], "requires --on"),
        (["--every", "week", "--on", "someday", "--from", "22:00", "--to", "06:00"], "is not a weekday"),
        (["--every", "month", "--on", "40", "--from", "22:00", "--to", "06:00"], "between 1 and 31"),
        (["--on", "sun", "--from", "22:00", "--to", "06:00"], "--on requires --every"),
        (["--every", "day", "--rule", "FREQ=DAILY", "--from", "22:00", "--to", "06:00"], "not both"),
        (["--every", "day", "--from", "22:00", "--to", "06:00", "--for", "2h"], "--to or --for, not both"),
        (["--every", "day", "--from", "22:00", "--for", "soon"], "Enter a number with its unit"),
        (["--every", "day"], "missing --from, --to"),
    ],
)
def test_wrong_schedule_is_an_error_before_the_request(flags: list[str], message: str) -> None:
    """The console is not asked."""
    with run_console() as console:
        outcome = _run(console, "add", "night", "kind=proxy", "--reason", "backups", *flags)
    assert outcome.exit_code == 2
    assert message in outcome.output
    assert not console.posts


def test_window_is_edited_with_the_version_that_was_read() -> None:
    """Only what is given is sent; nothing to change and an unknown number are errors."""
    with run_console() as console:
        console.responses[_PATH] = (200, {"maintenance_windows": [_WINDOW]})
        console.responses[f"{_PATH}/3"] = (200, _WINDOW)
        outcome = _run(console, "edit", "3", "--for", "2h", "--name", "short night")
        assert console.posts[0][1] == {"version": "v1", "duration_seconds": 7200.0, "name": "short night"}
        assert "changed: night" in outcome.output
        _run(console, "edit", "3", "cause=x", "--everything")
        assert console.posts[1][1] == {"version": "v1", "matchers": "cause=x", "confirmation": "everything"}
        assert "nothing to change" in _run(console, "edit", "3").output
        assert "Maintenance window 9 was not found" in _run(console, "edit", "9", "--name", "x").output


def test_window_is_enabled_disabled_and_removed() -> None:
    """Each with its action of the API; a window that is not found is explained."""
    with run_console() as console:
        for command, action in (("enable", "enable"), ("disable", "disable"), ("remove", "delete")):
            console.responses[f"{_PATH}/3/{action}"] = (200, _WINDOW)
            assert f"maintenance window 3 {command}d: night" in _run(console, command, "3").output
        console.responses[f"{_PATH}/9/enable"] = (
            404, {"detail": "Maintenance window 9 was not found in cluster default."},
        )  # fmt: skip
        output = _run(console, "enable", "9").output
    assert "`refloat maintenance list` lists all maintenance windows." in output
