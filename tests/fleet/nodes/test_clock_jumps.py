"""The clock of a whole host jumps by an hour: nobody is stranded by that, and who fails later is left all the same."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from grpc.aio import _utils

from fleet.nodes import addresses
from fleet.nodes.forwards import Mode
from fleet.protocol.keep_alive import KeepAlive
from tests.fakes.plane import Plane
from tests.fakes.waiting import eventually


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
async def test_clock_jumps(plane: Plane, monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    """Heartbeats go on, tunnels stay, and when a proxy freezes afterwards its agent is elsewhere soon."""
    auth, first = await plane.auth(ttl=2.0), await plane.proxy("first", ttl=2.0)
    link, spare = await plane.forward(first.instance.grpc_address), await plane.forward("127.0.0.1:1")
    await spare.change(mode=Mode.CUT)
    where = [addresses.join(*link.listen), addresses.join(*spare.listen)]
    keep_alive = KeepAlive(interval=0.5, count_max=3)
    group = await plane.agents(auth.instance.grpc_address, where, announce_ttl=10.0, keep_alive=keep_alive)
    (agent,) = group.agents
    await eventually(lambda: set(agent.tunnels.proxies) == {first.instance.flags.id})
    (tunnel,) = agent.tunnels.tunnels

    wall, wall_ns = time.time, time.time_ns
    # gRPC's core has the real clock, and deadlines are written by this one: in earnest both jump.
    monkeypatch.setattr(_utils, "time", SimpleNamespace(time=wall))
    monkeypatch.setattr(time, "time", lambda: wall() + jump)
    monkeypatch.setattr(time, "time_ns", lambda: wall_ns() + int(jump) * 10**9)
    revision = (await auth.instance.backend.agents("", 0, 0)).revision

    async def heartbeats_again() -> bool:
        page = await auth.instance.backend.agents("", 0, 0)
        assert [entry.agent.name for entry in page.agents] == ["agent-1"]
        return page.revision > revision

    await eventually(heartbeats_again)
    assert agent.tunnels.tunnels == (tunnel,)

    second = await plane.proxy("second", ttl=2.0)
    await spare.change(mode=Mode.PASS, to=addresses.parse(second.instance.grpc_address))
    await link.change(mode=Mode.HOLD)
    await eventually(lambda: set(agent.tunnels.proxies) == {second.instance.flags.id})
    await link.change(mode=Mode.PASS)
