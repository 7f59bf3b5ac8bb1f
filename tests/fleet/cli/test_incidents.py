from __future__ import annotations

from typing import Any

from click.testing import CliRunner

from fleet.cli.main import main
from tests.fakes.console import TOKEN, answering

_ONE: dict[str, Any] = {
    "number": 7, "severity": "critical", "state": "firing", "affected": 207, "peak": 207, "acknowledged_by": "",
    "summary": "207 agents stranded, proxy-1", "silenced_by": "", "inhibited_by": "backend/default",
    "next_message": {"at": "2026-01-02T03:04:05Z", "because": "repeat every 4 h", "to": ["ops"]},
}  # fmt: skip
_SILENCE = {
    "number": 3,
    "cluster": "default",
    "matchers": "cause=proxy-1",
    "starts_at": "2026-01-02T01:04:05Z",
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
        acked = CliRunner().invoke(main, ["incidents", "--acknowledge", "7", *where]).output
    assert "207 agents stranded, proxy-1" in shown
    assert "backend/default" not in shown
    assert "2026-01-02T03:04:05Z to ops: repeat every 4 h" in shown
    assert acked == "incident 7 acknowledged by ada: 207 agents stranded, proxy-1\n"


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
        later = ["silence", "add", "kind=proxy", "--reason", "move", "--starts-at", "2026-01-02T01:04:05Z"]
        assert run(main, [*later, *where]).exit_code == 0
        console.answers["/api/v1/silences/3/extend"] = (200, _SILENCE)
        extended = run(main, ["silence", "extend", "3", "--hours", "2", *where])
        ended = run(main, ["silence", "end", "3", *where])
    assert console.sent[0][1] == {
        "matchers": "'rule=Agents stranded'", "reason": "upgrade", "hours": 1.0, "typed": "everything",
    }  # fmt: skip
    assert console.sent[1][1]["starts_at"] == "2026-01-02T01:04:05Z"
    assert console.sent[2][1] == {"hours": 2.0}
    assert "silence 3 ends at" in made.output
    assert "silence 3 ends at" in extended.output
    assert "ada" in listed.output
    assert ended.output == "silence 3 ended\n"
