"""`refloat source` without a console."""

from __future__ import annotations

import json

from click.testing import CliRunner

from fleet.cli.clusters.source import format_finding, source
from fleet.clusters.source_check.findings import RuleFinding, SourceRule


def test_list_has_the_installed_sources() -> None:
    outcome = CliRunner().invoke(source, ["list"])
    assert outcome.exit_code == 0
    assert "refloat  Refloat  all capabilities" in outcome.output
    document = json.loads(CliRunner().invoke(source, ["list", "--json"]).output)
    assert document["problems"] == []
    assert "tunnels-by-agent" in document["sources"][0]["capabilities"]


def test_check_of_refloat() -> None:
    """As JSON; it keeps every rule."""
    outcome = CliRunner().invoke(source, ["check", "refloat", "--json"])
    assert outcome.exit_code == 0
    document = json.loads(outcome.output)
    assert (document["source"], document["verdict"]) == ("refloat", "ok")
    assert [rule["rule"] for rule in document["rules"]] == [rule.value for rule in SourceRule]


def test_check_of_a_source_that_is_not_installed() -> None:
    outcome = CliRunner().invoke(source, ["check", "gone"])
    assert outcome.exit_code == 2
    assert "the source gone is not installed. Installed: refloat" in outcome.output


def test_findings_are_lines() -> None:
    """A problem is below its rule, and a reason beside it."""
    text = format_finding(RuleFinding(SourceRule.SLUG, ("It is taken.",)))
    assert text.splitlines()[1].strip() == "It is taken."
    assert "(Nothing to read.)" in format_finding(RuleFinding(SourceRule.REVISIONS, (), "Nothing to read."))
