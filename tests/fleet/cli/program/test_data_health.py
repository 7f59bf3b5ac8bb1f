"""`refloat data-health`, against a console that answers on a real port."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fleet.cli.main import main
from tests.fakes.console import TOKEN, FakeConsole, run_console

_PROBLEM = {
    "part": "rounds", "is_blinding": True, "summary": "Too old \x1b[31m.",
    "remedy": "Start `refloat serve`.", "path": "",
}  # fmt: skip


def _health(verdict: str, *problems: dict[str, Any], error: str = "") -> dict[str, Any]:
    return {
        "verdict": verdict, "sentence": "The answer.", "problems": list(problems),
        "rounds": {"error": error, "rounds": [{"is_late": True}, {"is_late": False}]},
        "workers": {"error": error, "workers": [{"is_alive": True}, {"is_alive": False}]},
        "queues": {"error": error, "queues": [{"name": "polls", "length": 12}]},
        "targets": {"error": error, "count": 4, "failing_count": 1, "late_count": 0},
        "clocks": {"error": error, "rows": [{"offset_ms": -2500}, {"offset_ms": 0}]},
        "feeds": {"error": error, "resets": []},
        "evidence": {"error": error, "missing_capabilities": []},
        "services": {"error": "", "findings": [{"verdict": "error"}, {"verdict": "ok"}]},
    }  # fmt: skip


@pytest.fixture
def console() -> Iterator[FakeConsole]:
    with run_console() as console:
        yield console


def _run(console: FakeConsole, health: dict[str, Any], *flags: str) -> Result:
    console.responses["/api/v1/data-health"] = (200, health)
    return CliRunner().invoke(main, ["data-health", "--url", console.url, "--token", TOKEN, *flags])


def test_good(console: FakeConsole) -> None:
    """One line for each part; exit code 0."""
    outcome = _run(console, _health("good"))
    assert outcome.exit_code == 0
    lines = outcome.output.splitlines()
    assert lines[0] == "GOOD: The answer."
    assert "rounds    2 in the last hour, 1 late" in lines
    assert "clocks    1 differ by 2 s or more" in lines
    assert "services  1 of 2 checks failed" in lines


def test_blind(console: FakeConsole) -> None:
    """What is broken and what to do; a script can act on the exit code."""
    outcome = _run(console, _health("blind", _PROBLEM, error="Redis is not responding"))
    assert outcome.exit_code == 1
    assert "✗ rounds: Too old" in outcome.output
    assert "  → Start `refloat serve`." in outcome.output
    assert "\x1b" not in outcome.output
    assert "workers   cannot be read: Redis is not responding" in outcome.output


def test_json(console: FakeConsole) -> None:
    outcome = _run(console, _health("degraded"), "--json")
    assert outcome.exit_code == 1
    assert json.loads(outcome.output)["verdict"] == "degraded"
