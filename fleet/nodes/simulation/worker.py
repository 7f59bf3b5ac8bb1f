"""One process of a simulation: serves its part of the simulated fleet's instances. docs/reference/simulated-fleet.md.

Part 0 has the auths and the other parts share the proxies; a simulation with one part has everything in it.
`fleet.nodes.simulation.program` starts it, and sends it addresses and faults over a unix socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict
from random import Random
from typing import Any

import aiohttp
import click
from aiohttp import web

from fleet.nodes.shared import lifecycle
from fleet.nodes.simulation.advice import Move, SimulatedReconnectAdvisor
from fleet.nodes.simulation.fault_script import SimulatedFaultError, parse_fault
from fleet.nodes.simulation.fleet import InstanceModel, SimulatedFleet, SimulationShape
from fleet.nodes.simulation.home_proxies import HOMES, format_homes
from fleet.nodes.simulation.instance import SimulatedInstance

#: Seconds between two steps of the model: 100,000 agents with a TTL of 10 min send about 80 heartbeats per step.
_TICK = 0.25


def instances_of_part(fleet: SimulatedFleet, part: int, part_count: int) -> list[InstanceModel]:
    """Return the instances that this part serves."""
    if part_count == 1:
        return list(fleet.instances)
    if part == 0:
        return list(fleet.auths)
    return fleet.proxies[part - 1 :: part_count - 1]


class SimulationPart:
    """The model of the fleet, and the ports of this part."""

    def __init__(
        self,
        shape: SimulationShape,
        seed: int,
        started_at: float,
        part: int,
        part_count: int,
        parent: str = "",
    ) -> None:
        """`parent` is the socket of the whole simulation, for moves of agents; empty: there is only one part."""
        self._fleet = SimulatedFleet(shape, Random(seed), started_at)
        self._directory: dict[str, tuple[str, str]] = {}
        self._parent = parent
        self._advisor = SimulatedReconnectAdvisor(self._fleet, self._send_moves, Random(seed + part))
        self._instances = {
            instance.name: SimulatedInstance(self._fleet, instance, self._directory, time.time, self._advisor)
            for instance in instances_of_part(self._fleet, part, part_count)
        }

    async def start(self) -> None:
        """Start listening. Raises OSError."""
        for name, instance in self._instances.items():
            await instance.apply_state()
            self._directory[name] = instance.addresses

    async def stop(self) -> None:
        """Close every port."""
        await asyncio.gather(*(instance.stop() for instance in self._instances.values()))

    async def run(self) -> None:
        """Advance the model, forever."""
        while True:
            self._fleet.tick(time.time())
            await asyncio.sleep(_TICK)

    def make_control_app(self) -> web.Application:
        """Return the control API, which `fleet.nodes.simulation.program` calls."""
        app = web.Application(client_max_size=1 << 24)
        app.router.add_get("/addresses", self._handle_addresses)
        app.router.add_post("/directory", self._handle_directory)
        app.router.add_post("/fault", self._handle_fault)
        app.router.add_post("/moves", self._handle_moves)
        app.router.add_get("/advice", self._handle_advice_summary)
        return app

    async def _send_moves(self, moves: Sequence[Move]) -> None:
        """Move agents in every part. If the simulation does not respond, it is stopping, and the agents stay."""
        if not self._parent:
            self._apply_moves(moves, time.time())
            return
        connector = aiohttp.UnixConnector(path=self._parent)
        with contextlib.suppress(aiohttp.ClientError):
            async with aiohttp.ClientSession("http://simulation", connector=connector) as session:
                await (await session.post("/moves", json=moves)).read()

    def _apply_moves(self, moves: Sequence[Move], at: float) -> None:
        for kind, agent, from_index, to_index in moves:
            move = self._fleet.move_to_auth if kind == "auth" else self._fleet.move_tunnel
            move(agent, from_index, to_index, at)

    async def _handle_moves(self, request: web.Request) -> web.Response:
        document = await request.json()
        self._apply_moves(document["moves"], document["at"])
        return web.json_response({})

    async def _handle_advice_summary(self, request: web.Request) -> web.Response:
        counts_by_advisory_id = {
            advisory_id: dict(counts) for advisory_id, counts in self._advisor.sent_counts.items()
        }
        return web.json_response(
            {"sent_counts": counts_by_advisory_id, "min_tunnel_count": self._fleet.min_tunnel_count}
        )

    async def _handle_addresses(self, request: web.Request) -> web.Response:
        return web.json_response({name: instance.addresses for name, instance in self._instances.items()})

    async def _handle_directory(self, request: web.Request) -> web.Response:
        for name, (grpc_address, diag_address) in (await request.json()).items():
            self._directory[name] = (grpc_address, diag_address)
        return web.json_response({})

    async def _handle_fault(self, request: web.Request) -> web.Response:
        document = await request.json()
        try:
            affected_instances = self._fleet.apply_fault(parse_fault(document["fault"]), document["at"])
        except SimulatedFaultError as error:
            return web.json_response({"error": str(error)}, status=400)
        names = [instance.name for instance in affected_instances]
        await asyncio.gather(
            *(self._instances[name].apply_state() for name in names if name in self._instances)
        )
        return web.json_response({"affected": names})


async def serve(simulation_part: SimulationPart, control: str) -> None:
    """Serve until SIGTERM or SIGINT. The control socket opens last: then all ports are open."""
    stop_event = asyncio.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signal_number, stop_event.set)
    await simulation_part.start()
    runner = web.AppRunner(simulation_part.make_control_app(), shutdown_timeout=1.0)
    await runner.setup()
    await web.UnixSite(runner, control).start()
    tasks = {asyncio.create_task(simulation_part.run()), asyncio.create_task(stop_event.wait())}
    finished_tasks, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await runner.cleanup()
    await simulation_part.stop()
    for task in finished_tasks:
        task.result()  # an error of the model ends the process with a traceback


def format_flags(shape: SimulationShape) -> list[str]:
    """Return the flags for a process of the same shape."""
    flags = []
    for name, value in asdict(shape).items():
        if name == "homes":
            flags += ["--homes", format_homes(shape.homes)] if shape.homes else []
        elif value is not None:
            flags += [f"--{name.replace('_', '-')}", str(value)]
    return flags


@click.command()
@click.option("--agents", type=int, required=True)
@click.option("--proxies", type=int, required=True)
@click.option("--auths", type=int, required=True)
@click.option("--connections", type=int, required=True)
@click.option("--agent-ttl", type=float, required=True)
@click.option("--instance-ttl", type=float, required=True)
@click.option("--churn", type=float, required=True)
@click.option("--reconnect-after", type=float, default=None)
@click.option("--reconnect-share", type=float, required=True)
@click.option("--homes", type=HOMES, default=())
@click.option("--seed", type=int, required=True)
@click.option(
    "--started-at", type=float, required=True, help="Seconds since the epoch, the same in every part."
)
@click.option("--part", type=int, required=True)
@click.option("--parts", type=int, required=True)
@click.option("--control", required=True, help="Path of the control socket of this process.")
@click.option("--parent", required=True, help="Path of the control socket of the whole simulation.")
def main(
    *, seed: int, started_at: float, part: int, parts: int, control: str, parent: str, **shape: Any
) -> None:
    """Serve one part of a simulated fleet."""
    lifecycle.raise_file_limit()
    simulation_shape = SimulationShape(**shape)
    simulation_part = SimulationPart(simulation_shape, seed, started_at, part, parts, parent)
    lifecycle.run_on_loop(serve(simulation_part, control))


if __name__ == "__main__":
    main()
