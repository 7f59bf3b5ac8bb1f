"""`refloat retire` and `reinstate`, against a console that answers on a real port."""

from __future__ import annotations

from click.testing import CliRunner

from fleet.cli.main import main
from tests.fakes.console import TOKEN, run_console


def test_agents_are_retired_and_reinstated() -> None:
    """By id, with a reason; retiring a live agent has to be confirmed."""
    with run_console() as console:
        connection_flags = ["--reason", "scrapped", "--url", console.url, "--token", TOKEN]
        console.responses["/api/v1/agents/a%2F1/retire"] = (
            200,
            {"id": "a/1", "name": "agent-1", "is_retired": True},
        )
        console.responses["/api/v1/agents/a2/retire"] = (
            200,
            {"id": "a2", "name": "agent-2", "is_retired": True},
        )
        retire_outcome = CliRunner().invoke(
            main, ["retire", "a/1", "a2", "--confirm-alive", *connection_flags]
        )
        reinstate_outcome = CliRunner().invoke(main, ["reinstate", "a2", *connection_flags])
        console.responses["/api/v1/agents/a2/retire"] = (409, {"detail": "agent-2 is alive."})
        outcome = CliRunner().invoke(main, ["retire", "a2", *connection_flags])
    assert retire_outcome.output == "agent-1 is retired\nagent-2 is retired\n"
    assert reinstate_outcome.output == "agent-2 is reinstated\n"
    assert console.posts[0][1] == {"is_retired": True, "reason": "scrapped", "confirm_alive": True}
    assert console.posts[2][1] == {"is_retired": False, "reason": "scrapped"}
    assert outcome.exit_code != 0
    assert "agent-2 is alive." in outcome.output
