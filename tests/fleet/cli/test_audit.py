"""`refloat audit`, against a console that answers on a real port."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from click.testing import CliRunner

from fleet.cli.main import main
from tests.fakes.console import TOKEN, run_console

_ENTRY = {
    "id": 1207,
    "at": "2026-11-27T03:00:05.123456+00:00",
    "actor_name": "demo",
    "actor_kind": "person",
    "action": "agent.retire",
    "subject": "agent-66",
    "outcome": "succeeded",
    "reason": "scrapped",
    "detail": "",
    "change_id": 9,
    "request_id": "req-7",
    "before": None,
    "after": {"agent": "id-66"},
}


def test_filters_are_sent_and_entries_are_listed() -> None:
    """Only the filters that were given."""
    path = "/api/v1/audit?object=agent-66&limit=5&actor=demo&group=agents"
    with run_console() as console:
        console.responses[path] = (200, {"entries": [_ENTRY]})
        environment = {"REFLOAT_URL": console.url, "REFLOAT_TOKEN": TOKEN}
        arguments = ["audit", "--object", "agent-66", "--actor", "demo", "--group", "agents", "--limit", "5"]
        outcome = CliRunner(env=environment).invoke(main, arguments)
    assert outcome.exit_code == 0, outcome.output
    (requested_path,) = console.requested_paths
    assert parse_qs(urlsplit(requested_path).query) == parse_qs(urlsplit(path).query)
    assert "1207  2026-11-27 03:00:05  demo   agent.retire  agent-66" in outcome.output


def test_list_is_the_default() -> None:
    """Without any argument too."""
    with run_console() as console:
        console.responses["/api/v1/audit?limit=50"] = (200, {"entries": [_ENTRY]})
        environment = {"REFLOAT_URL": console.url, "REFLOAT_TOKEN": TOKEN}
        outcomes = [
            CliRunner(env=environment).invoke(main, ["audit", *subcommand]).output
            for subcommand in ([], ["list"])
        ]
    assert "agent.retire" in outcomes[0]
    assert outcomes[0] == outcomes[1]


def test_one_entry_is_shown_with_its_values() -> None:
    """Empty fields are left out."""
    with run_console() as console:
        console.responses["/api/v1/audit/1207"] = (200, _ENTRY)
        environment = {"REFLOAT_URL": console.url, "REFLOAT_TOKEN": TOKEN}
        outcome = CliRunner(env=environment).invoke(main, ["audit", "show", "1207"])
    assert outcome.exit_code == 0, outcome.output
    assert "actor       demo (person)" in outcome.output
    assert "change      9" in outcome.output
    assert 'after:\n{\n  "agent": "id-66"\n}' in outcome.output
    assert "detail" not in outcome.output
    assert "before" not in outcome.output
