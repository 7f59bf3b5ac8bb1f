"""Destinations of a process: probes run by themselves, results of requests count, picks follow."""

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
from fleet.protocol.destination.probe_schedule import Settings as Probing
from fleet.transport.destinations import Destinations, Pool, ProbeResponse, VerdictChange, log_change
from tests.fakes.waiting import eventually

#: Nobody waits long in tests.
QUICK = Probing(interval=0.05, fast_interval=0.01, timeout=5.0)
#: Nothing is probed twice.
NEVER = Probing(interval=3600.0, fast_interval=3600.0, timeout=0.05)


class Peers:
    """Answers probes as it is told, by name."""

    def __init__(self) -> None:
        self.answers: dict[str, ProbeResponse] = {}
        self.hung: set[str] = set()
        self.asked: Counter[str] = Counter()
        self.changes: list[VerdictChange] = []
        self.at = 1_000_000.0

    async def probe(self, name: str) -> ProbeResponse:
        self.asked[name] += 1
        if name in self.hung:
            await asyncio.Event().wait()
        return self.answers.get(name, ProbeResponse(ProbeOutcome.SUCCESS))

    def now(self) -> float:
        return self.at


@pytest.fixture
def peers() -> Peers:
    return Peers()


@pytest.fixture
async def opened(peers: Peers) -> AsyncIterator[Callable[..., Destinations]]:
    """Makes destinations whose first probe is due at once."""
    made: list[Destinations] = []

    def make(probes: Probing = QUICK, settings: HealthSettings | None = None) -> Destinations:
        destinations = Destinations(
            peers.probe,
            settings=settings or HealthSettings(),
            probes=probes,
            on_change=peers.changes.append,
            now=peers.now,
            chance=lambda: 0.0,
        )
        made.append(destinations)
        return destinations

    yield make
    for destinations in made:
        await destinations.close()


def health(destinations: Destinations, name: str) -> Health:
    one = destinations.get(name)
    assert one is not None
    return one.verdict.health


def declared(destinations: Destinations) -> Health:
    one = destinations.get("a")
    assert one is not None
    return one.verdict.declaration.health


async def test_probes_conclude_each_by_itself(peers: Peers, opened: Callable[..., Destinations]) -> None:
    """One that hangs holds up no other, and is Unhealthy when its time is over; every change is told."""
    peers.hung.add("b")
    destinations = opened(Probing(interval=0.05, fast_interval=0.01, timeout=0.05))

    destinations.set_names(["a", "b"])

    assert health(destinations, "a") is Health.UNKNOWN
    await eventually(lambda: health(destinations, "b") is Health.UNHEALTHY)
    assert health(destinations, "a") is Health.HEALTHY
    assert {(one.name, one.after.health) for one in peers.changes} == {
        ("a", Health.HEALTHY),
        ("b", Health.UNHEALTHY),
    }
    one = destinations.get("b")
    assert one is not None
    assert one.error == "no answer within 0.05 s"


async def test_failing_probe_leads_to_unhealthy_and_back(
    peers: Peers, opened: Callable[..., Destinations]
) -> None:
    """Healthy, Degraded, Unhealthy, Degraded, Healthy: the diagram's way."""
    destinations = opened()
    destinations.set_names(["a"])
    await eventually(lambda: health(destinations, "a") is Health.HEALTHY)
    peers.answers["a"] = ProbeResponse(ProbeOutcome.FAILURE, "refused")
    await eventually(lambda: health(destinations, "a") is Health.UNHEALTHY)
    del peers.answers["a"]
    await eventually(lambda: health(destinations, "a") is Health.HEALTHY)

    assert [one.after.health for one in peers.changes] == [
        Health.HEALTHY,
        Health.DEGRADED,
        Health.UNHEALTHY,
        Health.DEGRADED,
        Health.HEALTHY,
    ]


async def test_probes_of_one_that_is_gone_end(peers: Peers, opened: Callable[..., Destinations]) -> None:
    """What is not kept is neither probed nor picked; what stays keeps its verdict."""
    destinations = opened()
    destinations.set_names(["a", "b"])
    pool = Pool(destinations, {"a": 1, "b": 1})
    await eventually(lambda: health(destinations, "a") is Health.HEALTHY)

    destinations.set_names(["a"])

    assert destinations.get("b") is None
    assert health(destinations, "a") is Health.HEALTHY
    assert pool.picker().shares == {"a": 1.0}
    destinations.record_request("b", RequestOutcome.FAILURE)  # it was on its way


