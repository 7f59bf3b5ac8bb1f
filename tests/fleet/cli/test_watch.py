"""`refloat watch`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from fleet.cli.main import main
from tests.fakes.console import TOKEN, FakeConsole, run_console
from tests.fleet.cli.test_console import INSTANCES, SUMMARY


@pytest.fixture
def fake() -> Iterator[FakeConsole]:
    with run_console() as console:
        console.responses = {"/api/v1/fleet/summary": (200, SUMMARY), "/api/v1/instances": (200, INSTANCES)}
        yield console


def refloat(fake: FakeConsole, *arguments: str) -> Result:
    return CliRunner(env={"REFLOAT_URL": fake.url, "REFLOAT_TOKEN": TOKEN}).invoke(main, arguments)


def test_watch_draws_counts_and_instances(fake: FakeConsole) -> None:
    """A bar for every state that has agents."""
    output = refloat(fake, "watch", "--once").output
    assert output.startswith("default: 200 agents, data is 0.4 s old\n")
    assert "at risk               2  █" in output
    assert "stranded" not in output
    assert "It does not answer." in output


def test_watch_once_fails_after_a_refusal(fake: FakeConsole) -> None:
    """Looked at once, a failure is a failure."""
    fake.responses.clear()
    assert refloat(fake, "watch", "--once").exit_code == 2
