"""`refloat audit`, against a console that answers on a real port."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from click.testing import CliRunner

from fleet.cli.main import main
from tests.fakes.console import TOKEN, run_console

_ENTRY = {
    "at": "2026-11-27T03:00:05.123456+00:00",
    "actor_name": "demo",
    "action": "agent.retire",
    "subject": "agent-66",
    "outcome": "succeeded",
    "reason": "scrapped",
    "detail": "",
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
    assert "2026-11-27 03:00:05  demo   agent.retire  agent-66" in outcome.output
