from __future__ import annotations

from fleet.clusters.connection_test.nats_steps import CHECKS
from fleet.clusters.source_check.run import check_source
from fleet.monitoring.sources.nats.polling import POLLING
from fleet.source_plugins.declaration import find_missing_reason
from fleet.source_plugins.nats import SOURCE
from fleet.vocabulary.capabilities import EVIDENCE_CAPABILITIES, Capability
from fleet.vocabulary.connection_tests import StepName


def test_evidence_delivers_what_is_declared() -> None:
    """And what is not declared has a reason of its own."""
    assert POLLING.capabilities == SOURCE.capabilities & EVIDENCE_CAPABILITIES
    for capability in set(Capability) - SOURCE.capabilities:
        reason = find_missing_reason(SOURCE, {}, capability)
        assert reason is not None
        assert "has no API for this" not in reason


def test_every_step_has_a_check_and_every_capability_a_step() -> None:
    assert set(SOURCE.test_steps) == {StepName.RESOLVE, StepName.CONNECT, *CHECKS}
    assert frozenset().union(*SOURCE.test_steps.values()) == SOURCE.capabilities


async def test_the_source_keeps_the_rules_for_plug_ins() -> None:
    """Also with servers that misbehave."""
    findings = await check_source(SOURCE, {"refloat"})
    assert {finding.rule: finding.problems for finding in findings if finding.problems} == {}
