"""The balancer before real TCP targets whose `/readyz` changes: as the program it is, and in this process."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from click.testing import CliRunner

from fleet.nodes.balancer.rotation import parse_flag
from fleet.nodes.balancer.server import Balancer, command, diagnostics
from fleet.nodes.shared import addresses, http_site
from fleet.processes.supervisor import Supervisor, is_json_ready
from fleet.protocol.destination.health import LITERAL_SETTINGS, RECOMMENDED_SETTINGS, Health, HealthSettings
from fleet.protocol.destination.instance_status import DEGRADED_HEADER, DRAINING_HEADER
from tests.fakes.targets import FakeInstance, serving
from tests.fakes.waiting import DEADLINE, eventually

ARGV = [sys.executable, "-m", "fleet.nodes", "balancer"]


@dataclass
class Scene:
    """Two instances behind a balancer."""

    one: FakeInstance
    two: FakeInstance
    listen: tuple[str, int]
    http: aiohttp.ClientSession

    async def targets(self) -> dict[str, dict[str, Any]]:
        async with self.http.get("/targets") as response:
            return {target["name"]: target for target in (await response.json())["targets"]}

    async def until(self, met: Callable[[dict[str, dict[str, Any]]], bool]) -> None:
        async def seen() -> bool:
            return met(await self.targets())

        await eventually(seen)

    async def connect(self) -> tuple[str, asyncio.StreamWriter]:
        """The name of the target that answered."""
        reader, writer = await asyncio.open_connection(*self.listen)
        async with asyncio.timeout(DEADLINE):
            return (await reader.readline()).decode().strip(), writer

    async def shares(self, connections: int) -> Counter[str]:
        seen: Counter[str] = Counter()
        for _ in range(connections):
            name, writer = await self.connect()
            seen[name] += 1
            writer.close()
        return seen


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """A balancer in this process; probes come often, and may take as long as on a machine that is busy."""
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(serving("one"))
        two = await stack.enter_async_context(serving("two"))
        targets = [parse_flag(instance.target) for instance in (one, two)]
        balancer = Balancer("lb", targets, interval=0.2, probe_within=1.0)
        listen = await balancer.start(("127.0.0.1", 0))
        stack.push_async_callback(balancer.stop)
        diag = await stack.enter_async_context(http_site.serve(diagnostics(balancer), ("127.0.0.1", 0)))
        http = await stack.enter_async_context(aiohttp.ClientSession(f"http://{diag}"))
        made = Scene(one, two, addresses.parse(listen), http)
        await made.until(lambda targets: all(target["ready"] for target in targets.values()))
        yield made


@pytest.fixture
async def program(tmp_path: Path) -> AsyncIterator[Scene]:
    """A balancer as a program."""
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(serving("one"))
        two = await stack.enter_async_context(serving("two"))
        supervisor = stack.enter_context(Supervisor(tmp_path))
        flags = ["--target", one.target, "--target", two.target, "--interval", "1"]
        child = supervisor.start("balancer", [*ARGV, *flags], ready=is_json_ready)
        await asyncio.to_thread(supervisor.await_ready, timeout=60)
        http = await stack.enter_async_context(aiohttp.ClientSession(f"http://{child.ready_message['diag']}"))
        made = Scene(one, two, addresses.parse(child.ready_message["listen"]), http)
        await made.until(lambda targets: all(target["ready"] for target in targets.values()))
        yield made


async def test_connections_both_ready_are_shared(program: Scene) -> None:
    """Round robin."""
    assert await program.shares(10) == {"one": 5, "two": 5}


async def test_target_not_ready_gets_no_new_connection_and_keeps_its_old(scene: Scene) -> None:
    """Out of rotation is not cut off: that is how agents are stranded."""
    names = {}
    for _ in range(2):
        name, writer = await scene.connect()
        names[name] = writer
    scene.one.readyz = 503
    await scene.until(lambda targets: not targets["one"]["ready"])
    assert await scene.shares(6) == {"two": 6}
    assert (await scene.targets())["one"]["connections"] == 1
    assert not names["one"].is_closing()
    scene.one.readyz = 200
    # Preferred again after a few probes, not after the first.
    await scene.until(lambda targets: targets["one"]["ready"] and targets["one"]["health"] == "healthy")
    assert (await scene.shares(6))["one"] == 3
    for writer in names.values():
        writer.close()


async def test_target_silent_is_taken_out(scene: Scene) -> None:
    """A `/readyz` that accepts and never answers is not 200."""
    scene.two.answering.clear()
    await scene.until(lambda targets: not targets["two"]["ready"])
    assert (await scene.targets())["two"]["error"] == "no response in time"
    assert await scene.shares(4) == {"one": 4}


async def test_target_that_drains_gets_no_new_connection(scene: Scene) -> None:
    """Not even when the other one is sick; what it has stays."""
    name, writer = await scene.connect()
    drained, other = (scene.one, scene.two) if name == "one" else (scene.two, scene.one)
    drained.says = {DRAINING_HEADER: "kernel update"}
    await scene.until(lambda targets: targets[name]["draining"] == "kernel update")
    assert await scene.shares(4) == {other.name: 4}
    other.readyz = 503
    await scene.until(lambda targets: not targets[other.name]["ready"])
    assert await scene.shares(2) == {other.name: 2}
    assert (await scene.targets())[name]["connections"] == 1
    assert not writer.is_closing()
    writer.close()


async def test_target_degraded_gets_less(scene: Scene) -> None:
    """It says so itself, and says why."""
    scene.one.says = {DEGRADED_HEADER: "busy"}
    await scene.until(lambda targets: targets["one"]["health"] == "degraded")
    one = (await scene.targets())["one"]
    assert (one["reason"], one["active"], one["declared"]) == (
        "a probe said degraded",
        "degraded",
        "degraded",
    )
    assert await scene.shares(10) == {"one": 3, "two": 7}


async def test_none_ready_all_are_tried_and_the_balancer_says_so(scene: Scene) -> None:
    """No target ready: connections still go somewhere, and our own `/readyz` is 503."""
    scene.one.readyz = scene.two.readyz = 400
    await scene.until(lambda targets: not any(target["ready"] for target in targets.values()))
    assert await scene.shares(4) == {"one": 2, "two": 2}
    async with scene.http.get("/readyz") as response:
        assert response.status == 503
    async with scene.http.get("/metrics") as response:
        assert 'refloat_balancer_target_ready{target="one"} 0.0' in await response.text()
    async with scene.http.get("/healthz") as response:
        assert response.status == 200


@pytest.mark.parametrize(
    ("settings", "health"), [(RECOMMENDED_SETTINGS, Health.UNHEALTHY), (LITERAL_SETTINGS, Health.HEALTHY)]
)
async def test_dials_that_fail_say_nothing_when_read_literally(
    settings: HealthSettings, health: Health
) -> None:
    """The diagram has no arrow for them, and literally there is nothing beside it."""
    async with serving("one") as one:
        nowhere = parse_flag(f"one=127.0.0.1:1,{one.target.rpartition(',')[2]}")
        balancer = Balancer("lb", [nowhere], interval=5.0, destination_health=settings)
        door = addresses.parse(await balancer.start(("127.0.0.1", 0)))
        try:
            await eventually(lambda: balancer.describe()[0]["health"] is Health.HEALTHY)
            for _ in range(10):  # five make it Degraded, five more Unhealthy
                reader, writer = await asyncio.open_connection(*door)
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
                writer.close()
            await eventually(lambda: balancer.describe()[0]["health"] is health)
        finally:
            await balancer.stop()


def test_flags_wrong_are_told_and_code_2() -> None:
    """A target that is none."""
    refused = CliRunner().invoke(command, ["--target", "x"])
    assert refused.exit_code == 2
    assert "'x' is not NAME=HOST:PORT,DIAG_HOST:PORT" in refused.output
