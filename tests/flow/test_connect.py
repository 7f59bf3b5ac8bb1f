"""The whole way of a user: CONNECT on a proxy, the agent's tunnel, a service behind it; real programs at both ends."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator

import grpc
import pytest

from fleet.processes import pids
from fleet.processes.pids import ProcessState
from fleet.wire import fleet_pb2, fleet_pb2_grpc
from tests.fakes import openssh
from tests.fakes.programs import skip_without
from tests.fakes.waiting import eventually_sync
from tests.flow.local_fleet import PATIENCE, Fleet, run_fleet
from tests.flow.transfers import service, site, transfer
from tests.meta.house import ROOT

#: Two agents and a proxy.
_SHAPE = ("--auths", "1", "--proxies", "1", "--agents", "2", "--mesh")
_SHAPE += ("--auth-via", "proxy", "--keep-alive-interval", "60s")
CURL = "" if shutil.which("curl") else "CURL IS MISSING: run `make peers` as root, or apt-get install curl"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One for all tests; whoever kills part of it starts it again."""
    home = tmp_path_factory.mktemp("fleet")
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(service())
        web = stack.enter_context(site())
        sshd = None if openssh.missing_reason() else stack.enter_context(openssh.sshd(home))
        services = [f"check={target.address}", f"web={web}", "down=127.0.0.1:1"]
        if sshd is not None:
            services.append(f"ssh={sshd.address}")
        flags = [flag for flag_value in services for flag in ("--service", flag_value)]
        started_fleet = stack.enter_context(run_fleet(home, *_SHAPE, *flags))
        started_fleet.service = target
        started_fleet.sshd = sshd
        for number in (1, 2):
            started_fleet.open_connection(f"check.agent-{number}").close()
        yield started_fleet


def test_curl_through_the_tunnel(fleet: Fleet) -> None:
    """`curl --proxytunnel`, as docs/reference/connect.md has it."""
    skip_without(CURL)
    url = "http://web.agent-2/some/page"
    argv = ["curl", "-sS", "--proxytunnel", "-x", f"http://{fleet.connect}", url]
    curl = subprocess.run(argv, capture_output=True, timeout=PATIENCE, check=False)
    assert (curl.returncode, curl.stdout) == (0, b"page /some/page\n"), curl.stderr
    argv[-1] = "http://web.agent-9/"
    curl = subprocess.run([*argv, "-v"], capture_output=True, timeout=PATIENCE, check=False)
    assert b"404 agent 'agent-9' was not found" in curl.stderr


def test_ssh_through_the_tunnel(fleet: Fleet) -> None:
    """`ssh -o ProxyCommand='refloat connect ...'`: a real session, with a megabyte each way."""
    skip_without(openssh.missing_reason())
    assert fleet.sshd is not None
    command = " ".join(fleet.refloat_argv("connect", "ssh.agent-1"))
    argv = fleet.sshd.ssh(fleet.sshd.host, "cat", proxy_command=command)
    sent_bytes = os.urandom(1 << 20)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ssh = subprocess.run(
        argv, input=sent_bytes, capture_output=True, timeout=PATIENCE, check=False, env=environment
    )
    assert ssh.returncode == 0, ssh.stderr
    assert ssh.stdout == sent_bytes


def test_bytes_whole_and_half_closed(fleet: Fleet) -> None:
    """Checksums of both ends are equal, and the user's end of stream reaches the service alone."""
    eventually_sync(lambda: fleet.service.open == 0)  # of the tests before
    closed_before = fleet.service.closed_count
    with fleet.open_connection("check.agent-2") as sock:
        transfer(sock, 8 << 20)
        transfer(sock, 1)
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(1) == b""
    eventually_sync(lambda: fleet.service.closed_count == closed_before + 1)


def test_impossible_connections_are_explained(fleet: Fleet) -> None:
    """A service that is down, an unknown service, a host of the network: one message each, by client and HTTP."""
    for target, status, message in (
        ("down.agent-1", "502", "cannot connect to 127.0.0.1:1"),
        ("ftp.agent-1", "502", "exposes no service 'ftp'"),
        ("127.0.0.1", "400", "is an IP address"),
    ):
        sock, line = fleet.connect_to(target)
        sock.close()
        assert f" {status} " in line
        assert message in line
        process = fleet.run("connect", target)
        assert process.returncode == 2
        assert message in process.stderr.decode()


def _is_reset(sock: socket.socket) -> None:
    def to_its_end() -> None:
        while sock.recv(65536):
            pass

    with sock, pytest.raises(ConnectionResetError):
        to_its_end()


def test_killed_agent_ends_its_connections(fleet: Fleet) -> None:
    """Its users' connections are reset, and so are its own to the service."""
    sock = fleet.open_connection("check.agent-1")
    transfer(sock, 1000)
    assert fleet.run("fleet", "kill", "agents-1").returncode == 0
    _is_reset(sock)
    eventually_sync(lambda: fleet.service.open == 0)
    assert fleet.run("fleet", "restart", "agents-1").returncode == 0
    fleet.open_connection("check.agent-1").close()
    fleet.open_connection("check.agent-2").close()


def test_killed_proxy_ends_its_connections(fleet: Fleet) -> None:
    """The kernel resets a killed proxy's connections; the agent reconnects by itself."""
    sock = fleet.open_connection("check.agent-2")
    transfer(sock, 1000)
    assert fleet.run("fleet", "kill", "proxy-1").returncode == 0
    _is_reset(sock)
    eventually_sync(lambda: fleet.service.open == 0)
    assert fleet.run("fleet", "restart", "proxy-1").returncode == 0
    fleet.open_connection("check.agent-2").close()


def test_agents_heartbeat_through_the_proxy(fleet: Fleet) -> None:
    """`fleet up --auth-via proxy`: the auth lists every agent with the proxy that carried its heartbeat."""
    with grpc.insecure_channel(fleet.auth) as channel:
        feed = fleet_pb2_grpc.AgentFeedStub(channel)

        def has_proxy_heartbeats() -> bool:
            entries = feed.ListAgents(fleet_pb2.ListAgentsRequest(), timeout=PATIENCE).agents
            return [bool(entry.agent.via_proxy_id) for entry in entries] == [True, True]

        eventually_sync(has_proxy_heartbeats, seconds=PATIENCE)


def test_no_forwarder_has_no_forwarder_and_down_ends_everything(fleet: Fleet) -> None:
    """Instances are reached directly; the last test of the fleet ends it, and its command, with code 0."""
    rows = json.loads(fleet.run("fleet", "ps", "--json").stdout)
    assert "forwarder" not in {row["name"] for row in rows}
    blackhole = fleet.run("fleet", "blackhole", "proxy-1")
    assert blackhole.returncode == 2
    assert b"--no-forwarder" in blackhole.stderr
    assert fleet.run("fleet", "down").stdout == b"fleet default is down\n"
    assert fleet.process.wait(PATIENCE) == 0
    assert {pids.state(row["pid"]) for row in rows} == {ProcessState.DEAD}
