from __future__ import annotations

import shlex
from typing import Any

import pytest
from click.testing import CliRunner

from fleet.cli.main import main
from tests.fakes.console import TOKEN, run_console

_INCIDENT: dict[str, Any] = {
    "number": 7, "severity": "critical", "state": "firing", "affected_count": 207, "peak_count": 207,
    "acknowledged_by": "", "summary": "207 agents stranded (proxy-1)", "silenced_by": "",
    "inhibited_by": "backend/default",
    "next_notification": {
        "at": "2026-01-02T03:04:05Z", "reason": "repeat every 4 h", "channels": ["ops"], "resolved_channels": [],
        "recipients": "ops (failing since 12:47 UTC)",
    },
}  # fmt: skip
_SILENCE: dict[str, Any] = {
    "number": 3,
    "cluster": "default",
    "matchers": "cause=proxy-1",
    "starts_at": "2026-01-02T01:04:05Z",
    "ends_at": "2026-01-02T03:04:05Z",
    "creator": "ada",
    "reason": "upgrade",
}
_CREATED_SILENCE = _SILENCE | {"matching_incident_count": 1, "matching_agent_count": 3}


def test_incidents_are_listed_and_acknowledged() -> None:
    """With the reason of the next notification."""
    with run_console() as console:
        connection_flags = ["--url", console.url, "--token", TOKEN]
        console.responses["/api/v1/incidents?state=open&limit=100"] = (200, {"incidents": [_INCIDENT]})
        console.responses["/api/v1/incidents?state=pending"] = (200, {"incidents": []})
        console.responses["/api/v1/incidents/7/acknowledge"] = (200, {**_INCIDENT, "acknowledged_by": "ada"})
        list_output = CliRunner().invoke(main, ["incidents", *connection_flags]).output
        acknowledge_output = (
            CliRunner().invoke(main, ["incidents", "--acknowledge", "7", *connection_flags]).output
        )
    assert "207 agents stranded (proxy-1)" in list_output
    assert "pending" not in list_output
    assert "backend/default" not in list_output
    assert "2026-01-02 03:04:05 UTC to ops (failing since 12:47 UTC): repeat every 4 h" in list_output
    assert acknowledge_output == "incident 7 acknowledged by ada: 207 agents stranded (proxy-1)\n"


def test_open_incidents_end_with_the_number_of_pending_ones() -> None:
    """An incident that has not fired yet is on the page from its first poll on."""
    with run_console() as console:
        console.responses["/api/v1/incidents?state=open&limit=100"] = (200, {"incidents": []})
        console.responses["/api/v1/incidents?state=pending"] = (200, {"incidents": [_INCIDENT]})
        outcome = CliRunner().invoke(main, ["incidents", "--url", console.url, "--token", TOKEN])
    assert outcome.exit_code == 0
    assert outcome.output == (
        "no open incidents\n1 pending incident not listed: refloat incidents --state pending\n"
    )


def test_notification_of_the_resolution_only_is_listed_with_its_channels() -> None:
    """An incident whose resolution is sent has a next notification, although none is planned now."""
    notification = {
        "at": None, "reason": "silenced: upgrade", "channels": [], "resolved_channels": ["ops"], "recipients": "ops",
    }  # fmt: skip
    muted_incident = _INCIDENT | {"next_notification": notification}
    silent_incident = _INCIDENT | {"next_notification": notification | {"resolved_channels": []}}
    with run_console() as console:
        console.responses["/api/v1/incidents?state=open&limit=100"] = (
            200,
            {"incidents": [muted_incident, silent_incident]},
        )
        console.responses["/api/v1/incidents?state=pending"] = (200, {"incidents": []})
        output = CliRunner().invoke(main, ["incidents", "--url", console.url, "--token", TOKEN]).output
    assert "only when resolved, to ops: silenced: upgrade" in output
    assert output.count("none: silenced: upgrade") == 1


def test_silences_are_created_listed_and_ended() -> None:
    """Arguments with spaces stay together; a silence of everything has to be confirmed."""
    with run_console() as console:
        connection_flags = ["--url", console.url, "--token", TOKEN]
        console.responses["/api/v1/silences"] = (200, _CREATED_SILENCE | {"silences": [_SILENCE]})
        console.responses["/api/v1/silences/3/end"] = (200, _SILENCE)
        run = CliRunner().invoke
        add_outcome = run(
            main,
            [
                "silence",
                "add",
                "rule=Agents stranded",
                "--reason",
                "upgrade",
                "--everything",
                *connection_flags,
            ],
        )
        list_outcome = run(main, ["silence", "list", *connection_flags])
        add_later = [
            "silence",
            "add",
            "kind=proxy",
            "--reason",
            "move",
            "--starts-at",
            "2026-01-02T01:04:05Z",
        ]
        assert run(main, [*add_later, *connection_flags]).exit_code == 0
        console.responses["/api/v1/silences/3/extend"] = (200, _SILENCE)
        extend_outcome = run(main, ["silence", "extend", "3", "--hours", "2", *connection_flags])
        assert run(main, ["silence", "extend", "3", "--for", "1 h 30 min", *connection_flags]).exit_code == 0
        end_outcome = run(main, ["silence", "end", "3", *connection_flags])
    assert console.posts[0][1] == {
        "matchers": "'rule=Agents stranded'", "reason": "upgrade", "hours": 1.0, "confirmation": "everything",
    }  # fmt: skip
    assert console.posts[1][1]["starts_at"] == "2026-01-02T01:04:05Z"
    assert console.posts[2][1] == {"hours": 2.0}
    assert console.posts[3][1] == {"hours": 1.5}
    assert "silence 3 ends at" in add_outcome.output
    assert add_outcome.output.endswith("this silence matches 3 agents and 1 incident now\n")
    assert "silence 3 ends at" in extend_outcome.output
    assert "ada" in list_outcome.output
    assert end_outcome.output == "silence 3 ended\n"


@pytest.mark.parametrize(
    ("count", "sentence"),
    [
        (0, "this silence matches no agents and no incidents now, only later ones\n"),
        (None, "the matches of this silence are not known: the fleet state cannot be read\n"),
    ],
)
def test_new_silence_without_a_match_says_so(count: int | None, sentence: str) -> None:
    """A typing error in a matcher looks like success otherwise."""
    silence = _SILENCE | {"matching_incident_count": count, "matching_agent_count": count}
    with run_console() as console:
        console.responses["/api/v1/silences"] = (200, silence)
        flags = ["--reason", "upgrade", "--url", console.url, "--token", TOKEN]
        outcome = CliRunner().invoke(main, ["silence", "add", "cause=proxy-9", *flags])

    assert outcome.exit_code == 0
    assert outcome.output.endswith(sentence)


def test_duration_of_a_silence_is_given_in_one_way() -> None:
    """`--for 2h` or `--hours 2`; quotes and backslashes in names reach the console."""
    with run_console() as console:
        console.responses["/api/v1/silences"] = (200, _CREATED_SILENCE)

        def add(*flags: str) -> str:
            command = ["silence", "add", "agent=o'clock \\", "--reason", "upgrade", *flags]
            return CliRunner().invoke(main, [*command, "--url", console.url, "--token", TOKEN]).output

        assert "silence 3 ends at" in add("--for", "2h")
        assert console.posts[0][1]["hours"] == 2.0
        assert shlex.split(console.posts[0][1]["matchers"]) == ["agent=o'clock \\"]
        assert "not both" in add("--for", "2h", "--hours", "2")
        assert "Enter a number with its unit" in add("--for", "soon")
        assert "must be between" in add("--for", "31d")
    assert len(console.posts) == 1
