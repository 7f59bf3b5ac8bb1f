"""Evidence T: the tunnels of a proxy, by fleet.v1.TunnelFeed: changes since a revision of its epoch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fleet.monitoring.sources.changes import FeedChanges, read_changes
from fleet.monitoring.sources.source import EvidenceSource, SourceContext
from fleet.protocol import durations
from fleet.protocol.text_limits import LONGEST_ID, cut
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.instances import InstanceKind
from fleet.wire import fleet_pb2, fleet_pb2_grpc

#: Entries per response.
PAGE_SIZE = 5000

#: Entry of an agent: its name and when its tunnel was opened; None when the tunnel has closed.
TunnelChanges = FeedChanges[tuple[str, float]]


async def list_tunnels(context: SourceContext) -> TunnelChanges:
    """Request all pages. Raises SourceError."""
    feed = fleet_pb2_grpc.TunnelFeedStub(context.channel)
    create_request = partial(fleet_pb2.ListTunnelsRequest, limit=PAGE_SIZE)
    return await read_changes(context, feed.ListTunnels, create_request, _read_entries)


def _read_entries(
    page: fleet_pb2.ListTunnelsResponse, now: float
) -> Iterator[tuple[str, tuple[str, float] | None]]:
    yield from dict.fromkeys(page.closed).items()
    for tunnel in page.tunnels:
        if len(tunnel.agent_id) <= LONGEST_ID:
            opened_at = now - durations.from_milliseconds(tunnel.open_for_ms)
            yield tunnel.agent_id, (cut(tunnel.agent_name), opened_at)


TUNNELS = EvidenceSource(
    "tunnels",
    list_tunnels,
    applies_to=lambda target: target.kind is InstanceKind.PROXY,
    proves_reachability=True,
    capabilities=frozenset({Capability.TUNNELS_BY_AGENT, Capability.TUNNEL_COUNTS, Capability.WATCH}),
)
