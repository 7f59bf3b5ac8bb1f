"""The picture in the terminal."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from fleet.cli.main import main
from tests.fakes.console import TOKEN, FakeConsole, answering
from tests.fleet.cli.test_console import INSTANCES, SUMMARY


@pytest.fixture
def fake() -> Iterator[FakeConsole]:
    with answering() as console:
        console.answers = {"/api/v1/fleet/summary": (200, SUMMARY), "/api/v1/instances": (200, INSTANCES)}
        yield console


def refloat(fake: FakeConsole, *words: str) -> Result:
    return CliRunner(env={"REFLOAT_URL": fake.url, "REFLOAT_TOKEN": TOKEN}).invoke(main, words)


def test_watch_draws_counts_and_instances(fake: FakeConsole) -> None:
    """A bar for every state that has agents."""
    picture = refloat(fake, "watch", "--once").output
    assert picture.startswith("default: 200 agents, data is 0.4 s old\n")
    assert "at risk               2  █" in picture
    assert "stranded" not in picture
    assert "It does not answer." in picture


def test_watch_once_a_refusal_ends_it(fake: FakeConsole) -> None:
    """Looked at once, a failure is a failure."""
    fake.answers.clear()
    assert refloat(fake, "watch", "--once").exit_code == 2