async def test_picks_follow_health(peers: Peers, opened: Callable[..., Destinations]) -> None:
    """A dead one gets nothing while others can take all; the last one is tried though it be dead."""
    peers.answers["b"] = ProbeResponse(ProbeOutcome.FAILURE, "refused")
    destinations = opened()
    destinations.set_names(["a", "b"])
    pool = Pool(destinations, {"a": 1, "b": 1})
    alone = Pool(destinations, {"b": 1})
    await eventually(lambda: health(destinations, "b") is Health.UNHEALTHY)
    await eventually(lambda: health(destinations, "a") is Health.HEALTHY)

    assert pool.picker().shares == {"a": 1.0}
    picked = alone.pick()
    assert picked is not None
    assert (picked.name, picked.reason) == ("b", PickReason.PANIC)


async def test_failing_requests_make_it_degraded_then_unhealthy_for_a_while(
    peers: Peers, opened: Callable[..., Destinations]
) -> None:
    """The failure rate counts beside the probes, in two steps; when their time is over the next pick knows."""
    destinations = opened(NEVER)
    destinations.set_names(["a"])
    pool = Pool(destinations, {"a": 1})
    await eventually(lambda: health(destinations, "a") is Health.HEALTHY)

    one = destinations.get("a")
    assert one is not None
    for expected in (Health.DEGRADED, Health.UNHEALTHY):
        for _ in range(10):
            destinations.record_request("a", RequestOutcome.FAILURE)
        assert (one.verdict.health, one.verdict.reason) == (expected, HealthReason.FAILURE_RATE)
    peers.at += 61
    pool.pick()
    assert one.verdict.health is Health.DEGRADED
    peers.at += 60
    picked = pool.pick()
    assert picked is not None
    assert picked.reason is PickReason.HEALTHY


async def test_failed_request_hastens_the_next_probe(
    peers: Peers, opened: Callable[..., Destinations]
) -> None:
    """Evidence from requests brings probes forward."""
    destinations = opened(Probing(interval=3600.0, fast_interval=0.01, timeout=5.0))
    destinations.set_names(["a"])
    await eventually(lambda: health(destinations, "a") is Health.HEALTHY)
    asked = peers.asked["a"]

    destinations.record_request("a", RequestOutcome.FAILURE)

    await eventually(lambda: peers.asked["a"] > asked)


async def test_draining_one_keeps_sessions(peers: Peers, opened: Callable[..., Destinations]) -> None:
    """It gets nothing new; who was there stays."""
    destinations = opened()
    destinations.set_names(["a", "b"])
    pool = Pool(destinations, {"a": 1, "b": 1})
    await eventually(lambda: health(destinations, "b") is Health.HEALTHY)

    destinations.drain("b", "kernel update")

    assert pool.picker().shares == {"a": 1.0}
    kept = pool.keep("b")
    assert kept is not None
    assert (kept.name, kept.reason) == ("b", PickReason.AFFINITY)
    destinations.undrain("b")
    assert set(pool.picker().shares) == {"a", "b"}


async def test_declared_degradation_is_not_preferred(
    peers: Peers, opened: Callable[..., Destinations]
) -> None:
    """Until it is withdrawn."""
    destinations = opened()
    destinations.set_names(["a"])
    await eventually(lambda: health(destinations, "a") is Health.HEALTHY)

    destinations.declare_degraded("a")
    assert health(destinations, "a") is Health.DEGRADED
    destinations.withdraw("a")

    assert health(destinations, "a") is Health.HEALTHY


