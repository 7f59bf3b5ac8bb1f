"""Agents keep working when the clock of a whole host jumps by an hour, and still leave proxies that fail later."""

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
async def test_clock_jump_keeps_tunnels_and_proxy_failure_is_still_detected(
    plane: Plane, monkeypatch: pytest.MonkeyPatch, jump: float, via_proxy: bool
) -> None:
    """Heartbeats and tunnels survive the jump; when a proxy freezes afterwards, its agent moves to the other proxy.

    Heartbeats through the frozen proxy move as well.
    """
    auth, first = await plane.auth(ttl=2.0), await plane.proxy("first", ttl=2.0)
    first_forward, second_forward = (
        await plane.forward(first.instance.grpc_address),
        await plane.forward("127.0.0.1:1"),
    )
    await second_forward.change(mode=ForwardMode.CUT)
    proxy_addresses = [addresses.join(*first_forward.listen), addresses.join(*second_forward.listen)]
    keep_alive = KeepAlive(interval=0.5, count_max=3)
    group = await plane.agents(
        auth.instance.grpc_address,
        proxy_addresses,
        announce_ttl=10.0,
        keep_alive=keep_alive,
        auth_via_proxy=via_proxy,
    )
    (agent,) = group.agents
    await eventually(lambda: set(agent.tunnels.proxy_ids) == {first.instance.flags.id})
    (tunnel,) = agent.tunnels.tunnels

    async def is_heartbeating_through(proxy: Proxy, min_revision: int = 0) -> bool:
        page = await auth.instance.backend.list_agents("", 0, 0)
        carriers = [entry.agent.via_proxy_id for entry in page.agents if entry.agent.name == "agent-1"]
        return page.revision > min_revision and carriers == [proxy.instance.flags.id if via_proxy else ""]

    await eventually(lambda: is_heartbeating_through(first))
    real_time, real_time_ns = time.time, time.time_ns
    # gRPC's core keeps the real clock, but deadlines are computed from this one; on a real host both jump.
    monkeypatch.setattr(_utils, "time", SimpleNamespace(time=real_time))
    monkeypatch.setattr(time, "time", lambda: real_time() + jump)
    monkeypatch.setattr(time, "time_ns", lambda: real_time_ns() + int(jump) * 10**9)
    revision = (await auth.instance.backend.list_agents("", 0, 0)).revision

    await eventually(lambda: is_heartbeating_through(first, revision))
    assert agent.tunnels.tunnels == (tunnel,)

    second = await plane.proxy("second", ttl=2.0)
    await second_forward.change(
        mode=ForwardMode.PASS, target_address=addresses.parse(second.instance.grpc_address)
    )
    await first_forward.change(mode=ForwardMode.HOLD)
    await eventually(lambda: set(agent.tunnels.proxy_ids) == {second.instance.flags.id})
    revision = (await auth.instance.backend.list_agents("", 0, 0)).revision
    await eventually(lambda: is_heartbeating_through(second, revision))
    await first_forward.change(mode=ForwardMode.PASS)


async def test_agent_restarted_with_earlier_clock_replaces_its_half_open_tunnel(
    plane: Plane, agents: Agents
) -> None:
    """The old tunnel has a later generation, so the agent is refused until the old tunnel has missed a ping."""
    proxy = await plane.proxy(ttl=600.0)
    first_agent = await agents.connect(proxy, "a")
    stale_tunnel = proxy.table.find_current("a")
    assert stale_tunnel is not None
    restarted_agent = FakeAgent(proxy, "a", generation=first_agent.generation - 3600 * 10**9)
    agents.fake_agents.append(restarted_agent)
    await restarted_agent.hello()
    with pytest.raises(TunnelError, match="already registered by another client"):
        await restarted_agent.join()
    stale_tunnel.last_seen_at -= proxy.table.keep_alive.interval + 2.0
    await restarted_agent.claim()
    current_tunnel = proxy.table.find_current("a")
    assert current_tunnel is not None
    assert current_tunnel is not stale_tunnel
    assert len(proxy.table) == 1
    await eventually(lambda: proxy.table.find_by_connection(stale_tunnel.key) is None)
