"""A whole simulation: its processes, its script, and the control socket for faults.

docs/reference/simulated-fleet.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from fleet.nodes.shared.lifecycle import raise_file_limit
from fleet.nodes.simulation.fault_script import ScriptStep, SimulatedFault, SimulatedFaultError, parse_fault
from fleet.nodes.simulation.fleet import SimulationShape
from fleet.nodes.simulation.worker import format_flags
from fleet.processes import children, folders

#: Seconds. A process with 100,000 agents takes about 5 s to start where measured, longer on a busy machine.
_START_TIMEOUT = 120.0
_POLL_INTERVAL = 0.05


class SimulationError(Exception):
    """The simulation cannot start or be reached, or one of its processes ended. The message says which and why."""


@dataclass(frozen=True, slots=True)
class RunningSimulation:
    """Address and pid of a running simulation."""

    pid: int
    #: Path of the control socket.
    control: str
    #: gRPC addresses of the auths, for REFLOAT_AUTHS.
    auths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AdviceSummary:
    """Statistics of the advice that simulated agents received."""

    #: Number of agents by advisory id.
    agent_counts: dict[str, int]
    #: Most times that one agent received the same advice.
    max_sent_count: int
    #: Fewest tunnels of an agent after it followed advice.
    min_tunnel_count: int


class Simulation:
    """Starts and stops the processes of a simulation, and keeps them in the same state."""

    def __init__(self, shape: SimulationShape, *, seed: int | None = None, processes: int = 3) -> None:
        self.shape = shape
        self._seed = secrets.randbits(32) if seed is None else seed
        self._part_count = max(1, min(processes, shape.proxies + 1))
        self._children: list[subprocess.Popen[bytes]] = []
        self._sessions: list[aiohttp.ClientSession] = []
        self._folder = ""
        #: One fault at a time: every process must apply faults in the same order.
        self._order_lock = asyncio.Lock()
        self.directory: dict[str, tuple[str, str]] = {}

    @property
    def auths(self) -> tuple[str, ...]:
        """gRPC addresses of the auths."""
        return tuple(self.directory[f"auth-{index + 1}"][0] for index in range(self.shape.auths))

    @property
    def control(self) -> str:
        """Path of the control socket."""
        return str(Path(self._folder) / "control.sock")

    @property
    def pids(self) -> list[int]:
        """Pids of the processes, in order."""
        return [child.pid for child in self._children]

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[Simulation]:
        """Run the simulation while the context is open. Raises SimulationError if it cannot start."""
        raise_file_limit()
        # A private directory: the path of a unix socket must be short, and nobody else may send faults.
        with tempfile.TemporaryDirectory(prefix="refloat-simulate-") as self._folder:
            runner = web.AppRunner(self._make_application(), shutdown_timeout=1.0)
            try:
                await self._start()
                await runner.setup()
                await web.UnixSite(runner, self.control).start()
                yield self
            finally:
                await runner.cleanup()
                for session in self._sessions:
                    await session.close()
                await asyncio.to_thread(children.stop, self._children)

    async def _start(self) -> None:
        started_at = time.time()
        for part in range(self._part_count):
            path = str(Path(self._folder) / f"part-{part}.sock")
            argv = [
                *(sys.executable, "-m", "fleet.nodes.simulation.worker", *format_flags(self.shape)),
                *("--seed", str(self._seed), "--started-at", repr(started_at)),
                *("--part", str(part), "--parts", str(self._part_count), "--control", path),
                *("--parent", self.control),
            ]
            self._children.append(children.spawn(argv))
            connector = aiohttp.UnixConnector(path=path)
            self._sessions.append(aiohttp.ClientSession("http://simulator", connector=connector))
        for part in range(self._part_count):
            self.directory.update(await self._wait_for_addresses(part))
        await self._post_to_parts("/directory", self.directory)

    async def _wait_for_addresses(self, part: int) -> dict[str, tuple[str, str]]:
        """Wait until a process has opened its ports, and return their addresses."""
        deadline = time.monotonic() + _START_TIMEOUT
        while time.monotonic() < deadline:
            if self._children[part].poll() is not None:
                raise SimulationError(
                    f"process {part} of the simulation ended during its start; see its message above"
                )
            try:
                async with self._sessions[part].get("/addresses") as response:
                    return {name: (pair[0], pair[1]) for name, pair in (await response.json()).items()}
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(_POLL_INTERVAL)
        raise SimulationError(f"process {part} of the simulation did not start within {_START_TIMEOUT:g} s")

    async def _post_to_parts(self, path: str, message: object) -> dict[str, Any]:
        """Send a message to every process, and return the first response.

        Raises SimulatedFaultError, SimulationError.
        """
        try:
            responses = await asyncio.gather(
                *(session.post(path, json=message) for session in self._sessions),
            )
            documents = [await response.json() for response in responses]
        except aiohttp.ClientError as error:
            raise SimulationError(f"a process of the simulation does not respond: {error}") from error
        first_document: dict[str, Any] = documents[0]
        if "error" in first_document:
            raise SimulatedFaultError(first_document["error"])
        return first_document

    async def inject_fault(self, fault: SimulatedFault) -> list[str]:
        """Inject a fault in all processes, and return the names of the affected instances.

        Raises SimulatedFaultError.
        """
        async with self._order_lock:
            response = await self._post_to_parts("/fault", {"fault": str(fault), "at": time.time()})
        names: list[str] = response["affected"]
        return names

    async def summarize_advice(self) -> AdviceSummary:
        """Return statistics of the advice so far."""
        counts_by_advisory_id: dict[str, Counter[str]] = {}
        min_tunnel_counts = []
        for session in self._sessions:
            async with session.get("/advice") as response:
                document = await response.json()
            min_tunnel_counts.append(int(document["min_tunnel_count"]))
            for advisory_id, counts in document["sent_counts"].items():
                counts_by_advisory_id.setdefault(advisory_id, Counter()).update(counts)
        return AdviceSummary(
            {advisory_id: len(counts) for advisory_id, counts in counts_by_advisory_id.items()},
            max((max(counts.values()) for counts in counts_by_advisory_id.values() if counts), default=0),
            min(min_tunnel_counts),
        )

    async def play(self, script: Sequence[ScriptStep], write_line: Callable[[str], None]) -> None:
        """Inject the faults of a script at their times, counted from now."""
        started_at = time.monotonic()
        for step in script:
            await asyncio.sleep(max(0.0, started_at + step.after_seconds - time.monotonic()))
            try:
                write_line(
                    f"t={step.after_seconds:g} {step.fault}: {', '.join(await self.inject_fault(step.fault))}"
                )
            except SimulatedFaultError as error:
                write_line(f"t={step.after_seconds:g} {step.fault}: {error}")

    async def watch_processes(self) -> None:
        """Wait until a process has ended, then raise SimulationError. Never returns."""
        while True:
            for part, child in enumerate(self._children):
                if child.poll() is not None:
                    raise SimulationError(
                        f"process {part} of the simulation ended with exit code {child.returncode}"
                    )
            await asyncio.sleep(0.5)

    def _make_application(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/fault", self._handle_fault)
        app.router.add_post("/moves", self._handle_moves)
        app.router.add_get("/advice", self._handle_advice_summary)
        app.router.add_get("/directory", self._handle_directory)
        return app

    async def _handle_moves(self, request: web.Request) -> web.Response:
        """Receive moves of agents from one process and send them to all, in one order."""
        moves = await request.json()
        async with self._order_lock:
            await self._post_to_parts("/moves", {"moves": moves, "at": time.time()})
        return web.json_response({})

    async def _handle_advice_summary(self, request: web.Request) -> web.Response:
        return web.json_response(asdict(await self.summarize_advice()))

    async def _handle_fault(self, request: web.Request) -> web.Response:
        try:
            return web.json_response(
                {"affected": await self.inject_fault(parse_fault((await request.json())["fault"]))}
            )
        except SimulatedFaultError as error:
            return web.json_response({"error": str(error)}, status=400)

    async def _handle_directory(self, request: web.Request) -> web.Response:
        return web.json_response(self.directory)


async def run(
    simulation: Simulation,
    script: Sequence[ScriptStep],
    on_ready: Callable[[Simulation], None],
    write_line: Callable[[str], None],
) -> None:
    """Run until SIGINT or SIGTERM. Raises SimulationError if it cannot start or one of its processes ends."""
    task = asyncio.create_task(_serve(simulation, script, on_ready, write_line))
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signal_number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def _serve(
    simulation: Simulation,
    script: Sequence[ScriptStep],
    on_ready: Callable[[Simulation], None],
    write_line: Callable[[str], None],
) -> None:
    async with simulation.run():
        on_ready(simulation)
        tasks = [
            asyncio.create_task(simulation.play(script, write_line)),
            asyncio.create_task(simulation.watch_processes()),
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()


def write_record(home: Path, simulation: Simulation) -> Path:
    """Write the file by which `find_running` finds the simulation."""
    folders.create_private_folder(home)
    path = home / "simulate.json"
    path.write_text(
        json.dumps({"pid": os.getpid(), "control": simulation.control, "auths": simulation.auths}), "utf-8"
    )
    return path


def find_running(home: Path) -> RunningSimulation | None:
    """Return the simulation that is running with this directory; None if there is none."""
    try:
        document = json.loads((home / "simulate.json").read_text("utf-8"))
        os.kill(int(document["pid"]), 0)
        return RunningSimulation(
            pid=int(document["pid"]), control=document["control"], auths=tuple(document["auths"])
        )
    except (OSError, ValueError, KeyError):
        return None


async def inject_fault(simulation: RunningSimulation, fault: SimulatedFault) -> list[str]:
    """Inject a fault in a running simulation; return affected instances.

    Raises SimulatedFaultError, SimulationError.
    """
    document = await _request(simulation, "POST", "/fault", {"fault": str(fault)})
    if "error" in document:
        raise SimulatedFaultError(document["error"])
    names: list[str] = document["affected"]
    return names


async def read_advice_summary(simulation: RunningSimulation) -> AdviceSummary:
    """Return statistics of the advice in a running simulation. Raises SimulationError."""
    return AdviceSummary(**await _request(simulation, "GET", "/advice", None))


async def _request(simulation: RunningSimulation, method: str, path: str, message: object) -> dict[str, Any]:
    connector = aiohttp.UnixConnector(path=simulation.control)
    try:
        async with (
            aiohttp.ClientSession("http://simulation", connector=connector) as session,
            session.request(method, path, json=message) as response,
        ):
            document: dict[str, Any] = await response.json()
    except aiohttp.ClientError as error:
        raise SimulationError(f"the simulation (pid {simulation.pid}) does not respond: {error}") from error
    return document
