"""Invented agents follow advice as real ones do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import grpc.aio
import pytest

from fleet.nodes.simulation.fault_script import parse_fault
from fleet.nodes.simulation.fleet import SimulatedFleet, SimulationShape
from fleet.nodes.simulation.instance import SimulatedInstance
from fleet.transport.admin import RejectedError, TunnelAdmin
from tests.fakes.local_advice import local_advice

_OWN = [("grpc.use_local_subchannel_pool", 1)]


class _Bench:
    """A fleet on a clock, and the door of its first proxy."""

    def __init__(self, **shape: int) -> None:
        self.now = 1000.0
        self.fleet = SimulatedFleet(
            SimulationShape(**{"agents": 30, "proxies": 3, "connections": 1, **shape}), Random(3), self.now
        )
        self.advice = local_advice(self.fleet, lambda: self.now)
        self.proxy = self.fleet.proxies[0]

    def agents(self, proxy: int = 0) -> list[str]:
        return [one for one in self.fleet.ids if self.fleet.proxies[proxy].tunnels.get(one) is not None]

    def pass_time(self, seconds: float) -> None:
        for _ in range(int(seconds * 4)):
            self.now += 0.25
            self.fleet.tick(self.now)


async def test_agents_move_make_before_break() -> None:
    """The new tunnel is there before the old one goes; the same advice again moves nobody."""
    bench = _Bench()
    mine = bench.agents()
    said = await bench.advice.advise_agents(bench.proxy, "x", mine[:4], 0, look_only=False)
    assert (said.advised, said.absent, said.staying) == (4, 0, 0)
    bench.pass_time(0.75)
    assert len(bench.agents()) == 10
    assert len(bench.agents(1)) + len(bench.agents(2)) == 24
    bench.pass_time(1)
    assert len(bench.agents()) == 6
    assert bench.fleet.fewest == 1
    again = await bench.advice.advise_agents(bench.proxy, "x", mine, 0, look_only=False)
    assert (again.advised, again.absent) == (6, 4)
    assert max(bench.advice.sent_counts["x"].values()) == 1


async def test_who_stays_says_so_and_the_deaf_do_not() -> None:
    """With nowhere to go an agent answers; a deaf one just stays. Looking asks nobody."""
    bench = _Bench(proxies=2)
    bench.fleet.apply(parse_fault("deaf proxy-1 15"), bench.now)
    await bench.advice.advise_agents(bench.proxy, "x", (), 1, look_only=False)
    bench.pass_time(3)
    assert len(bench.agents()) == 15
    seen = await bench.advice.advise_agents(bench.proxy, "x", (), 0, look_only=True)
    assert (seen.advised, seen.already, seen.left, seen.staying) == (0, 1, 14, 0)
    bench.fleet.apply(parse_fault("heal proxy-1"), bench.now)
    bench.fleet.apply(parse_fault("unhealthy proxy-2"), bench.now)
    await bench.advice.advise_agents(bench.proxy, "y", (), 0, look_only=False)
    seen = await bench.advice.advise_agents(bench.proxy, "y", (), 0, look_only=True)
    assert (seen.already, seen.staying) == (15, 15)


async def test_old_tunnel_waits_for_the_new_one() -> None:
    """The proxy an agent goes to dies meanwhile: nobody is left without."""
    bench = _Bench(proxies=2)
    await bench.advice.advise_agents(bench.proxy, "x", bench.agents()[:3], 0, look_only=False)
    bench.fleet.apply(parse_fault("kill proxy-2"), bench.now)
    bench.pass_time(5)
    assert len(bench.agents()) == 15


@pytest.fixture
async def admin() -> AsyncIterator[TunnelAdmin]:
    bench = _Bench()
    served = SimulatedInstance(bench.fleet, bench.proxy, {}, lambda: bench.now, bench.advice)
    await served.apply_state()
    async with grpc.aio.insecure_channel(served.addresses[0], options=_OWN) as channel:
        yield TunnelAdmin(channel)
    await served.stop()


async def test_over_the_wire(admin: TunnelAdmin) -> None:
    """As a real proxy's."""
    said = await admin.advise_reconnect("x", "to try", agents=["nobody"])
    assert (said.advised, said.absent_ids) == (0, ("nobody",))
    assert (await admin.advise_reconnect("x", "to try", limit=2)).left == 8
    with pytest.raises(RejectedError, match="advisory_id"):
        await admin.advise_reconnect("", "to try")


async def test_agents_connect_to_another_auth_and_keep_their_tunnels() -> None:
    """Those of the auth to leave; where there is no other one that is well they stay, and say so."""
    bench = _Bench(auths=2)
    leave = bench.fleet.auths[0]
    mine = [one for one in bench.agents() if bench.fleet.auth[bench.fleet.ids.index(one)] == 0]
    assert 0 < len(mine) < len(bench.agents())
    seen = await bench.advice.advise_agents(bench.proxy, "x", (), 0, look_only=False, leave_auth=leave.id)
    assert seen.advised == len(bench.agents()) == 10
    assert {int(bench.fleet.auth[bench.fleet.ids.index(one)]) for one in bench.agents()} == {1}
    bench.pass_time(2)
    assert len(bench.agents()) == 10
    bench.fleet.apply(parse_fault("unhealthy auth-1"), bench.now)
    await bench.advice.advise_agents(bench.proxy, "y", (), 0, look_only=False, leave_auth="")
    seen = await bench.advice.advise_agents(bench.proxy, "y", (), 0, look_only=True, leave_auth="")
    assert (seen.already, seen.staying) == (10, 10)
    assert (await bench.advice.advise_agents(bench.proxy, "y", (), 0, look_only=True)).already == 0
