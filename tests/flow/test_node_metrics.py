"""Every metric of the nodes counts something that happens: read from the pages of real processes, after it did."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from fleet.cli.local.members import console_tls_files_of
from fleet.nodes.local import record as fleet_record
from fleet.nodes.shared import addresses
from fleet.processes import children
from fleet.protocol.policies.env_policies import HTTP_CLOSE_VARIABLE
from fleet.protocol.recovery.service_config import RFD_VARIABLE
from fleet.transport import channels
from fleet.transport.admin import NetworkingConfigClient, UnreachableError
from fleet.wire import fleet_pb2, fleet_pb2_grpc
from tests.fakes import commands
from tests.fakes.auths import FakeAuth
from tests.fakes.waiting import eventually_sync
from tests.flow.producers import Pages, produced
from tests.flow.transfers import service, transfer
from tests.meta.house import ROOT

pytestmark = pytest.mark.slow

#: Seconds for anything, on a machine that does other things too.
PATIENCE = 120.0
SHAPE = (
    *("--auths", "2", "--proxies", "2", "--agents", "6", "--no-forwarder"),
    *("--announce-ttl", "4s", "--agent-announce-ttl", "6s"),
)

#: Agents leave an auth that is not healthy.
POLICY = {
    "grpc_client_lb_policy": {
        "loadBalancingConfig": [{"teleport_pick_healthy": {"mode": "reconnect"}}],
        "healthCheckConfig": {"serviceName": ""},
    }
}


@dataclass
class Fleet:
    """A fleet that runs, and nodes beside it."""

    home: Path
    ready: dict[str, Any]
    process: subprocess.Popen[bytes]
    beside: list[subprocess.Popen[bytes]] = field(default_factory=list)
    diags: list[str] = field(default_factory=list)

    def do(self, *args: str) -> str:
        """What `refloat fleet …` prints."""
        process = commands.refloat("fleet", *args, REFLOAT_HOME=str(self.home))
        assert process.code == 0, process.stderr
        return process.stdout

    def add(self, *argv: str, **environment: str) -> dict[str, Any]:
        """Run one more node and return its ready line."""
        process = subprocess.Popen(
            [sys.executable, "-m", "fleet.nodes", *argv, "--diag-listen", "127.0.0.1:0"],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.beside.append(process)
        assert process.stdout is not None
        ready: dict[str, Any] = json.loads(process.stdout.readline())
        self.diags.append(ready["diag"])
        return ready

    def pages(self) -> Iterator[str]:
        """The metrics of every process that answers."""
        rows = json.loads(self.do("ps", "--json"))
        for diag in [*(row["diag"] for row in rows if row["diag"]), *self.diags]:
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"http://{diag}/metrics", timeout=5) as answer,
            ):
                yield answer.read().decode()

    def end(self) -> None:
        """End all of it."""
        children.stop([*self.beside, self.process], grace=20.0)
        for process in (*self.beside, self.process):
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture(scope="module")
def target_service() -> Iterator[str]:
    """The address of a service."""
    with service() as service_target:
        yield service_target.address


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, target_service: str) -> Iterator[Fleet]:
    """A fleet, and an agent that reaches auths through proxies and cuts its users when a tunnel has drained."""
    home = tmp_path_factory.mktemp("home")
    with (home / "up.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "fleet.cli", "fleet", "up", "--json", *SHAPE],
            cwd=ROOT,
            env={**os.environ, "REFLOAT_HOME": str(home), RFD_VARIABLE: json.dumps(POLICY)},
            stdout=subprocess.PIPE,
            stderr=log,
        )
    assert process.stdout is not None
    new_fleet = Fleet(home, json.loads(process.stdout.readline()), process)
    try:
        new_fleet.add(
            *(
                "agent",
                "--name-prefix",
                "own",
                "--proxy",
                new_fleet.ready["proxy_balancer"],
                "--auth-via",
                "proxy",
            ),
            *("--service", f"check={target_service}", "--drain", "1s", "--announce-ttl", "8s"),
        )
        yield new_fleet
    finally:
        new_fleet.end()


def _connect(address: str, target: str) -> tuple[socket.socket, bool]:
    """A connection to a proxy's port for users, and whether it was let through."""
    host, _, port = address.rpartition(":")
    sock = socket.create_connection((host, int(port)), timeout=PATIENCE)
    sock.sendall(f"CONNECT {target}:1 HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        part = sock.recv(1)
        assert part, head
        head += part
    return sock, b" 200 " in head


def _open(address: str, target: str) -> socket.socket:
    """A connection to a service; its agent may still be on its way."""
    sockets: list[socket.socket] = []

    def is_there() -> bool:
        sock, let_through = _connect(address, target)
        if let_through:
            sockets.append(sock)
        else:
            sock.close()
        return let_through

    eventually_sync(is_there, seconds=PATIENCE)
    return sockets[0]


def test_metrics_of_a_healthy_fleet(fleet: Fleet) -> None:
    """What counts by itself, and what operators do: read and write the config, and move agents."""
    fleet.do("config", "get")
    fleet.do("config", "set", "keep_alive_count_max=4")
    fleet.do("reconnect", "proxy-1", "proxy-2")
    fleet.do("reconnect", "auth-2")
    produced(
        Pages(fleet.pages),
        seconds=PATIENCE,
        metrics=(
            *("refloat_auth_advisories", "refloat_auth_advisory_replies", "refloat_agent_auth_moves"),
            *("refloat_proxy_heartbeats", "teleport_build_info"),
            *("backend_write_requests", "backend_write_seconds"),
            *("heartbeat_connections_received", "teleport_connected_resources", "refloat_auth_agents"),
            *("refloat_networking_config_writes", "refloat_networking_config_pushes"),
            *("teleport_reverse_tunnels_connected", "refloat_tunnels", "refloat_tunnels_closed"),
            *("refloat_discovery_messages", "refloat_discovery_bytes", "refloat_proxy_auth_connections"),
            *("refloat_advisories", "refloat_advisory_replies", "refloat_agent_advisories"),
            *("refloat_agent_dials", "refloat_agent_tunnels", "refloat_agent_tunnels_closed"),
            *("refloat_agent_auths", "refloat_agent_discovery_messages", "refloat_agent_discovery_bytes"),
            *("refloat_balancer_connections", "refloat_balancer_target_ready"),
            *("refloat_balancer_open_connections", "refloat_gateway_calls", "refloat_gateway_call_seconds"),
            *("refloat_gateway_routes_file_valid", "refloat_gateway_routes_loaded_timestamp_seconds"),
            "refloat_gateway_destination_health",
        ),
    )


def test_metrics_of_users_of_an_agent(fleet: Fleet) -> None:
    """Through the proxy that has its tunnel, and through the other; some are refused, and some are cut."""
    through: list[socket.socket] = []

    def is_peered() -> bool:
        # An agent that is on its way may be on each proxy just when the user comes there.
        through.extend(_open(address, "check.own-1") for address in fleet.ready["connect"])
        return "refloat_connect_peered_connections" in set(Pages(fleet.pages)("metrics"))

    eventually_sync(is_peered, seconds=PATIENCE)
    for sock in through:
        transfer(sock, 1000)
    refused_user, let_through = _connect(fleet.ready["connect"][0], "check.nobody")
    refused_user.close()
    assert not let_through
    # The tunnel that they are on is let go, and they stay for longer than it drains.
    fleet.do("reconnect", "proxy-1", "proxy-2")
    produced(
        Pages(fleet.pages),
        seconds=PATIENCE,
        metrics=(
            *("refloat_connect_connections", "refloat_connect_peered_connections", "refloat_connect_bytes"),
            *(
                "refloat_connect_refused_requests",
                "refloat_connect_aborted_connections",
                "refloat_agent_sessions_terminated",
            ),
        ),
    )
    for sock in through:
        sock.close()
    with _open(fleet.ready["connect"][0], "check.own-1"):
        produced(Pages(fleet.pages), seconds=PATIENCE, metrics=("refloat_connect_open_connections",))


async def test_metrics_of_invalid_messages(fleet: Fleet) -> None:
    """Auths, proxies and agents count invalid messages, and other peers are not affected."""
    async with grpc.aio.insecure_channel(fleet.ready["auths"][0]) as channel:
        stub = fleet_pb2_grpc.HeartbeatServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.Heartbeat(fleet_pb2.HeartbeatRequest(), timeout=PATIENCE)
    hello = fleet_pb2.AgentFrame(hello=fleet_pb2.AgentHello(agent_id="stranger", name="stranger"))
    async with grpc.aio.insecure_channel(fleet.ready["proxies"][0]) as channel:
        call = fleet_pb2_grpc.TunnelControlStub(channel).Control(timeout=PATIENCE)
        await call.write(hello)
        assert (await call.read()).HasField("hello")
        await call.write(hello)
        await asyncio.to_thread(
            produced,
            Pages(fleet.pages),
            seconds=PATIENCE,
            metrics=("refloat_heartbeats_refused", "refloat_refused_inputs"),
        )
        call.cancel()
    auth = FakeAuth("garbled")
    auth.config_is_garbage = True
    await auth.start()
    try:
        host, port = auth.address
        argv = ("agent", "--name-prefix", "puzzled", "--auth", f"{host}:{port}")
        await asyncio.to_thread(fleet.add, *argv, "--proxy", fleet.ready["proxy_balancer"])
        await asyncio.to_thread(
            produced, Pages(fleet.pages), seconds=PATIENCE, metrics=("refloat_agent_refused_inputs",)
        )
    finally:
        await auth.stop()


def test_metrics_of_an_unhealthy_fleet(fleet: Fleet) -> None:
    """Auths and proxies end, the backend freezes, and a balancer has no target. The last test of the fleet."""
    auth = fleet.add(
        *("auth", "--name", "auth-3", "--backend", fleet.ready["backend"], "--announce-ttl", "2s"),
        *("--backend-password-file", _password_file(fleet)),
        **{HTTP_CLOSE_VARIABLE: "true"},
    )
    _get(f"http://{auth['http']}/v2/proxies")
    dead_address = "127.0.0.1:1"
    alone = fleet.add("balancer", "--name", "alone", "--target", f"gone={dead_address},{dead_address}")
    pages_of_dead = Pages(fleet.pages)
    # An auth whose calls failed is degraded after its restart, and gets no calls while the other one is healthy.
    names = itertools.cycle(["auth-1", "auth-2"])

    def is_retried() -> bool:
        """Kill an auth while calls are on their way to it: those are retried on the other one."""
        name = next(names)
        with _calls_through_gateway(fleet):
            fleet.do("kill", name)
        has_retries = "refloat_gateway_retries" in set(pages_of_dead("metrics"))
        fleet.do("restart", name)
        return has_retries

    eventually_sync(is_retried, seconds=PATIENCE)
    host, _, port = alone["listen"].rpartition(":")
    # The reset may come while the connection is being made, or after.
    with (
        contextlib.suppress(ConnectionResetError),
        socket.create_connection((host, int(port)), timeout=PATIENCE) as sock,
    ):
        sock.recv(1)
    fleet.do("freeze", "backend")

    def is_unwell() -> bool:
        return _get(f"http://{auth['diag']}/readyz") != 200

    eventually_sync(is_unwell, seconds=PATIENCE)
    _get(f"http://{auth['http']}/v2/proxies")
    produced(
        Pages(fleet.pages),
        seconds=PATIENCE,
        metrics=(
            *(
                "refloat_agent_auth_failovers",
                "refloat_gateway_retries",
                "refloat_balancer_refused_connections",
            ),
            *("backend_write_requests_failed", "process_state"),
            *("refloat_auth_http_requests", "refloat_auth_http_connections_closed"),
        ),
    )
    fleet.do("resume", "backend")


@contextlib.contextmanager
def _calls_through_gateway(fleet: Fleet) -> Iterator[None]:
    """Read the networking config through the gateway again and again, several calls at once; start with a response."""
    record = fleet_record.load(fleet.home, fleet.ready["cluster"])
    has_response, stop = threading.Event(), threading.Event()

    async def call_until_stopped() -> None:
        target = channels.target_of([addresses.parse(record.gateway)])
        async with channels.open_channel(target, console_tls_files_of(record).for_role("gateway")) as channel:
            await asyncio.gather(*(read_until_stopped(NetworkingConfigClient(channel)) for _ in range(8)))

    async def read_until_stopped(client: NetworkingConfigClient) -> None:
        while not stop.is_set():
            with contextlib.suppress(UnreachableError):
                await client.get()
                has_response.set()

    with ThreadPoolExecutor(1) as pool:
        calls = pool.submit(asyncio.run, call_until_stopped())
        try:
            assert has_response.wait(PATIENCE), "no call got a response"
            yield
        finally:
            stop.set()
            calls.result()


def _get(url: str) -> int:
    """The status of an answer; 0 when there is none."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


def _password_file(fleet: Fleet) -> str:
    """Where the password of the fleet's backend is, as its nodes are told."""
    folder = fleet_record.folder_of(fleet.home, fleet.ready["cluster"])
    return str(folder / "backend" / "password")
