"""Questions to fake instances, as a round makes them."""

from __future__ import annotations

from collections.abc import Callable

from fleet.monitoring.sources.source import PollTarget, SourceContext
from fleet.transport.poll_connections import Connections
from fleet.vocabulary.instances import InstanceKind
from tests.fakes.instances import FakeAuth, FakeInstance


def question(
    connections: Connections,
    instance: FakeInstance,
    *,
    epoch: str = "",
    revision: int = 0,
    agents: tuple[tuple[int, str], ...] = (),
    left: Callable[[], float] = lambda: 30.0,
    now: float = 100.0,
) -> SourceContext:
    """Make a question to an instance that is number 7 in the record, with our place in its feed."""
    kind = InstanceKind.AUTH if isinstance(instance, FakeAuth) else InstanceKind.PROXY
    target = PollTarget(7, kind, instance.address, instance.diag_address, epoch, revision, agents=agents)
    channel = connections.channel(target.address, target.kind)
    return SourceContext(target, channel, connections, left, lambda: now)
