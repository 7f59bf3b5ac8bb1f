from __future__ import annotations

import time
from random import Random

from aiohttp.test_utils import TestClient, TestServer

from fleet.nodes.simulation.fleet import SimulatedFleet, SimulationShape
from fleet.nodes.simulation.worker import Simulator, format_flags, instances_of_part


def test_parts_share_the_instances_and_leave_none() -> None:
    """Auths in part 0, proxies in turn over the others; one part has all."""
    fleet = SimulatedFleet(SimulationShape(agents=10, proxies=5, auths=2), Random(1), 0.0)
    assert [[one.name for one in instances_of_part(fleet, part, 3)] for part in range(3)] == [
        ["auth-1", "auth-2"],
        ["proxy-1", "proxy-3", "proxy-5"],
        ["proxy-2", "proxy-4"],
    ]
    assert len(instances_of_part(fleet, 0, 1)) == 7


def test_arguments_leave_out_what_is_not_set() -> None:
    """A flag without a value would stop the child's start."""
    flags = format_flags(SimulationShape(agents=5))
    assert flags[:2] == ["--agents", "5"]
    assert "--reconnect-after" not in flags
    assert format_flags(SimulationShape(reconnect_after=3.0))[-4:-2] == ["--reconnect-after", "3.0"]


async def test_control_tells_addresses_and_takes_faults() -> None:
    """Faults reach instances of other parts in the model, and a wrong one is an error in words."""
    simulator = Simulator(SimulationShape(agents=20, proxies=3, auths=1), 5, time.time(), part=1, parts=2)
    await simulator.start()
    async with TestClient(TestServer(simulator.control())) as client:
        addresses = await (await client.get("/addresses")).json()
        assert sorted(addresses) == ["proxy-1", "proxy-2", "proxy-3"]
        done = await client.post("/fault", json={"fault": "kill *-1", "at": time.time()})
        assert await done.json() == {"done": ["auth-1", "proxy-1"]}
        wrong = await client.post("/fault", json={"fault": "kill proxy-9", "at": time.time()})
        assert wrong.status == 400
        assert "proxy-9" in (await wrong.json())["error"]
    await simulator.stop()
