from __future__ import annotations

from fleet.monitoring.sources.tunnels import list_tunnels
from fleet.transport.poll_connections import Connections
from fleet.wire import fleet_pb2
from tests.fakes.instances import FakeProxy
from tests.fakes.source_contexts import make_source_context


async def test_opened_and_closed_tunnels_are_read(proxy: FakeProxy, connections: Connections) -> None:
    """With the time of opening; a tunnel that was closed and reopened is open."""
    proxy.tunnels = lambda _: fleet_pb2.ListTunnelsResponse(
        epoch="e",
        revision=4,
        tunnels=[fleet_pb2.TunnelEntry(agent_id="a", agent_name="one", open_for_ms=2500)],
        closed=["a", "b"],
    )
    changes = await list_tunnels(make_source_context(connections, proxy, epoch="e", revision=1, now=100.0))
    assert changes.agents == {"a": ("one", 97.5), "b": None}
    assert (changes.full, changes.complete, changes.revision) == (False, True, 4)
    assert proxy.calls[-1].since_revision == 1


async def test_long_texts_of_tunnels_are_truncated(proxy: FakeProxy, connections: Connections) -> None:
    """A proxy of another version may return them; an invalid id is left out."""
    proxy.tunnels = lambda _: fleet_pb2.ListTunnelsResponse(
        epoch="e",
        revision=4,
        tunnels=[
            fleet_pb2.TunnelEntry(agent_id="a", agent_name="n" * 1_000_000),
            fleet_pb2.TunnelEntry(agent_id="b" * 129, agent_name="b"),
        ],
    )
    changes = await list_tunnels(make_source_context(connections, proxy, epoch="e", revision=1))
    assert list(changes.agents) == ["a"]
    tunnel = changes.agents["a"]
    assert tunnel is not None
    assert len(tunnel[0]) == 256
