"""From polls to destination health."""

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


def after(events: str, *, address: str = "h:1", said: InstanceStatus | None = EMPTY_STATUS) -> InstanceWatch:
    """What polls a second apart make: S, D, F."""
    letters = {"S": ProbeOutcome.SUCCESS, "D": ProbeOutcome.DEGRADED, "F": ProbeOutcome.FAILURE}
    watch = INITIAL_WATCH
    for at, letter in enumerate(events, start=1):
        watch = update_watch(watch, letters[letter], said, address=address, at=float(at))
    return watch


@pytest.mark.parametrize(
    ("reached", "serving", "readyz", "said", "outcome"),
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
    reached: bool,
    serving: ServingStatus | None,
    readyz: int | None,
    said: InstanceStatus,
    outcome: ProbeOutcome,
) -> None:
    """Draining is no matter of health; whoever is not well is not merely degraded."""
    assert probe_outcome_of(is_reached=reached, serving_status=serving, readyz=readyz, status=said) is outcome


def test_flapping_instance_is_degraded_though_never_silent() -> None:
    """What the quick rule cannot see: every other poll fails."""
    watch = after("SFSF")
    assert health_of(facts(watch), 5.0, TIMING) is Health.DEGRADED
    assert health_sentence(facts(watch), Health.DEGRADED) == (
        "proxy-0 is degraded: too many of the last probes failed."
    )
    assert health_of(facts(after("SFSFSSS")), 8.0, TIMING) is Health.HEALTHY


def test_health_that_is_old_is_unknown() -> None:
    """And so is that of an instance that is gone: age is applied by whoever reads."""
    watch = after("SFF")
    assert health_of(facts(watch), 3.0 + TIMING.stale_after - 0.1, TIMING) is Health.DEGRADED
    assert health_of(facts(watch), 3.0 + TIMING.stale_after, TIMING) is Health.UNKNOWN
    assert health_of(facts(watch, gone_at=3.0), 4.0, TIMING) is Health.UNKNOWN
    assert health_of(facts(INITIAL_WATCH), 4.0, TIMING) is Health.UNKNOWN


def test_another_address_is_another_destination() -> None:
    """What was seen of the old one says nothing."""
    watch = update_watch(after("SFF"), ProbeOutcome.SUCCESS, EMPTY_STATUS, address="h:2", at=9.0)
    assert watch.active.signal.health is Health.HEALTHY
    assert watch.active.signal.reason is HealthReason.PROBE_SUCCEEDED


def test_what_it_said_stands_while_it_does_not_answer() -> None:
    """Draining is not taken back by a timeout, and is since when it was first seen."""
    watch = update_watch(
        INITIAL_WATCH, ProbeOutcome.DEGRADED, InstanceStatus("busy", "kernel"), address="h:1", at=1.0
    )
    watch = update_watch(watch, ProbeOutcome.FAILURE, None, address="h:1", at=2.0)
    watch = update_watch(
        watch, ProbeOutcome.DEGRADED, InstanceStatus("busy", "kernel"), address="h:1", at=3.0
    )
    assert watch.drain_request is not None
    assert (watch.drain_request.reason, watch.drain_request.at, watch.degraded_reason) == (
        "kernel",
        1.0,
        "busy",
    )
    assert (
        update_watch(watch, ProbeOutcome.SUCCESS, EMPTY_STATUS, address="h:1", at=4.0).drain_request is None
    )


def test_degraded_ones_by_index() -> None:
    """For the verdicts of agents that rest on them."""
    known = {
        0: facts(after("S")),
        1: facts(after("SFF"), 1),
        2: facts(after("F"), 2),
        3: facts(after("D"), 3),
    }
    assert find_degraded_instances(known, 4.0, TIMING) == {1, 3}


def test_sentences_say_why() -> None:
    """Its own word when that is why; nothing when all is well."""
    own = update_watch(
        INITIAL_WATCH, ProbeOutcome.DEGRADED, InstanceStatus("disk full"), address="h:1", at=1.0
    )
    assert health_sentence(facts(own), Health.DEGRADED) == "proxy-0 reports that it is degraded: disk full."
    assert "the first probe failed" in health_sentence(facts(after("F")), Health.UNHEALTHY)
    assert health_sentence(facts(after("S")), Health.HEALTHY) == ""
    assert health_sentence(facts(INITIAL_WATCH), Health.UNKNOWN) == ""


def test_preference_goes_by_health_and_draining() -> None:
    """Healthy, then Degraded and Unknown alike, then those that drain, then Unhealthy; an old poll says nothing."""
    drains = InstanceStatus(draining_reason="upgrade")
    told = {
        "healthy": after("S"),
        "degraded": after("D"),
        "unknown": INITIAL_WATCH,
        "healthy, drains": after("S", said=drains),
        "degraded, drains": after("D", said=drains),
        "unhealthy": after("F"),
    }
    ranks = [preference_key_of(facts(watch), 2.0, TIMING) for watch in told.values()]
    assert ranks == sorted(ranks)
    assert ranks[1] == ranks[2]
    assert len(set(ranks)) == 5
    assert preference_key_of(facts(told["unhealthy"]), 1_000.0, TIMING) == ranks[2]


def test_polls_read_literally() -> None:
    """One that says that it is degraded at its first poll has not succeeded."""
    watch = update_watch(
        INITIAL_WATCH, ProbeOutcome.DEGRADED, EMPTY_STATUS, address="h:1", at=1.0, settings=LITERAL_SETTINGS
    )
    assert health_of(facts(watch), 2.0, TIMING) is Health.UNHEALTHY
