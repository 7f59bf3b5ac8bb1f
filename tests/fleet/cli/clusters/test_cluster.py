"""`refloat cluster test`."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from fleet.cli.main import main
from fleet.source_plugins.refloat import SOURCE as REFLOAT
from tests.fakes.instances import FakeAuth, FakeProxy


def _test(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["cluster", "test", *arguments])


def test_steps_of_a_good_cluster(auth: FakeAuth, proxy: FakeProxy) -> None:
    """One line per step; a remedy below the line of a warning; no step failed."""
    auth.auths, auth.proxies = [auth.resource(4e9)], [proxy.resource(4e9)]

    outcome = _test("--auths", auth.address)

    assert outcome.exit_code == 0, outcome.output
    assert f"OK       Addresses: 1 address: {auth.address}.\n" in outcome.output
    assert "OK       List of instances: 1 auth and 1 proxy.\n" in outcome.output
    assert "Skipped  Certificates and roles: Without TLS nobody is authenticated." in outcome.output
    assert "         What to do: Teleport's auths do not have this API" in outcome.output


def test_report_of_a_failure_as_json() -> None:
    """All steps, the first failure with what to do; the exit code is 1."""
    outcome = _test("--auths", "127.0.0.1:1", "--json")

    assert outcome.exit_code == 1
    report = json.loads(outcome.output)
    assert [step["name"] for step in report["steps"]] == list(REFLOAT.test_steps)
    assert report["steps"][1]["text"] == "127.0.0.1:1: connection refused."
    assert report["steps"][1]["remedy"].startswith("Check that the auth runs")
    assert report["ended_at"] >= report["started_at"]


def test_invalid_entries_are_an_error() -> None:
    """Nothing is tested; exit code 2."""
    outcome = _test("--auths", "auth-1:x", "--kind", "dns")

    assert outcome.exit_code == 2
    assert "refloat: --auths: 'auth-1:x' has no valid port." in outcome.stderr


@pytest.mark.parametrize(
    ("addresses", "sentence"),
    [
        ("auth-1", "'auth-1' is not an instance and an address"),
        ("auth-1 http://a:1", "'http://a:1' is a URL. Enter host:port, such as 10.0.0.1:3000."),
    ],
)
def test_invalid_diag_addresses_are_an_error(addresses: str, sentence: str) -> None:
    outcome = _test("--auths", "auth-1:3025", "--source", "teleport", "--diag-addresses", addresses)

    assert outcome.exit_code == 2
    assert f"refloat: --diag-addresses: {sentence}" in outcome.stderr
