"""The balancer with real TCP targets whose `/readyz` changes, as a program and in this process."""

from __future__ import annotations

import asyncio
import contextlib
import socket
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
from fleet.nodes.balancer.server import LoadBalancer, command, diag_app
from fleet.nodes.shared import addresses, http_site
from fleet.processes.supervisor import Supervisor, has_ready_line
from fleet.protocol.destination.health import LITERAL_SETTINGS, RECOMMENDED_SETTINGS, Health, HealthSettings
from fleet.protocol.destination.instance_status import DEGRADED_HEADER, DRAINING_HEADER
from tests.fakes.targets import FakeInstance, run_fake_instance
from tests.fakes.waiting import DEADLINE, eventually

ARGV = [sys.executable, "-m", "fleet.nodes", "balancer"]


@dataclass
class BalancedInstances:
    """Two fake instances behind a balancer."""

    first: FakeInstance
    second: FakeInstance
    listen: tuple[str, int]
    http: aiohttp.ClientSession

    async def fetch_targets(self) -> dict[str, dict[str, Any]]:
        async with self.http.get("/targets") as response:
            return {target["name"]: target for target in (await response.json())["targets"]}

    async def wait_until(self, condition: Callable[[dict[str, dict[str, Any]]], bool]) -> None:
        async def is_met() -> bool:
            return condition(await self.fetch_targets())

        await eventually(is_met)

    async def connect(self) -> tuple[str, asyncio.StreamWriter]:
        """Return the name of the target that responded, and the connection's writer."""
        reader, writer = await asyncio.open_connection(*self.listen)
        async with asyncio.timeout(DEADLINE):
            return (await reader.readline()).decode().strip(), writer

    async def count_shares(self, connections: int) -> Counter[str]:
        counts: Counter[str] = Counter()
        for _ in range(connections):
            name, writer = await self.connect()
            counts[name] += 1
            writer.close()
        return counts


@pytest.fixture
async def balanced() -> AsyncIterator[BalancedInstances]:
    """Yield a balancer in this process that probes often and waits long enough for a busy machine."""
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(run_fake_instance("one"))
        second = await stack.enter_async_context(run_fake_instance("two"))
        targets = [parse_flag(instance.target) for instance in (first, second)]
        balancer = LoadBalancer("lb", targets, interval=0.2, probe_timeout=1.0)
        listen = await balancer.start(("127.0.0.1", 0))
        stack.push_async_callback(balancer.stop)
        diag = await stack.enter_async_context(http_site.serve(diag_app(balancer), ("127.0.0.1", 0)))
        http = await stack.enter_async_context(aiohttp.ClientSession(f"http://{diag}"))
        balanced_instances = BalancedInstances(first, second, addresses.parse(listen), http)
        await balanced_instances.wait_until(
            lambda targets: all(target["ready"] for target in targets.values())
        )
        yield balanced_instances


@pytest.fixture
async def balancer_program(tmp_path: Path) -> AsyncIterator[BalancedInstances]:
    """Yield a balancer that runs as a program."""
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(run_fake_instance("one"))
        second = await stack.enter_async_context(run_fake_instance("two"))
        supervisor = stack.enter_context(Supervisor(tmp_path))
        flags = ["--target", first.target, "--target", second.target, "--interval", "1"]
        child = supervisor.start("balancer", [*ARGV, *flags], readiness_probe=has_ready_line)
        await asyncio.to_thread(supervisor.await_ready, timeout=60)
        http = await stack.enter_async_context(aiohttp.ClientSession(f"http://{child.ready_message['diag']}"))
        balanced_instances = BalancedInstances(
            first, second, addresses.parse(child.ready_message["listen"]), http
        )
        await balanced_instances.wait_until(
            lambda targets: all(target["ready"] for target in targets.values())
        )
        yield balanced_instances


async def test_ready_targets_share_connections_equally(balancer_program: BalancedInstances) -> None:
    """The balancer uses round robin."""
    assert await balancer_program.count_shares(10) == {"one": 5, "two": 5}


async def test_target_that_is_not_ready_keeps_its_connections(balanced: BalancedInstances) -> None:
    """The target gets no new connections; if old ones were closed, agents would be stranded."""
    names = {}
    for _ in range(2):
        name, writer = await balanced.connect()
        names[name] = writer
    balanced.first.readyz = 503
    await balanced.wait_until(lambda targets: not targets["one"]["ready"])
    assert await balanced.count_shares(6) == {"two": 6}
    assert (await balanced.fetch_targets())["one"]["connections"] == 1
    assert not names["one"].is_closing()
    balanced.first.readyz = 200
    # Preferred again after a few probes, not after the first.
    await balanced.wait_until(
        lambda targets: targets["one"]["ready"] and targets["one"]["health"] == "healthy"
    )
    assert (await balanced.count_shares(6))["one"] == 3
    for writer in names.values():
        writer.close()


