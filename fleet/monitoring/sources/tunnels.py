"""T: the tunnels of a proxy, by fleet.v1.TunnelFeed: what changed since a revision of its epoch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import grpc.aio

from fleet.monitoring.sources.changes import Changes, follow
from fleet.protocol import durations
from fleet.protocol.text_limits import LONGEST_ID, cut
from fleet.wire import fleet_pb2, fleet_pb2_grpc

#: Entries in one answer.
PAGE = 5000


class TunnelChanges(Changes[tuple[str, float]]):
    """What a proxy said: (name of the agent, when its tunnel was opened), or None when it has none any more."""

    __slots__ = ()


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

    def ask(seconds: float) -> Awaitable[fleet_pb2.ListTunnelsResponse]:
        request = fleet_pb2.ListTunnelsRequest(
            epoch=changes.epoch, since_revision=changes.revision, limit=PAGE
        )
        answer: Awaitable[fleet_pb2.ListTunnelsResponse] = stub.ListTunnels(request, timeout=seconds)
        return answer

    def add(page: fleet_pb2.ListTunnelsResponse) -> None:
        now = clock()
        changes.agents.update(dict.fromkeys(page.closed))
        changes.agents.update(
            (tunnel.agent_id, (cut(tunnel.agent_name), now - durations.from_milliseconds(tunnel.open_for_ms)))
            for tunnel in page.tunnels
            if len(tunnel.agent_id) <= LONGEST_ID
        )

    await follow(changes, ask, add, left=left)
    return changes
