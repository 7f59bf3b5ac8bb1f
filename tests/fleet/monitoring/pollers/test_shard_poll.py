from __future__ import annotations

import time

from fleet.monitoring.pollers.shard_poll import Sighting, ask_source
from fleet.monitoring.sources import SourceFailed
from fleet.monitoring.sources.source import EvidenceSource, Question, Target
from fleet.transport.poll_connections import Connections
from fleet.vocabulary.instances import InstanceKind

PROXY = Target(0, InstanceKind.PROXY, "127.0.0.1:1")


async def _seconds_left(question: Question) -> float:
    return question.left()


async def _fails(_: Question) -> float:
    raise SourceFailed("refused", answered=True)


async def test_source_gets_its_share_of_the_time(connections: Connections) -> None:
    """Of what is left when it is asked; later there is less."""
    left = iter([10.0, 9.0])
    hasty = EvidenceSource("hasty", _seconds_left, share=0.4)
    assert await ask_source(connections, PROXY, hasty, lambda: next(left), time.time) == 3.0


async def test_address_that_cannot_be_dialled(connections: Connections) -> None:
    """It is the failure of every question; nothing is asked."""
    nowhere = Target(0, InstanceKind.PROXY, "nowhere")
    source = EvidenceSource("any", _seconds_left)
    failure = await ask_source(connections, nowhere, source, lambda: 1.0, time.time)
    assert isinstance(failure, SourceFailed)
    assert "'nowhere' is not an address" in str(failure)


def test_instance_was_reached_if_a_contact_answered() -> None:
    """Else the failure of the first contact says why not; other sources prove nothing."""
    first, second = (EvidenceSource(name, _fails, is_contact=True) for name in ("first", "second"))
    other = EvidenceSource("other", _fails)
    refused, late = SourceFailed("refused", answered=False), SourceFailed("late", answered=False)
    reached = Sighting(PROXY, 1.0, {first: refused, second: 5.0, other: late})
    assert (reached.error, reached.answer(first), reached.answer(second)) == ("", None, 5.0)
    assert reached.failed == {first, other}
    assert Sighting(PROXY, 1.0, {first: refused, second: late, other: 1.0}).error == "127.0.0.1:1: refused"