async def test_target_that_never_responds_leaves_rotation(balanced: BalancedInstances) -> None:
    """A `/readyz` that accepts a connection and never responds is not ready."""
    balanced.second.answer_event.clear()
    await balanced.wait_until(lambda targets: not targets["two"]["ready"])
    assert (await balanced.fetch_targets())["two"]["error"] == "no response in time"
    assert await balanced.count_shares(4) == {"one": 4}


async def test_error_of_a_target_that_is_down_is_the_reason_alone() -> None:
    """The client's own text names TLS options, although the probe is plain HTTP."""
    with socket.socket() as bound_socket:
        bound_socket.bind(("127.0.0.1", 0))
        address = addresses.join(*bound_socket.getsockname())
        balancer = LoadBalancer("lb", [parse_flag(f"one={address},{address}")], interval=0.2)
        await balancer.start(("127.0.0.1", 0))
        try:
            await eventually(lambda: balancer.describe()[0]["error"] == "connection refused")
        finally:
            await balancer.stop()


async def test_draining_target_keeps_connections_and_gets_no_new_ones(balanced: BalancedInstances) -> None:
    """Connections stay even when the other target is unhealthy."""
    name, writer = await balanced.connect()
    draining_instance, other_instance = (
        (balanced.first, balanced.second) if name == "one" else (balanced.second, balanced.first)
    )
    draining_instance.announcements = {DRAINING_HEADER: "kernel update"}
    await balanced.wait_until(lambda targets: targets[name]["draining"] == "kernel update")
    assert await balanced.count_shares(4) == {other_instance.name: 4}
    other_instance.readyz = 503
    await balanced.wait_until(lambda targets: not targets[other_instance.name]["ready"])
    assert await balanced.count_shares(2) == {other_instance.name: 2}
    assert (await balanced.fetch_targets())[name]["connections"] == 1
    assert not writer.is_closing()
    writer.close()


async def test_degraded_target_gets_fewer_connections(balanced: BalancedInstances) -> None:
    """The target declares itself degraded, and the balancer reports the reason."""
    balanced.first.announcements = {DEGRADED_HEADER: "busy"}
    await balanced.wait_until(lambda targets: targets["one"]["health"] == "degraded")
    first_target = (await balanced.fetch_targets())["one"]
    assert (first_target["reason"], first_target["active"], first_target["declared"]) == (
        "a probe reported degraded",
        "degraded",
        "degraded",
    )
    assert await balanced.count_shares(10) == {"one": 3, "two": 7}


async def test_balancer_is_not_ready_if_no_target_is(balanced: BalancedInstances) -> None:
    """Connections still reach a target, and the balancer's own `/readyz` returns 503."""
    balanced.first.readyz = balanced.second.readyz = 400
    await balanced.wait_until(lambda targets: not any(target["ready"] for target in targets.values()))
    assert await balanced.count_shares(4) == {"one": 2, "two": 2}
    async with balanced.http.get("/readyz") as response:
        assert response.status == 503
    async with balanced.http.get("/metrics") as response:
        assert 'refloat_balancer_target_ready{target="one"} 0.0' in await response.text()
    async with balanced.http.get("/healthz") as response:
        assert response.status == 200


@pytest.mark.parametrize(
    ("settings", "health"), [(RECOMMENDED_SETTINGS, Health.UNHEALTHY), (LITERAL_SETTINGS, Health.HEALTHY)]
)
async def test_failed_dials_do_not_count_with_literal_settings(
    settings: HealthSettings, health: Health
) -> None:
    """The RFD's diagram has no transition for failed dials; the recommended settings add one."""
    async with run_fake_instance("one") as instance:
        unreachable_target = parse_flag(f"one=127.0.0.1:1,{instance.target.rpartition(',')[2]}")
        balancer = LoadBalancer("lb", [unreachable_target], interval=5.0, destination_health=settings)
        address = addresses.parse(await balancer.start(("127.0.0.1", 0)))
        try:
            await eventually(lambda: balancer.describe()[0]["health"] is Health.HEALTHY)
            for _ in range(10):  # five make it Degraded, five more Unhealthy
                reader, writer = await asyncio.open_connection(*address)
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
                writer.close()
            await eventually(lambda: balancer.describe()[0]["health"] is health)
        finally:
            await balancer.stop()


def test_invalid_target_flag_ends_with_code_2() -> None:
    """The error names the expected format."""
    invocation = CliRunner().invoke(command, ["--target", "x"])
    assert invocation.exit_code == 2
    assert "'x' is not NAME=HOST:PORT,DIAG_HOST:PORT" in invocation.output
