from __future__ import annotations

import asyncio
import time

import pytest

from fleet.monitoring.pollers.shard_poll import PollResult, poll_targets, query_source
from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.health import HealthResponse
from fleet.monitoring.sources.source import EvidenceSource, PollTarget, SourceContext, SourcePolling
from fleet.transport.poll_connections import Connections
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.instances import InstanceKind, ServingStatus

PROXY = PollTarget(0, InstanceKind.PROXY, "127.0.0.1:1")


async def _seconds_left(context: SourceContext) -> float:
    return context.remaining_seconds()


async def _fails(_: SourceContext) -> float:
    raise SourceError("refused", has_response=True)


async def test_source_gets_its_share_of_the_remaining_time(connections: Connections) -> None:
    """Of the time that is left at its query."""
    remaining_seconds = iter([10.0, 9.0])
    hasty = EvidenceSource("hasty", _seconds_left, time_share=0.4)
    assert await query_source(connections, PROXY, hasty, lambda: next(remaining_seconds), time.time) == 3.0


async def test_invalid_address_is_an_error_of_every_source(connections: Connections) -> None:
    """No query is sent."""
    nowhere = PollTarget(0, InstanceKind.PROXY, "nowhere")
    source = EvidenceSource("any", _seconds_left)
    failure = await query_source(connections, nowhere, source, lambda: 1.0, time.time)
    assert isinstance(failure, SourceError)
    assert "'nowhere' is not an address" in str(failure)


def test_instance_is_reached_if_a_contact_responded() -> None:
    """Otherwise the error is that of the first contact source."""
    first, second = (EvidenceSource(name, _fails, proves_reachability=True) for name in ("first", "second"))
    other_source = EvidenceSource("other", _fails)
    refusal, late = SourceError("refused", has_response=False), SourceError("late", has_response=False)
    poll_result = PollResult(PROXY, 1.0, {first: refusal, second: 5.0, other_source: late})
    assert (poll_result.error, poll_result.response_of(first), poll_result.response_of(second)) == (
        "",
        None,
        5.0,
    )
    assert poll_result.failed_sources == {first, other_source}
    assert (
        PollResult(PROXY, 1.0, {first: refusal, second: late, other_source: 1.0}).error
        == "127.0.0.1:1: refused"
    )


async def test_a_query_that_raises_another_error_fails_alone(
    connections: Connections, caplog: pytest.LogCaptureFixture
) -> None:
    """Its traceback is in the log; the failure names the request and the type only."""

    async def _raises(_: SourceContext) -> float:
        raise KeyError("secret")

    failure = await query_source(connections, PROXY, EvidenceSource("odd", _raises), lambda: 1.0, time.time)
    assert isinstance(failure, SourceError)
    assert (str(failure), failure.has_response) == ("the request odd failed in Refloat: KeyError", False)
    assert "the request odd of 127.0.0.1:1 failed" in caplog.text


async def test_a_query_that_ignores_its_deadline_is_cancelled(connections: Connections) -> None:
    was_cancelled = asyncio.Event()

    async def _hangs(_: SourceContext) -> float:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            was_cancelled.set()
        raise AssertionError("it was cancelled")

    failure = await query_source(connections, PROXY, EvidenceSource("slow", _hangs), lambda: 0.01, time.time)
    assert str(failure) == "the request slow did not end in time"
    assert was_cancelled.is_set()


async def test_a_query_reports_capabilities_that_the_cluster_findings(connections: Connections) -> None:
    """Beside its response, and it sees all first addresses of the cluster."""

    async def _lists(context: SourceContext) -> list[str]:
        context.missing_capabilities[Capability.AGENT_TO_AUTH] = "The role findings list."
        return list(context.addresses)

    findings: dict[Capability, str] = {}
    source, addresses = EvidenceSource("lists", _lists), ("127.0.0.1:1", "127.0.0.1:2")
    response = await query_source(connections, PROXY, source, lambda: 1.0, time.time, addresses, findings)
    assert response == list(addresses)
    assert findings == {Capability.AGENT_TO_AUTH: "The role findings list."}


def _make_list_polling(health_by_address: dict[str, ServingStatus | None]) -> SourcePolling:
    """Return lists that each auth has, and the health of each; None: no response."""

    async def list_names(context: SourceContext) -> str:
        if context.target.address not in health_by_address:
            raise SourceError("refused", has_response=False)
        return context.target.address

    async def get_health(context: SourceContext) -> HealthResponse:
        status = health_by_address[context.target.address]
        if status is None:
            raise SourceError("late", has_response=False)
        return HealthResponse(status)

    return SourcePolling((), (EvidenceSource("list", list_names),), EvidenceSource("health", get_health))


@pytest.mark.parametrize(
    ("health_by_port", "expected_port", "is_old"),
    [
        ({1: ServingStatus.SERVING, 2: ServingStatus.SERVING}, 1, False),
        ({1: ServingStatus.NOT_SERVING, 2: ServingStatus.SERVING}, 2, False),
        ({1: ServingStatus.NOT_SERVING, 2: None}, 2, False),
        ({1: ServingStatus.NOT_SERVING, 2: ServingStatus.SERVICE_UNKNOWN}, 2, False),
        ({1: ServingStatus.NOT_SERVING, 2: ServingStatus.NOT_SERVING}, 1, True),
        ({1: ServingStatus.NOT_SERVING}, 1, True),
    ],
)
async def test_lists_of_an_auth_that_is_serving_are_preferred(
    connections: Connections,
    health_by_port: dict[int, ServingStatus | None],
    expected_port: int,
    is_old: bool,
) -> None:
    """Those of another one count only if there are no others, and may be old."""
    polling = _make_list_polling({f"127.0.0.1:{port}": health for port, health in health_by_port.items()})
    auths = [PollTarget(None, InstanceKind.AUTH, f"127.0.0.1:{port}") for port in (1, 2)]
    list_result = (await poll_targets(connections, [], auths, polling, deadline=20.0)).list_result
    assert list_result is not None
    assert (list_result.target.address, list_result.is_old) == (f"127.0.0.1:{expected_port}", is_old)


def test_an_instance_without_a_contact_was_not_reached_and_has_no_error() -> None:
    """Its source only reads something else there."""
    poll_result = PollResult(PROXY, 1.0, {EvidenceSource("other", _fails): 1.0})
    assert (poll_result.is_contacted, poll_result.error) == (False, "")
