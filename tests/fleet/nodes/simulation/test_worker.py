from __future__ import annotations

import time
from random import Random

from aiohttp.test_utils import TestClient, TestServer

from fleet.nodes.simulation.fleet import SimulatedFleet, SimulationShape
from fleet.nodes.simulation.worker import SimulationPart, format_flags, instances_of_part


def test_parts_contain_each_instance_once() -> None:
    """Part 0 has the auths, and the other parts share the proxies in turn; a single part has all."""
    fleet = SimulatedFleet(SimulationShape(agents=10, proxies=5, auths=2), Random(1), 0.0)
    assert [[instance.name for instance in instances_of_part(fleet, part, 3)] for part in range(3)] == [
        ["auth-1", "auth-2"],
        ["proxy-1", "proxy-3", "proxy-5"],
        ["proxy-2", "proxy-4"],
    ]
    assert len(instances_of_part(fleet, 0, 1)) == 7


def test_flags_omit_unset_values() -> None:
    """A flag without a value would stop the start of the child."""
    flags = format_flags(SimulationShape(agents=5))
    assert flags[:2] == ["--agents", "5"]
    assert "--reconnect-after" not in flags
    assert format_flags(SimulationShape(reconnect_after=3.0))[-4:-2] == ["--reconnect-after", "3.0"]


async def test_control_api_lists_addresses_and_accepts_faults() -> None:
    """Faults apply to instances of other parts in the model; an invalid fault is explained."""
    simulation_part = SimulationPart(
        SimulationShape(agents=20, proxies=3, auths=1), 5, time.time(), part=1, part_count=2
    )
    await simulation_part.start()
    async with TestClient(TestServer(simulation_part.make_control_app())) as client:
        addresses = await (await client.get("/addresses")).json()
        assert sorted(addresses) == ["proxy-1", "proxy-2", "proxy-3"]
        response = await client.post("/fault", json={"fault": "kill *-1", "at": time.time()})
        assert await response.json() == {"affected": ["auth-1", "proxy-1"]}
        error_response = await client.post("/fault", json={"fault": "kill proxy-9", "at": time.time()})
        assert error_response.status == 400
        assert "proxy-9" in (await error_response.json())["error"]
    await simulation_part.stop()
