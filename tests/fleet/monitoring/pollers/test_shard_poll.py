from __future__ import annotations

import time

from fleet.monitoring.pollers.shard_poll import PollResult, query_source
from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.source import EvidenceSource, PollTarget, SourceContext
from fleet.transport.poll_connections import Connections
from fleet.vocabulary.instances import InstanceKind

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
