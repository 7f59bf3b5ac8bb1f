"""The clock of a whole host jumps by an hour: nobody is stranded by that, and who fails later is left all the same."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from grpc.aio import _utils

from fleet.nodes.local.forward_names import ForwardMode
from fleet.nodes.proxy.server import Proxy
from fleet.nodes.shared import addresses
from fleet.protocol.networking.keep_alive import KeepAlive
from fleet.protocol.tunnel.messages import TunnelError
from tests.fakes.agents import Agents, FakeAgent
from tests.fakes.plane import Plane
from tests.fakes.waiting import eventually


@pytest.mark.parametrize("via_proxy", [False, True], ids=["direct", "proxy"])
@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
async def test_clock_jumps(
    plane: Plane, monkeypatch: pytest.MonkeyPatch, jump: float, via_proxy: bool
) -> None:
    """Heartbeats go on, tunnels stay, and when a proxy freezes afterwards its agent is elsewhere soon.

    So are its heartbeats, if that proxy carried them.
    """
    auth, first = await plane.auth(ttl=2.0), await plane.proxy("first", ttl=2.0)
    link, spare = await plane.forward(first.instance.grpc_address), await plane.forward("127.0.0.1:1")
    await spare.change(mode=ForwardMode.CUT)
    where = [addresses.join(*link.listen), addresses.join(*spare.listen)]
    keep_alive = KeepAlive(interval=0.5, count_max=3)
    group = await plane.agents(
        auth.instance.grpc_address,
        where,
        announce_ttl=10.0,
        keep_alive=keep_alive,
        auth_via_proxy=via_proxy,
    )
    (agent,) = group.agents
    await eventually(lambda: set(agent.tunnels.proxies) == {first.instance.flags.id})
    (tunnel,) = agent.tunnels.tunnels

    async def heartbeats(by: Proxy, after: int = 0) -> bool:
        page = await auth.instance.backend.agents("", 0, 0)
        carriers = [entry.agent.via_proxy_id for entry in page.agents if entry.agent.name == "agent-1"]
        return page.revision > after and carriers == [by.instance.flags.id if via_proxy else ""]

    await eventually(lambda: heartbeats(first))
    wall, wall_ns = time.time, time.time_ns
    # gRPC's core has the real clock, and deadlines are written by this one: in earnest both jump.
    monkeypatch.setattr(_utils, "time", SimpleNamespace(time=wall))
    monkeypatch.setattr(time, "time", lambda: wall() + jump)
    monkeypatch.setattr(time, "time_ns", lambda: wall_ns() + int(jump) * 10**9)
    revision = (await auth.instance.backend.agents("", 0, 0)).revision

    await eventually(lambda: heartbeats(first, revision))
    assert agent.tunnels.tunnels == (tunnel,)

    second = await plane.proxy("second", ttl=2.0)
    await spare.change(mode=ForwardMode.PASS, to=addresses.parse(second.instance.grpc_address))
    await link.change(mode=ForwardMode.HOLD)
    await eventually(lambda: set(agent.tunnels.proxies) == {second.instance.flags.id})
    revision = (await auth.instance.backend.agents("", 0, 0)).revision
    await eventually(lambda: heartbeats(second, revision))
    await link.change(mode=ForwardMode.PASS)


async def test_agent_that_starts_again_with_an_earlier_clock(plane: Plane, agents: Agents) -> None:
    """Its old tunnel is half-open and of a later generation: it waits until a ping is missing, and no longer."""
    proxy = await plane.proxy(ttl=600.0)
    before = await agents.connect(proxy, "a")
    stale = proxy.table.find_current("a")
    assert stale is not None
    after = FakeAgent(proxy, "a", generation=before.generation - 3600 * 10**9)
    agents.made.append(after)
    await after.hello()
    with pytest.raises(TunnelError, match="already registered by another client"):
        await after.join()
    stale.last_seen_at -= proxy.table.keep_alive.interval + 2.0
    await after.claim()
    current = proxy.table.find_current("a")
    assert current is not None
    assert current is not stale
    assert len(proxy.table) == 1
    await eventually(lambda: proxy.table.find_by_connection(stale.key) is None)