async def test_what_it_says_in_answers_is_declared(peers: Peers, opened: Callable[..., Destinations]) -> None:
    """A signal of its own: it stands for a few probes that are not answered, and is taken back by one that is."""
    destinations = opened()
    peers.answers["a"] = ProbeResponse(ProbeOutcome.DEGRADED, "busy", InstanceStatus("busy", "kernel update"))
    destinations.set_names(["a"])
    await eventually(lambda: declared(destinations) is Health.DEGRADED)
    one = destinations.get("a")
    assert one is not None
    assert one.verdict.reason is HealthReason.PROBE_DEGRADED
    assert one.verdict.drain_request is not None
    assert one.verdict.drain_request.reason == "kernel update"

    peers.answers["a"] = ProbeResponse(ProbeOutcome.FAILURE, "refused")
    asked = peers.asked["a"]
    await eventually(lambda: peers.asked["a"] > asked + 1)
    assert declared(destinations) is Health.DEGRADED
    peers.at += 3 * (QUICK.interval + QUICK.timeout) + 1
    await eventually(lambda: declared(destinations) is Health.UNKNOWN)

    peers.answers["a"] = ProbeResponse(ProbeOutcome.DEGRADED, "busy", InstanceStatus("busy"))
    await eventually(lambda: declared(destinations) is Health.DEGRADED)
    peers.answers["a"] = ProbeResponse(ProbeOutcome.SUCCESS, status=EMPTY_STATUS)
    await eventually(lambda: declared(destinations) is Health.UNKNOWN)
    assert one.verdict.drain_request is None


async def test_retry_goes_elsewhere(peers: Peers, opened: Callable[..., Destinations]) -> None:
    """One that was tried is drawn again only when there is no other."""
    chances = iter([0.0, 0.0, 0.9, 0.0])
    destinations = Destinations(peers.probe, probes=NEVER, chance=lambda: next(chances, 0.0))
    destinations.set_names(["a", "b"])
    pool = Pool(destinations, {"a": 1, "b": 1})

    picked = pool.pick(tried_names=["a"])

    assert picked is not None
    assert picked.name == "b"
    again = pool.pick(tried_names=["a", "b"])
    assert again is not None
    await destinations.close()


async def test_retry_passes_by_what_failed(peers: Peers, opened: Callable[..., Destinations]) -> None:
    """First what was not tried, then what answered, then an Unhealthy one, and only then one that failed before."""
    peers.answers["dead"] = ProbeResponse(ProbeOutcome.FAILURE, "refused")
    destinations = opened()
    destinations.set_names(["a", "b", "dead"])
    pool = Pool(destinations, {"a": 1, "b": 1, "dead": 1})
    await eventually(lambda: health(destinations, "dead") is Health.UNHEALTHY)
    await eventually(lambda: {health(destinations, name) for name in "ab"} == {Health.HEALTHY})

    def picked(tried: str, failed: str) -> str:
        found = pool.pick(tried.split(), failed.split())
        assert found is not None
        return found.name

    assert picked("a", "a") == picked("a", "") == "b"
    assert picked("a b", "a") == "b"
    assert picked("a b", "a b") == "dead"
    assert picked("a b dead", "a b dead") in {"a", "b"}
    assert pool.has_other({"a", "b"})
    destinations.drain("dead", "kernel update")
    assert not pool.has_other({"a", "b"})
    assert picked("a b", "a b") in {"a", "b"}


async def test_broken_prober_is_asked_again(
    peers: Peers, opened: Callable[..., Destinations], caplog: pytest.LogCaptureFixture
) -> None:
    """A bug in a probe is on the log with its traceback, and ends no loop."""
    broken = 2

    async def probe(name: str) -> ProbeResponse:
        nonlocal broken
        if broken:
            broken -= 1
            raise RuntimeError("a bug")
        return ProbeResponse(ProbeOutcome.SUCCESS)

    destinations = Destinations(probe, probes=QUICK)
    destinations.set_names(["a"])
    await eventually(lambda: health(destinations, "a") is Health.HEALTHY)

    assert "a bug" in caplog.text
    await destinations.close()


async def test_change_is_said_on_the_log(
    peers: Peers, opened: Callable[..., Destinations], caplog: pytest.LogCaptureFixture
) -> None:
    """Which, from what, to what, why, and what the probe met."""
    peers.answers["a"] = ProbeResponse(ProbeOutcome.FAILURE, "connection refused")
    destinations = opened()
    destinations.set_names(["a"])
    await eventually(lambda: bool(peers.changes))

    log_change(peers.changes[0])

    assert "destination a: unknown -> unhealthy: the first probe failed (connection refused)" in caplog.text
    caplog.set_level(logging.INFO)
    destinations.drain("a", "kernel update")
    log_change(peers.changes[-1])
    assert "destination a is draining: kernel update" in caplog.text
    destinations.undrain("a")
    log_change(peers.changes[-1])
    assert "destination a takes new requests again" in caplog.text
