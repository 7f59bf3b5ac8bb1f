"""Destinations of a process: they are probed, results of requests count, and picks follow their health."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable

import pytest

from fleet.protocol.destination.health import (
    Health,
    HealthReason,
    HealthSettings,
    ProbeOutcome,
    RequestOutcome,
)
from fleet.protocol.destination.instance_status import EMPTY_STATUS, InstanceStatus
from fleet.protocol.destination.picker import PickReason
from fleet.protocol.destination.probe_schedule import ProbeSettings
from fleet.transport.destinations import (
    DestinationPool,
    Destinations,
    ProbeResult,
    VerdictChange,
    log_change,
)
from tests.fakes.waiting import eventually

#: Short intervals.
QUICK = ProbeSettings(interval=0.05, fast_interval=0.01, timeout=5.0)
#: No second probe.
SINGLE_PROBE = ProbeSettings(interval=3600.0, fast_interval=3600.0, timeout=0.05)


class FakeProber:
    """Responds to probes as set, by name."""

    def __init__(self) -> None:
        self.responses: dict[str, ProbeResult] = {}
        self.hanging_names: set[str] = set()
        self.probe_counts: Counter[str] = Counter()
        self.changes: list[VerdictChange] = []
        self.time = 1_000_000.0

    async def probe(self, name: str) -> ProbeResult:
        self.probe_counts[name] += 1
        if name in self.hanging_names:
            await asyncio.Event().wait()
        return self.responses.get(name, ProbeResult(ProbeOutcome.SUCCESS))

    def now(self) -> float:
        return self.time


@pytest.fixture
def prober() -> FakeProber:
    return FakeProber()


@pytest.fixture
async def create_destinations(prober: FakeProber) -> AsyncIterator[Callable[..., Destinations]]:
    """Return a function that creates destinations whose first probe is due at once."""
    all_destinations: list[Destinations] = []

    def create(probes: ProbeSettings = QUICK, settings: HealthSettings | None = None) -> Destinations:
        destinations = Destinations(
            prober.probe,
            health_settings=settings or HealthSettings(),
            probe_settings=probes,
            on_change=prober.changes.append,
            now=prober.now,
            chance=lambda: 0.0,
        )
        all_destinations.append(destinations)
        return destinations

    yield create
    for destinations in all_destinations:
        await destinations.close()


def health(destinations: Destinations, name: str) -> Health:
    destination = destinations.get(name)
    assert destination is not None
    return destination.verdict.health


def declared_health(destinations: Destinations) -> Health:
    destination = destinations.get("a")
    assert destination is not None
    return destination.verdict.declaration.health


async def test_probes_are_independent(
    prober: FakeProber, create_destinations: Callable[..., Destinations]
) -> None:
    """One that hangs delays no other, and is Unhealthy after its timeout; every change is reported."""
    prober.hanging_names.add("b")
    destinations = create_destinations(ProbeSettings(interval=0.05, fast_interval=0.01, timeout=0.05))

    destinations.set_destinations(["a", "b"])

    assert health(destinations, "a") is Health.UNKNOWN
    await eventually(lambda: health(destinations, "b") is Health.UNHEALTHY)
    assert health(destinations, "a") is Health.HEALTHY
    assert {(destination.name, destination.after.health) for destination in prober.changes} == {
        ("a", Health.HEALTHY),
        ("b", Health.UNHEALTHY),
    }
    destination = destinations.get("b")
    assert destination is not None
    assert destination.error == "no answer within 0.05 s"


async def test_failing_probe_leads_to_unhealthy_and_back(
    prober: FakeProber, create_destinations: Callable[..., Destinations]
) -> None:
    """Healthy, Degraded, Unhealthy, Degraded, Healthy, as in the diagram."""
    destinations = create_destinations()
    destinations.set_destinations(["a"])
    await eventually(lambda: health(destinations, "a") is Health.HEALTHY)
    prober.responses["a"] = ProbeResult(ProbeOutcome.FAILURE, "refused")
    await eventually(lambda: health(destinations, "a") is Health.UNHEALTHY)
    del prober.responses["a"]
    await eventually(lambda: health(destinations, "a") is Health.HEALTHY)

    assert [destination.after.health for destination in prober.changes] == [
        Health.HEALTHY,
        Health.DEGRADED,
        Health.UNHEALTHY,
        Health.DEGRADED,
        Health.HEALTHY,
    ]


async def test_removed_destination_is_not_probed(
    prober: FakeProber, create_destinations: Callable[..., Destinations]
) -> None:
    """It is not picked either; the others keep their verdicts."""
    destinations = create_destinations()
    destinations.set_destinations(["a", "b"])
    pool = DestinationPool(destinations, {"a": 1, "b": 1})
    await eventually(lambda: health(destinations, "a") is Health.HEALTHY)

    destinations.set_destinations(["a"])

    assert destinations.get("b") is None
    assert health(destinations, "a") is Health.HEALTHY
    assert pool.picker().shares == {"a": 1.0}
    destinations.record_request("b", RequestOutcome.FAILURE)  # its request was in progress


async def test_picks_follow_health(
    prober: FakeProber, create_destinations: Callable[..., Destinations]
) -> None:
    """An Unhealthy destination gets nothing while others have capacity; a single one is tried even if
    Unhealthy.
    """
    prober.responses["b"] = ProbeResult(ProbeOutcome.FAILURE, "refused")
    destinations = create_destinations()
    destinations.set_destinations(["a", "b"])
    pool = DestinationPool(destinations, {"a": 1, "b": 1})
    single_pool = DestinationPool(destinations, {"b": 1})
    await eventually(lambda: health(destinations, "b") is Health.UNHEALTHY)
    await eventually(lambda: health(destinations, "a") is Health.HEALTHY)

    assert pool.picker().shares == {"a": 1.0}
    pick = single_pool.pick()
    assert pick is not None
    assert (pick.name, pick.reason) == ("b", PickReason.PANIC)


async def test_failing_requests_give_degraded_then_unhealthy(
    prober: FakeProber, create_destinations: Callable[..., Destinations]
) -> None:
    """The failure rate counts in two steps; when their time ends the next pick uses it."""
    destinations = create_destinations(SINGLE_PROBE)
    destinations.set_destinations(["a"])
    pool = DestinationPool(destinations, {"a": 1})
    await eventually(lambda: health(destinations, "a") is Health.HEALTHY)

    destination = destinations.get("a")
    assert destination is not None
    for expected in (Health.DEGRADED, Health.UNHEALTHY):
        for _ in range(10):
            destinations.record_request("a", RequestOutcome.FAILURE)
        assert (destination.verdict.health, destination.verdict.reason) == (
            expected,
            HealthReason.FAILURE_RATE,
        )
    prober.time += 61
    pool.pick()
    assert destination.verdict.health is Health.DEGRADED
    prober.time += 60
    pick = pool.pick()
    assert pick is not None
    assert pick.reason is PickReason.HEALTHY


async def test_failed_request_brings_the_next_probe_forward(
    prober: FakeProber, create_destinations: Callable[..., Destinations]
) -> None:
    destinations = create_destinations(ProbeSettings(interval=3600.0, fast_interval=0.01, timeout=5.0))
    destinations.set_destinations(["a"])
    await eventually(lambda: health(destinations, "a") is Health.HEALTHY)
    probe_count = prober.probe_counts["a"]

    destinations.record_request("a", RequestOutcome.FAILURE)

    await eventually(lambda: prober.probe_counts["a"] > probe_count)


async def test_draining_destination_keeps_its_sessions(
    prober: FakeProber, create_destinations: Callable[..., Destinations]
) -> None:
    """It gets no new ones."""
    destinations = create_destinations()
    destinations.set_destinations(["a", "b"])
    pool = DestinationPool(destinations, {"a": 1, "b": 1})
    await eventually(lambda: health(destinations, "b") is Health.HEALTHY)

    destinations.drain("b", "kernel update")

    assert pool.picker().shares == {"a": 1.0}
    pick = pool.keep("b")
    assert pick is not None
    assert (pick.name, pick.reason) == ("b", PickReason.AFFINITY)
    destinations.undrain("b")
    assert set(pool.picker().shares) == {"a", "b"}


async def test_declared_degradation_lasts_until_withdrawn(
    prober: FakeProber, create_destinations: Callable[..., Destinations]
) -> None:
    destinations = create_destinations()
    destinations.set_destinations(["a"])
    await eventually(lambda: health(destinations, "a") is Health.HEALTHY)

    destinations.declare_degraded("a")
    assert health(destinations, "a") is Health.DEGRADED
    destinations.withdraw_degraded("a")

    assert health(destinations, "a") is Health.HEALTHY


async def test_status_in_a_probe_response_is_a_declaration(
    prober: FakeProber, create_destinations: Callable[..., Destinations]
) -> None:
    """It lasts for a few failed probes, and a probe without it withdraws it."""
    destinations = create_destinations()
    prober.responses["a"] = ProbeResult(
        ProbeOutcome.DEGRADED, "busy", InstanceStatus("busy", "kernel update")
    )
    destinations.set_destinations(["a"])
    await eventually(lambda: declared_health(destinations) is Health.DEGRADED)
    destination = destinations.get("a")
    assert destination is not None
    assert destination.verdict.reason is HealthReason.PROBE_DEGRADED
    assert destination.verdict.drain_request is not None
    assert destination.verdict.drain_request.reason == "kernel update"

    prober.responses["a"] = ProbeResult(ProbeOutcome.FAILURE, "refused")
    probe_count = prober.probe_counts["a"]
    await eventually(lambda: prober.probe_counts["a"] > probe_count + 1)
    assert declared_health(destinations) is Health.DEGRADED
    prober.time += 3 * (QUICK.interval + QUICK.timeout) + 1
    await eventually(lambda: declared_health(destinations) is Health.UNKNOWN)

    prober.responses["a"] = ProbeResult(ProbeOutcome.DEGRADED, "busy", InstanceStatus("busy"))
    await eventually(lambda: declared_health(destinations) is Health.DEGRADED)
    prober.responses["a"] = ProbeResult(ProbeOutcome.SUCCESS, status=EMPTY_STATUS)
    await eventually(lambda: declared_health(destinations) is Health.UNKNOWN)
    assert destination.verdict.drain_request is None


async def test_retry_picks_another_destination(
    prober: FakeProber, create_destinations: Callable[..., Destinations]
) -> None:
    """A tried destination is picked again only without alternative."""
    chances = iter([0.0, 0.0, 0.9, 0.0])
    destinations = Destinations(prober.probe, probe_settings=SINGLE_PROBE, chance=lambda: next(chances, 0.0))
    destinations.set_destinations(["a", "b"])
    pool = DestinationPool(destinations, {"a": 1, "b": 1})

    pick = pool.pick(tried_names=["a"])

    assert pick is not None
    assert pick.name == "b"
    second_pick = pool.pick(tried_names=["a", "b"])
    assert second_pick is not None
    await destinations.close()


async def test_retry_order(prober: FakeProber, create_destinations: Callable[..., Destinations]) -> None:
    """Untried first, then those that responded, then an Unhealthy one, then those that failed."""
    prober.responses["dead"] = ProbeResult(ProbeOutcome.FAILURE, "refused")
    destinations = create_destinations()
    destinations.set_destinations(["a", "b", "dead"])
    pool = DestinationPool(destinations, {"a": 1, "b": 1, "dead": 1})
    await eventually(lambda: health(destinations, "dead") is Health.UNHEALTHY)
    await eventually(lambda: {health(destinations, name) for name in "ab"} == {Health.HEALTHY})

    def pick_name(tried_names: str, failed_names: str) -> str:
        pick = pool.pick(tried_names.split(), failed_names.split())
        assert pick is not None
        return pick.name

    assert pick_name("a", "a") == pick_name("a", "") == "b"
    assert pick_name("a b", "a") == "b"
    assert pick_name("a b", "a b") == "dead"
    assert pick_name("a b dead", "a b dead") in {"a", "b"}
    assert pool.has_other({"a", "b"})
    destinations.drain("dead", "kernel update")
    assert not pool.has_other({"a", "b"})
    assert pick_name("a b", "a b") in {"a", "b"}


async def test_failing_prober_is_called_again(
    prober: FakeProber, create_destinations: Callable[..., Destinations], caplog: pytest.LogCaptureFixture
) -> None:
    """The error is logged with its traceback, and the loop continues."""
    failures_left = 2

    async def probe(name: str) -> ProbeResult:
        nonlocal failures_left
        if failures_left:
            failures_left -= 1
            raise RuntimeError("a bug")
        return ProbeResult(ProbeOutcome.SUCCESS)

    destinations = Destinations(probe, probe_settings=QUICK)
    destinations.set_destinations(["a"])
    await eventually(lambda: health(destinations, "a") is Health.HEALTHY)

    assert "a bug" in caplog.text
    await destinations.close()


async def test_changes_are_logged(
    prober: FakeProber, create_destinations: Callable[..., Destinations], caplog: pytest.LogCaptureFixture
) -> None:
    """The line has the destination, both states, the reason and the probe's error."""
    prober.responses["a"] = ProbeResult(ProbeOutcome.FAILURE, "connection refused")
    destinations = create_destinations()
    destinations.set_destinations(["a"])
    await eventually(lambda: bool(prober.changes))

    log_change(prober.changes[0])

    assert "destination a: unknown -> unhealthy: the first probe failed (connection refused)" in caplog.text
    caplog.set_level(logging.INFO)
    destinations.drain("a", "kernel update")
    log_change(prober.changes[-1])
    assert "destination a is draining: kernel update" in caplog.text
    destinations.undrain("a")
    log_change(prober.changes[-1])
    assert "destination a takes new requests again" in caplog.text
