"""T: the tunnels of a proxy, by fleet.v1.TunnelFeed: what changed since a revision of its epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import grpc.aio

from fleet.sources import SourceFailed, asking
from fleet.wire import fleet_pb2, fleet_pb2_grpc

#: Entries in one answer.
PAGE = 5000


@dataclass(slots=True)
class TunnelChanges:
    """What a proxy said. `complete` is False when there is more than the time allowed."""

    epoch: str
    revision: int
    #: A full list began: forget what you had.
    full: bool = False
    complete: bool = False
    #: agent id -> (name, when its tunnel was opened), or None when it has none any more.
    agents: dict[str, tuple[str, float] | None] = field(default_factory=dict)


async def ask_tunnels(
    channel: grpc.aio.Channel,
    epoch: str,
    revision: int,
    *,
    left: Callable[[], float],
    clock: Callable[[], float],
) -> TunnelChanges:
    """Ask for all pages there are while `left` says that seconds are left; `clock` says when an answer came.

    Raises SourceFailed when not even the first page came.
    """
    stub = fleet_pb2_grpc.TunnelFeedStub(channel)
    changes = TunnelChanges(epoch, revision)
    while not changes.complete:
        seconds = left()
        if seconds <= 0 and changes.agents:
            return changes
        request = fleet_pb2.ListTunnelsRequest(
            epoch=changes.epoch, since_revision=changes.revision, limit=PAGE
        )
        try:
            with asking():
                answer = await stub.ListTunnels(request, timeout=max(seconds, 0.001))
        except SourceFailed:
            if changes.agents:
                return changes
            raise
        take(changes, answer, clock())
    return changes


def take(changes: TunnelChanges, answer: fleet_pb2.ListTunnelsResponse, now: float) -> None:
    """Add a page."""
    if answer.full:
        changes.full = True
        changes.agents.clear()
    changes.epoch, changes.revision, changes.complete = answer.epoch, answer.revision, not answer.more
    for agent in answer.closed:
        changes.agents[agent] = None
    for tunnel in answer.tunnels:
        changes.agents[tunnel.agent_id] = (tunnel.agent_name, now - tunnel.open_for_ms / 1000)
