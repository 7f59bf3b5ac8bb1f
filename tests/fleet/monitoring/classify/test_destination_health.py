"""Destination health that is derived from polls."""

from __future__ import annotations

import pytest

from fleet.monitoring.classify.destination_health import (
    find_degraded_instances,
    health_of,
    health_sentence,
    preference_key_of,
    probe_outcome_of,
    update_watch,
)
from fleet.monitoring.evidence import Timing
from fleet.protocol.destination.health import LITERAL_SETTINGS, Health, HealthReason, ProbeOutcome
from fleet.protocol.destination.instance_status import EMPTY_STATUS, InstanceStatus
from fleet.vocabulary.instances import InstanceFacts, InstanceKind, ServingStatus
from fleet.vocabulary.watch import INITIAL_WATCH, InstanceWatch

TIMING = Timing()
NOT_SERVING, SERVING, OLD = ServingStatus.NOT_SERVING, ServingStatus.SERVING, ServingStatus.SERVICE_UNKNOWN


def facts(watch: InstanceWatch, index: int = 0, gone_at: float | None = None) -> InstanceFacts:
    return InstanceFacts(
        f"i{index}", index, InstanceKind.PROXY, f"proxy-{index}", "h:1", watch=watch, gone_at=gone_at
    )


def watch_after(
    events: str, *, address: str = "h:1", status: InstanceStatus | None = EMPTY_STATUS
) -> InstanceWatch:
    """Return the watch after these poll outcomes, one per second: S, D or F."""
    letters = {"S": ProbeOutcome.SUCCESS, "D": ProbeOutcome.DEGRADED, "F": ProbeOutcome.FAILURE}
    watch = INITIAL_WATCH
    for at, letter in enumerate(events, start=1):
        watch = update_watch(watch, letters[letter], status, address=address, at=float(at))
    return watch


@pytest.mark.parametrize(
    ("is_reached", "serving", "readyz", "status", "outcome"),
    [
        (True, SERVING, 200, EMPTY_STATUS, ProbeOutcome.SUCCESS),
        (True, OLD, None, EMPTY_STATUS, ProbeOutcome.SUCCESS),
        (True, None, None, EMPTY_STATUS, ProbeOutcome.SUCCESS),
        (True, SERVING, 200, InstanceStatus(degraded_reason=""), ProbeOutcome.DEGRADED),
        (True, SERVING, 200, InstanceStatus(draining_reason="x"), ProbeOutcome.SUCCESS),
        (True, SERVING, 400, InstanceStatus(degraded_reason="x"), ProbeOutcome.FAILURE),
        (True, NOT_SERVING, 200, EMPTY_STATUS, ProbeOutcome.FAILURE),
        (False, None, 200, EMPTY_STATUS, ProbeOutcome.FAILURE),
    ],
)
def test_outcome_of_a_poll(
    is_reached: bool,
    serving: ServingStatus | None,
    readyz: int | None,
    status: InstanceStatus,
    outcome: ProbeOutcome,
) -> None:
    """Draining does not affect the outcome; a failure takes precedence over degraded."""
    assert (
        probe_outcome_of(is_reached=is_reached, serving_status=serving, readyz=readyz, status=status)
        is outcome
    )


def test_flapping_instance_is_degraded() -> None:
    """Every other poll fails, so the instance is never silent."""
    watch = watch_after("SFSF")
    assert health_of(facts(watch), 5.0, TIMING) is Health.DEGRADED
    assert health_sentence(facts(watch), Health.DEGRADED) == (
        "proxy-0 is degraded: too many of the last probes failed."
    )
    assert health_of(facts(watch_after("SFSFSSS")), 8.0, TIMING) is Health.HEALTHY


def test_old_health_is_unknown() -> None:
    """So is the health of a deregistered instance."""
    watch = watch_after("SFF")
    assert health_of(facts(watch), 3.0 + TIMING.stale_after - 0.1, TIMING) is Health.DEGRADED
    assert health_of(facts(watch), 3.0 + TIMING.stale_after, TIMING) is Health.UNKNOWN
    assert health_of(facts(watch, gone_at=3.0), 4.0, TIMING) is Health.UNKNOWN
    assert health_of(facts(INITIAL_WATCH), 4.0, TIMING) is Health.UNKNOWN


