from __future__ import annotations

import time

from fleet.monitoring.pollers.shard_poll import PollResult, query_source
from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.source import EvidenceSource, PollTarget, SourceContext
from fleet.transport.poll_connections import Connections
from fleet.vocabulary.instances import InstanceKind

PROXY = PollTarget(0, InstanceKind.PROXY, "127.0.0.1:1")


async def _seconds_left(question: SourceContext) -> float:
    return question.remaining_seconds()


async def _fails(_: SourceContext) -> float:
    raise SourceError("refused", has_response=True)


async def test_source_gets_its_share_of_the_time(connections: Connections) -> None:
    """Of what is left when it is asked; later there is less."""
    left = iter([10.0, 9.0])
    hasty = EvidenceSource("hasty", _seconds_left, share=0.4)
    assert await query_source(connections, PROXY, hasty, lambda: next(left), time.time) == 3.0


async def test_address_that_cannot_be_dialled(connections: Connections) -> None:
    """It is the failure of every question; nothing is asked."""
    nowhere = PollTarget(0, InstanceKind.PROXY, "nowhere")
    source = EvidenceSource("any", _seconds_left)
    failure = await query_source(connections, nowhere, source, lambda: 1.0, time.time)
    assert isinstance(failure, SourceError)
    assert "'nowhere' is not an address" in str(failure)


def test_instance_was_reached_if_a_contact_answered() -> None:
    """Else the failure of the first contact says why not; other sources prove nothing."""
    first, second = (EvidenceSource(name, _fails, is_contact=True) for name in ("first", "second"))
    other = EvidenceSource("other", _fails)
    refused, late = SourceError("refused", has_response=False), SourceError("late", has_response=False)
    reached = PollResult(PROXY, 1.0, {first: refused, second: 5.0, other: late})
    assert (reached.error, reached.response_of(first), reached.response_of(second)) == ("", None, 5.0)
    assert reached.failed_sources == {first, other}
    assert PollResult(PROXY, 1.0, {first: refused, second: late, other: 1.0}).error == "127.0.0.1:1: refused"
