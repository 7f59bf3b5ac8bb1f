"""Every metric of the nodes counts something that happens: read from the pages of real processes, after it did."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from fleet.processes import children
from fleet.protocol.policies.env_policies import HTTP_CLOSE_VARIABLE
from fleet.protocol.recovery.service_config import RFD_VARIABLE
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
    *("--auths", "2", "--proxies", "2", "--agents", "6", "--no-faults"),
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

    def do(self, *words: str) -> str:
        """What `refloat fleet …` prints."""
        done = commands.refloat("fleet", *words, REFLOAT_HOME=str(self.home))
        assert done.code == 0, done.stderr
        return done.stdout

    def add(self, *argv: str, **environment: str) -> dict[str, Any]:
        """Run one more node; what it says when it is ready."""
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
def checked() -> Iterator[str]:
    """The address of a service."""
    with service() as running:
        yield running.address


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, checked: str) -> Iterator[Fleet]:
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
    made = Fleet(home, json.loads(process.stdout.readline()), process)
    try:
        made.add(
            *(
                "agent",
                "--name-prefix",
                "own",
                "--proxy",
                made.ready["proxy_balancer"],
                "--auth-via",
                "proxy",
            ),
            *("--service", f"check={checked}", "--drain", "1s", "--announce-ttl", "8s"),
        )
        yield made
    finally:
        made.end()


def _ask(address: str, target: str) -> tuple[socket.socket, bool]:
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
    found: list[socket.socket] = []

    def is_there() -> bool:
        sock, let_through = _ask(address, target)
        if let_through:
            found.append(sock)
        else:
            sock.close()
        return let_through

    eventually_sync(is_there, seconds=PATIENCE)
    return found[0]


def test_fleet_that_is_well(fleet: Fleet) -> None:
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
            *("refloat_networking_config_writes", "refloat_networking_config_pushed"),
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


def test_users_of_an_agent(fleet: Fleet) -> None:
    """Through the proxy that has its tunnel, and through the other; some are refused, and some are cut."""
    through = [_open(address, "check.own-1") for address in fleet.ready["connect"]]
    for sock in through:
        transfer(sock, 1000)
    refused, let_through = _ask(fleet.ready["connect"][0], "check.nobody")
    refused.close()
    assert not let_through
    # The tunnel that they are on is let go, and they stay for longer than it drains.
    fleet.do("reconnect", "proxy-1", "proxy-2")
    produced(
        Pages(fleet.pages),
        seconds=PATIENCE,
        metrics=(
            *("refloat_connect_opened", "refloat_connect_peered", "refloat_connect_bytes"),
            *("refloat_connect_refused", "refloat_connect_aborted", "refloat_agent_sessions_cut"),
        ),
    )
    for sock in through:
        sock.close()
    with _open(fleet.ready["connect"][0], "check.own-1"):
        produced(Pages(fleet.pages), seconds=PATIENCE, metrics=("refloat_connect_open",))


async def test_messages_that_cannot_be_used(fleet: Fleet) -> None:
    """Auths, proxies and agents count what others send them, and nobody else suffers."""
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
            metrics=("refloat_heartbeats_refused", "refloat_refused"),
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
            produced, Pages(fleet.pages), seconds=PATIENCE, metrics=("refloat_agent_refused",)
        )
    finally:
        await auth.stop()


def test_fleet_that_is_not(fleet: Fleet) -> None:
    """Auths and proxies die, the backend freezes, and nobody is behind a balancer. The last test of the fleet."""
    auth = fleet.add(
        *("auth", "--name", "auth-3", "--backend", fleet.ready["backend"], "--announce-ttl", "2s"),
        *("--backend-password-file", _password_file(fleet)),
        **{HTTP_CLOSE_VARIABLE: "true"},
    )
    _get(f"http://{auth['http']}/v2/proxies")
    gone = "127.0.0.1:1"
    alone = fleet.add("balancer", "--name", "alone", "--target", f"gone={gone},{gone}")
    retried = Pages(fleet.pages)

    def is_retried() -> bool:
        """Kill an auth, and call before anybody knows of it."""
        fleet.do("kill", "auth-1")
        for _ in range(4):
            fleet.do("config", "get")
        found = "refloat_gateway_retries" in set(retried("metrics"))
        fleet.do("restart", "auth-1")
        return found

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
            *("refloat_agent_auth_failovers", "refloat_gateway_retries", "refloat_balancer_refused"),
            *("backend_write_requests_failed", "process_state"),
            *("refloat_auth_http_requests", "refloat_auth_http_connections_closed"),
        ),
    )
    fleet.do("resume", "backend")


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
    rows = json.loads(fleet.do("ps", "--json"))
    pid = next(row["pid"] for row in rows if row["name"] == "auth-1")
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return words[words.index("--backend-password-file") + 1]
