"""`refloat retire` and `reinstate`, against a console that answers on a real port."""

from __future__ import annotations

from click.testing import CliRunner

from fleet.cli.main import main
from tests.fakes.console import TOKEN, answering


def test_agents_are_retired_and_count_again() -> None:
    """Each by its id, with the reason; an agent that is alive has to be meant."""
    with answering() as console:
        where = ["--reason", "scrapped", "--url", console.url, "--token", TOKEN]
        console.answers["/api/v1/agents/a%2F1/retire"] = (
            200,
            {"id": "a/1", "name": "agent-1", "retired": True},
        )
        console.answers["/api/v1/agents/a2/retire"] = (200, {"id": "a2", "name": "agent-2", "retired": True})
        done = CliRunner().invoke(main, ["retire", "a/1", "a2", "--alive", *where])
        back = CliRunner().invoke(main, ["reinstate", "a2", *where])
        console.answers["/api/v1/agents/a2/retire"] = (409, {"detail": "agent-2 is alive."})
        refused = CliRunner().invoke(main, ["retire", "a2", *where])
    assert done.output == "agent-1 is retired\nagent-2 is retired\n"
    assert back.output == "agent-2 is reinstated\n"
    assert console.sent[0][1] == {"retired": True, "reason": "scrapped", "alive": True}
    assert console.sent[2][1] == {"retired": False, "reason": "scrapped"}
    assert refused.exit_code != 0
    assert "agent-2 is alive." in refused.output
