"""`refloat retire`, `reinstate` and `agent-set`, against a console that answers on a real port."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from fleet.cli.main import main
from tests.fakes.console import TOKEN, FakeConsole, run_console

_PATH = "/api/v1/retirements"


@pytest.fixture
def console() -> Iterator[FakeConsole]:
    with run_console() as console:
        console.responses[_PATH] = (200, {"agent_count": 2, "is_retired": True, "change_id": 7})
        yield console


def refloat(console: FakeConsole, *arguments: str) -> Result:
    environment = {"REFLOAT_URL": console.url, "REFLOAT_TOKEN": TOKEN}
    return CliRunner(env=environment).invoke(main, [*arguments, "--reason", "scrapped"])


def test_agents_are_one_change(console: FakeConsole) -> None:
    """By name or id, with a reason; retiring live agents has to be confirmed."""
    outcome = refloat(console, "retire", "agent-1", "a/2", "--confirm-alive")
    assert outcome.output == "2 agents are retired (change 7)\n"
    body = {
        "is_retired": True,
        "reason": "scrapped",
        "confirm_alive": True,
        "agents": ["agent-1", "a/2"],
        "q": "",
    }
    assert [(path, sent_body) for path, sent_body, _ in console.posts] == [(_PATH, body)]
    console.responses[_PATH] = (200, {"agent_count": 1, "is_retired": False, "change_id": None})
    assert refloat(console, "reinstate", "agent-1").output == "agent-1 is reinstated\n"


def test_agents_of_a_search(console: FakeConsole) -> None:
    """In place of names."""
    outcome = refloat(console, "retire", "--search", "state:offline label.site:oslo")
    assert outcome.exit_code == 0, outcome.output
    _, body, _ = console.posts[0]
    assert (body["agents"], body["q"]) == ([], "state:offline label.site:oslo")


@pytest.mark.parametrize("arguments", [(), ("agent-1", "--search", "web")])
def test_names_and_a_search_exclude_each_other(console: FakeConsole, arguments: tuple[str, ...]) -> None:
    """One of them is needed."""
    outcome = refloat(console, "retire", *arguments)
    assert outcome.exit_code
    assert "give either agents or --search" in outcome.output
    assert console.posts == []


def test_refusal_is_printed(console: FakeConsole) -> None:
    """With the flag in place of the field of the API."""
    console.responses[_PATH] = (409, {"detail": "agent-2 is alive."})
    outcome = refloat(console, "retire", "agent-2")
    assert outcome.exit_code
    assert "agent-2 is alive." in outcome.output


def test_agents_are_added_to_a_set_and_removed() -> None:
    """By name or search, which exclude each other."""
    with run_console() as console:
        flags = ["--url", console.url, "--token", TOKEN]
        console.responses["/api/v1/agent-sets"] = (200, {"changed_count": 1})
        outcome = CliRunner().invoke(main, ["agent-set", "lab", "agent-1", *flags])
        remove_outcome = CliRunner().invoke(
            main, ["agent-set", "lab", "--search", "state:offline", "--remove", *flags]
        )
        missing_outcome = CliRunner().invoke(main, ["agent-set", "lab", *flags])
    assert outcome.output == "1 agent added to the agent set lab\n"
    assert remove_outcome.output == "1 agent removed from the agent set lab\n"
    assert [body for _, body, _ in console.posts] == [
        {"agent_set": "lab", "is_member": True, "agents": ["agent-1"], "q": ""},
        {"agent_set": "lab", "is_member": False, "agents": [], "q": "state:offline"},
    ]
    assert missing_outcome.exit_code != 0
    assert "give either agents or --search" in missing_outcome.output
