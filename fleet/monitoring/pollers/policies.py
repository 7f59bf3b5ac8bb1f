"""Ask instances for their policies, now and then: they change when one restarts. docs/policies.md, "Drift"."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from fleet.monitoring.pollers.plan import is_asked
from fleet.monitoring.pollers.shard_poll import ask_source
from fleet.monitoring.sources import SourceFailed
from fleet.monitoring.sources.policies import POLICIES
from fleet.monitoring.sources.source import Target
from fleet.transport.poll_connections import Connections
from fleet.transport.tls import TLSFiles
from fleet.vocabulary.instances import InstanceFacts
from fleet.vocabulary.node_policies import Observed

#: In all, and for each, seconds.
_WITHIN = 3.0
_AT_ONCE = 32
NOT_OURS = "it does not know the question: its policies come from its environment alone"


async def ask_all(
    instances: Iterable[InstanceFacts], tls: TLSFiles | None, clock: Callable[[], float] = time.time
) -> dict[str, Observed]:
    """What came of asking each, by instance id; a failure says why."""
    now, room = clock(), asyncio.Semaphore(_AT_ONCE)
    connections = Connections(tls)

    async def ask(facts: InstanceFacts) -> Observed:
        async with room:
            target = Target(facts.index, facts.kind, facts.address)
            answer = await ask_source(connections, target, POLICIES, lambda: _WITHIN, clock)
        if not isinstance(answer, SourceFailed):
            return Observed(clock(), answer)
        unknown = answer.answered and str(answer).startswith("unimplemented")
        return Observed(clock(), None, NOT_OURS if unknown else str(answer))

    asked = [facts for facts in instances if is_asked(facts, now)]
    try:
        found = await asyncio.gather(*(ask(facts) for facts in asked))
    finally:
        await connections.close()
    return {facts.id: seen for facts, seen in zip(asked, found, strict=True)}