def test_another_address_is_another_destination() -> None:
    """Probes of the old address do not count."""
    watch = update_watch(watch_after("SFF"), ProbeOutcome.SUCCESS, EMPTY_STATUS, address="h:2", at=9.0)
    assert watch.active.signal.health is Health.HEALTHY
    assert watch.active.signal.reason is HealthReason.PROBE_SUCCEEDED


def test_status_is_kept_while_the_instance_does_not_respond() -> None:
    """A timeout does not end draining; its start time is kept."""
    watch = update_watch(
        INITIAL_WATCH, ProbeOutcome.DEGRADED, InstanceStatus("busy", "kernel"), address="h:1", at=1.0
    )
    watch = update_watch(watch, ProbeOutcome.FAILURE, None, address="h:1", at=2.0)
    watch = update_watch(
        watch, ProbeOutcome.DEGRADED, InstanceStatus("busy", "kernel"), address="h:1", at=3.0
    )
    assert watch.drain_request is not None
    assert (watch.drain_request.reason, watch.drain_request.requested_at, watch.degraded_reason) == (
        "kernel",
        1.0,
        "busy",
    )
    assert (
        update_watch(watch, ProbeOutcome.SUCCESS, EMPTY_STATUS, address="h:1", at=4.0).drain_request is None
    )


def test_degraded_instances_are_found_by_index() -> None:
    """For the verdicts of agents that depend on them."""
    instances = {
        0: facts(watch_after("S")),
        1: facts(watch_after("SFF"), 1),
        2: facts(watch_after("F"), 2),
        3: facts(watch_after("D"), 3),
    }
    assert find_degraded_instances(instances, 4.0, TIMING) == {1, 3}


def test_sentences_contain_the_reason() -> None:
    """A reported reason is included; a healthy instance has no sentence."""
    degraded_watch = update_watch(
        INITIAL_WATCH, ProbeOutcome.DEGRADED, InstanceStatus("disk full"), address="h:1", at=1.0
    )
    assert (
        health_sentence(facts(degraded_watch), Health.DEGRADED)
        == "proxy-0 reports that it is degraded: disk full."
    )
    assert "the first probe failed" in health_sentence(facts(watch_after("F")), Health.UNHEALTHY)
    assert health_sentence(facts(watch_after("S")), Health.HEALTHY) == ""
    assert health_sentence(facts(INITIAL_WATCH), Health.UNKNOWN) == ""


def test_preference_goes_by_health_and_draining() -> None:
    """Healthy, then degraded and unknown, then draining, then unhealthy; old polls do not count."""
    drain_status = InstanceStatus(draining_reason="upgrade")
    watch_by_name = {
        "healthy": watch_after("S"),
        "degraded": watch_after("D"),
        "unknown": INITIAL_WATCH,
        "healthy, drains": watch_after("S", status=drain_status),
        "degraded, drains": watch_after("D", status=drain_status),
        "unhealthy": watch_after("F"),
    }
    ranks = [preference_key_of(facts(watch), 2.0, TIMING) for watch in watch_by_name.values()]
    assert ranks == sorted(ranks)
    assert ranks[1] == ranks[2]
    assert len(set(ranks)) == 5
    assert preference_key_of(facts(watch_by_name["unhealthy"]), 1_000.0, TIMING) == ranks[2]


def test_literal_settings_make_a_degraded_first_poll_a_failure() -> None:
    """The instance is unhealthy then."""
    watch = update_watch(
        INITIAL_WATCH, ProbeOutcome.DEGRADED, EMPTY_STATUS, address="h:1", at=1.0, settings=LITERAL_SETTINGS
    )
    assert health_of(facts(watch), 2.0, TIMING) is Health.UNHEALTHY
