"""Evidence of instances for the history: what is kept, and its JSON."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.monitoring.instance_evidence import InstanceEvidence, evidence_of_instance, health_reason_of
from fleet.protocol.destination.health import (
    ActiveHealth,
    DrainRequest,
    Health,
    HealthReason,
    HealthSignal,
    ProbeOutcome,
)
from fleet.vocabulary.instances import (
    InstanceFacts,
    InstanceKind,
    InstanceState,
    PollAttempt,
    ServingStatus,
)
from fleet.vocabulary.watch import InstanceWatch

NOW = 1_700_000_000.0
FACTS = InstanceFacts(
    id="p", index=0, kind=InstanceKind.PROXY, name="proxy-1", address="", expires_at=NOW + 9, readyz=503
)


def test_json_has_only_fields_that_say_something() -> None:
    """And every evidence comes back; fields of a later version are ignored."""
    evidence = InstanceEvidence(readyz=503, errors=("no",), drain_reason="", health_since=1.5)
    assert InstanceEvidence().to_json() == "{}"
    assert evidence.to_json() == '{"readyz":503,"errors":["no"],"health_since":1.5,"drain_reason":""}'
    assert InstanceEvidence.from_json(evidence.to_json()) == evidence
    assert InstanceEvidence.from_json('{"readyz":200,"later":1}') == InstanceEvidence(readyz=200)
    assert InstanceEvidence.from_json("") == InstanceEvidence()


def test_errors_are_those_of_an_instance_that_does_not_respond() -> None:
    """In a few words; one missed poll of an instance that is OK is no evidence."""
    attempts = (
        PollAttempt(
            NOW, ok=False, error="unavailable: failed to connect to all addresses: Connection refused"
        ),
        PollAttempt(NOW - 5, ok=False, error="no answer"),
    )
    facts = replace(FACTS, attempts=attempts)
    silent = evidence_of_instance(
        facts, InstanceState.SILENT, Health.UNKNOWN, sick_since=NOW - 5, is_silent=True
    )
    assert silent.errors == ("connection refused", "no answer")
    assert (silent.sick_since, silent.expires_at, silent.polled_at) == (NOW - 5, NOW + 9, None)
    ok = evidence_of_instance(facts, InstanceState.OK, Health.UNKNOWN, sick_since=None, is_silent=False)
    assert (ok.errors, ok.expires_at, ok.readyz) == ((), None, 503)
    unhealthy_facts = replace(facts, serving_problem="p" * 999)
    unhealthy = evidence_of_instance(
        unhealthy_facts, InstanceState.UNHEALTHY, Health.UNKNOWN, sick_since=NOW, is_silent=False
    )
    assert unhealthy.serving_problem == "p" * 300
    unknown = evidence_of_instance(
        facts, InstanceState.UNKNOWN, Health.UNKNOWN, sick_since=None, is_silent=False
    )
    assert (unknown.errors, unknown.polled_at) == (("connection refused",), NOW)


@pytest.mark.parametrize("outcome", [ProbeOutcome.DEGRADED, ProbeOutcome.FAILURE])
def test_health_and_drain_have_their_reasons(outcome: ProbeOutcome) -> None:
    """Degraded by its own report, or by polls."""
    signal = HealthSignal(Health.DEGRADED, HealthReason.PROBE_DEGRADED, NOW - 3)
    watch = InstanceWatch(
        ActiveHealth(signal, streak_outcome=outcome),
        degraded_reason="x" * 999,
        drain_request=DrainRequest("work", NOW),
    )
    facts = replace(FACTS, watch=watch, serving=ServingStatus.SERVING)
    evidence = evidence_of_instance(
        facts, InstanceState.OK, Health.DEGRADED, sick_since=None, is_silent=False
    )
    assert health_reason_of(evidence) is HealthReason.PROBE_DEGRADED
    assert (evidence.health_since, evidence.drain_reason, evidence.drain_since) == (NOW - 3, "work", NOW)
    assert evidence.is_self_reported == (outcome is ProbeOutcome.DEGRADED)
    assert len(evidence.degraded_reason or "") == 300
    assert evidence.serving_status is ServingStatus.SERVING


def test_a_reason_of_a_later_version_is_none() -> None:
    """An older program reads what a newer one wrote."""
    assert health_reason_of(InstanceEvidence(health_reason="LATER")) is HealthReason.NOTHING_SEEN
    assert InstanceEvidence().serving_status is None
