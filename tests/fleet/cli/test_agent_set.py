"""`refloat agent-set`, against a console that answers on a real port."""

from __future__ import annotations

from click.testing import CliRunner

from fleet.cli.main import main
from tests.fakes.console import TOKEN, run_console


def test_agents_are_added_and_removed() -> None:
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
