from __future__ import annotations

from typing import Any

from click.testing import CliRunner

from fleet.cli.main import main
from tests.fakes.console import TOKEN, answering

_ONE: dict[str, Any] = {
    "number": 7, "severity": "critical", "state": "firing", "affected": 207, "peak": 207, "acknowledged_by": "",
    "summary": "207 agents stranded, proxy-1", "silenced_by": "", "inhibited_by": "backend/default",
}  # fmt: skip
_SILENCE = {
    "number": 3,
    "matchers": "cause=proxy-1",
    "ends_at": "2026-01-02T03:04:05Z",
    "creator": "ada",
    "reason": "upgrade",
}


def test_incidents_are_listed_and_acknowledged() -> None:
    """With a note why nothing is sent; and under the caller's name."""
    with answering() as console:
        where = ["--url", console.url, "--token", TOKEN]
        console.answers["/api/v1/incidents?state=open&limit=100"] = (200, {"incidents": [_ONE]})
        console.answers["/api/v1/incidents/7/acknowledge"] = (200, {**_ONE, "acknowledged_by": "ada"})
        shown = CliRunner().invoke(main, ["incidents", *where]).output
        acked = CliRunner().invoke(main, ["incidents", "--ack", "7", *where]).output
    assert "207 agents stranded, proxy-1" in shown
    assert "explained by backend/default" in shown
    assert acked == "ada looks after 7: 207 agents stranded, proxy-1\n"


def test_silences_are_made_listed_and_ended() -> None:
    """Words with spaces stay together; everything has to be said."""
    with answering() as console:
        where = ["--url", console.url, "--token", TOKEN]
        console.answers["/api/v1/silences"] = (200, _SILENCE | {"silences": [_SILENCE]})
        console.answers["/api/v1/silences/3/end"] = (200, _SILENCE)
        run = CliRunner().invoke
        made = run(
            main, ["silence", "add", "rule=Agents stranded", "--reason", "upgrade", "--everything", *where]
        )
        listed = run(main, ["silence", "list", *where])
        ended = run(main, ["silence", "end", "3", *where])
    assert console.sent[0][1] == {
        "matchers": "'rule=Agents stranded'", "reason": "upgrade", "hours": 1.0, "typed": "everything",
    }  # fmt: skip
    assert "silence 3 until" in made.output
    assert "ada" in listed.output
    assert ended.output == "silence 3 has ended\n"
