"""The conformance kit: it passes sources that keep the rules, and fails others by the name of the rule."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from fleet.clusters.source_check.findings import RuleFinding, SourceRule, pack_findings
from fleet.clusters.source_check.run import check_source
from fleet.clusters.test_report import StepVerdict
from fleet.source_plugins.declaration import ClusterSource
from fleet.source_plugins.refloat import SOURCE
from fleet.source_plugins.registry import BUILT_IN, require_source
from fleet.wire import fleet_pb2
from tests.fakes.instances import FakeAuth, agent_entry
from tests.fakes.wrong_sources import GOOD, WRONG_SOURCES

BUILT_IN_SLUGS = {point.name for point in BUILT_IN}


async def find(source: ClusterSource) -> dict[SourceRule, RuleFinding]:
    """Check a source beside Refloat's own."""
    other_slugs = {"refloat"} if source is not SOURCE else set[str]()
    return {finding.rule: finding for finding in await check_source(source, other_slugs)}


@pytest.fixture
def auth() -> Iterator[FakeAuth]:
    """An auth with one agent, which does not change."""
    fake_auth = FakeAuth("auth-1-id", "auth-1")
    fake_auth.auths = [fake_auth.resource(time.time() + 60)]
    fake_auth.agents = lambda request: fleet_pb2.ListAgentsResponse(
        epoch="e",
        revision=1,
        full=request.epoch != "e",
        agents=[] if request.epoch == "e" else [agent_entry("agent-1", "auth-1-id")],
    )
    yield fake_auth
    fake_auth.stop()


@pytest.mark.parametrize("source", [SOURCE, GOOD], ids=["refloat", "good"])
async def test_a_good_source_keeps_every_rule(source: ClusterSource) -> None:
    """Every rule is in the report, in order."""
    findings = await find(source)
    assert list(findings) == list(SourceRule)
    assert {rule: finding.problems for rule, finding in findings.items() if finding.problems} == {}
    assert {finding.verdict for finding in findings.values()} == {StepVerdict.OK}


@pytest.mark.parametrize("slug", sorted(BUILT_IN_SLUGS))
async def test_built_in_sources_break_no_rule(slug: str) -> None:
    """Without addresses, the rule about revisions may be skipped."""
    findings = await check_source(require_source(slug), BUILT_IN_SLUGS - {slug})
    assert {finding.rule: finding.problems for finding in findings if finding.problems} == {}


@pytest.mark.parametrize("name", WRONG_SOURCES)
async def test_a_wrong_source_fails_by_name(name: str) -> None:
    """By the rule that it breaks, and no other."""
    source, rule, part_of_sentence = WRONG_SOURCES[name]
    findings = await find(source)
    assert [finding.rule for finding in findings.values() if finding.problems] == [rule]
    assert any(part_of_sentence in problem for problem in findings[rule].problems), findings[rule].problems


async def test_lists_of_a_cluster_are_read_twice(auth: FakeAuth) -> None:
    """From where the first reading ended; an auth that repeats its agents as changes breaks the rule."""
    findings = await check_source(SOURCE, (), [auth.address])
    assert not any(finding.problems for finding in findings)
    auth.agents = lambda _: fleet_pb2.ListAgentsResponse(
        epoch="e", revision=1, agents=[agent_entry("agent-1", "auth-1-id")]
    )
    findings = await check_source(SOURCE, (), [auth.address])
    [revisions] = [finding for finding in findings if finding.problems]
    assert revisions.problems == ("presence: changes are repeated when nothing changed.",)
    document = pack_findings("refloat", findings)
    assert document["verdict"] == "failed"
    assert [rule["verdict"] for rule in document["rules"]].count("failed") == 1
