"""Contexts of queries to fake instances, as the poller creates them."""

from __future__ import annotations

from collections.abc import Callable

from fleet.monitoring.sources.source import PollTarget, SourceContext
from fleet.transport.poll_connections import Connections
from fleet.vocabulary.instances import InstanceKind
from tests.fakes.instances import FakeAuth, FakeInstance


def make_source_context(
    connections: Connections,
    instance: FakeInstance,
    *,
    epoch: str = "",
    revision: int = 0,
    agents: tuple[tuple[int, str], ...] = (),
    remaining_seconds: Callable[[], float] = lambda: 30.0,
    now: float = 100.0,
) -> SourceContext:
    """Return the context of a query to instance that has index 7, with a position in its feed."""
    kind = InstanceKind.AUTH if isinstance(instance, FakeAuth) else InstanceKind.PROXY
    target = PollTarget(
        7, kind, instance.address, instance.diag_address, epoch, revision, agents_to_query=agents
    )
    channel = connections.channel(target.address, target.kind)
    return SourceContext(target, channel, connections, remaining_seconds, lambda: now)
