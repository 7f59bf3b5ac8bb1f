"""A small fleet of real processes, started, broken, mended and ended by the command people type.

            agents-1 (6 agents)
           /                   \\
    auth-balancer         proxy-balancer
      /        \\             /       \\
   auth-1    auth-2      proxy-1   proxy-2      every arrow below the balancers is a forward
      \\________|____ backend ____|______/

The auths ask their agents to leave a sick auth (RFD 226, "Auth Reconnects"). Commands are run in the test's
own process, but for a few: the fleet that they read, break and mend is real all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from fleet.nodes.local import faults
from fleet.nodes.local import record as fleet_record
from fleet.processes import children, pids
from fleet.processes.pids import ProcessState
from fleet.protocol.recovery import auth_path
from fleet.protocol.recovery.service_config import RFD_VARIABLE
from fleet.protocol.tunnel.messages import WireVersion
from fleet.transport.tunnel.client import TunnelClient
from tests.fakes import commands
from tests.fakes.commands import CommandOutcome
from tests.fakes.plane import channel_to
from tests.fakes.waiting import eventually_sync

#: Seconds for whatever a command does, on a machine that does other things too.
PATIENCE = 180.0
#: How long who should answer is given, and who should not.
ANSWERS, IS_SILENT = 20.0, 1.0
SHAPE = [
    *("--auths", "2", "--proxies", "2", "--agents", "6"),
    *("--announce-ttl", "4s", "--agent-announce-ttl", "6s"),
    "--tunnel-v01",
]
#: Agents leave an auth that is not healthy.
POLICY = {
    "grpc_client_lb_policy": {
        "loadBalancingConfig": [{"teleport_pick_healthy": {"mode": "reconnect"}}],
        "healthCheckConfig": {"serviceName": ""},
    }
}
#: Agents besides those of the fleet, in each of two processes.
EXTRA = 3


def refloat(home: Path, *args: str) -> CommandOutcome:
    return commands.refloat("fleet", *args, REFLOAT_HOME=str(home))


def program(home: Path, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The same as a process of its own, as people run it."""
    return subprocess.run(
        [sys.executable, "-m", "fleet.cli", "fleet", *args],
        env={**os.environ, "REFLOAT_HOME": str(home), **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def http(url: str, timeout: float) -> tuple[int | None, Any]:
    """Code and JSON; None when nothing answers in `timeout` seconds."""
    try:
        with urllib.request.urlopen(url, timeout=timeout) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read() or b"null")
    except OSError:
        return None, None


def metrics(diag: str) -> str:
    """`/metrics` as text; empty when nothing answers."""
    try:
        with urllib.request.urlopen(f"http://{diag}/metrics", timeout=ANSWERS) as response:
            return str(response.read().decode())
    except OSError:
        return ""


@dataclass
class Fleet:
    """A fleet that runs, and how the world sees it."""

    home: Path
    process: subprocess.Popen[str]
    ready: dict[str, Any]

    def do(self, *args: str) -> str:
        outcome = refloat(self.home, *args)
        assert outcome.code == 0, outcome.stderr
        return outcome.stdout

    def ps(self) -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in json.loads(self.do("ps", "--json"))}

    def diag(self, name: str, path: str, timeout: float = ANSWERS) -> tuple[int | None, Any]:
        return http(f"http://{fleet_record.load(self.home, 'default').find_member(name).diag}{path}", timeout)

    def metrics(self, name: str) -> str:
        """`/metrics` as text; empty when nothing answers."""
        return metrics(fleet_record.load(self.home, "default").find_member(name).diag)

    def readyz(self, name: str) -> int | None:
        return self.diag(name, "/readyz")[0]

    def silent(self, name: str) -> bool:
        return self.diag(name, "/readyz", IS_SILENT)[0] is None

    def in_rotation(self, role: str) -> set[str]:
        answer = self.diag(f"{role}-balancer", "/targets")[1]
        return {target["name"] for target in answer["targets"] if target["ready"]}

    def connections(self, role: str) -> int:
        answer = self.diag(f"{role}-balancer", "/targets")[1]
        return sum(target["connections"] for target in answer["targets"])

    def whole(self) -> bool:
        return self.in_rotation("auth") == {"auth-1", "auth-2"} and self.in_rotation("proxy") == {
            "proxy-1",
            "proxy-2",
        }


def start(home: Path, *flags: str, **environment: str) -> Fleet:
    process = subprocess.Popen(
        [sys.executable, "-m", "fleet.cli", "fleet", "up", "--json", *flags],
        env={**os.environ, "REFLOAT_HOME": str(home), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"the fleet did not start: {process.wait()}"
    return Fleet(home, process, json.loads(line))


def end(fleet: Fleet) -> int:
    fleet.process.terminate()
    code = fleet.process.wait(PATIENCE)
    assert fleet.process.stdout is not None
    fleet.process.stdout.close()
    return code


@pytest.fixture(scope="module")
def started_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    new_fleet = start(tmp_path_factory.mktemp("home"), *SHAPE, **{RFD_VARIABLE: json.dumps(POLICY)})
    yield new_fleet
    end(new_fleet)


@pytest.fixture
def fleet(started_fleet: Fleet) -> Fleet:
    """The fleet with nothing wrong in it."""
    eventually_sync(started_fleet.whole)
    return started_fleet


@dataclass(frozen=True)
class Group:
    """Agents of a process of its own, which reach auths in one of the two ways."""

    diag: str

    def at(self, fleet: Fleet, auth: str) -> bool:
        """Whether all of them are connected to this auth, and find it healthy."""
        place = f'refloat_agent_auths{{auth="{fleet_record.load(fleet.home, "default").find_member(auth).id}"'
        counts = [line for line in metrics(self.diag).splitlines() if line.startswith(place)]
        return sum(float(line.rpartition(" ")[2]) for line in counts) == EXTRA


@pytest.fixture(scope="module")
def groups(started_fleet: Fleet) -> Iterator[list[Group]]:
    """Agents that reach auths directly, and agents that reach them through proxies."""
    record = fleet_record.load(started_fleet.home, "default")
    common = [
        "--auth",
        record.auth_balancer,
        "--proxy",
        record.proxy_balancer,
        "--diag-listen",
        "127.0.0.1:0",
    ]
    # Agents find a frozen auth dead after three of the intervals.
    common += ["--count", str(EXTRA), "--announce-ttl", "8s", "--auth-keep-alive-interval", "2s"]
    agent_groups = [
        subprocess.Popen(
            [sys.executable, "-m", "fleet.nodes", "agent", *common, "--first", first, "--auth-via", way],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for first, way in (("101", "direct"), ("201", "proxy"))
    ]
    try:
        yield [
            Group(json.loads(process.stdout.readline())["diag"]) for process in agent_groups if process.stdout
        ]
    finally:
        children.stop(agent_groups)
        for process in agent_groups:
            assert process.stdout is not None
            process.stdout.close()


def test_up_everything_runs_and_every_agent_is_connected(fleet: Fleet) -> None:
    """The ready line has the addresses a console needs; ps lists every process; agents came through the balancers."""
    assert len(fleet.ready["auths"]) == 2
    rows = fleet.ps()
    assert set(rows) == {
        *("backend", "forwarder", "auth-1", "auth-2", "proxy-1", "proxy-2"),
        *("auth-balancer", "proxy-balancer", "gateway", "agents-1"),
    }
    assert {row["state"] for row in rows.values()} == {"running"}
    assert [rows["auth-1"]["grpc"], rows["auth-2"]["grpc"]] == fleet.ready["auths"]
    eventually_sync(lambda: fleet.readyz("auth-1") == fleet.readyz("proxy-2") == 200)
    eventually_sync(lambda: fleet.connections("auth") == 6)
    eventually_sync(lambda: fleet.connections("proxy") >= 6)


def test_listener_of_version_0_1_of_each_proxy(fleet: Fleet) -> None:
    """`ps` and the ready line name it, and a client of that version asks there for the id of the proxy."""
    rows = [row for row in fleet.ps().values() if row["role"] == "proxy"]
    assert sorted(row["tunnel_v01"] for row in rows) == sorted(fleet.ready["tunnel_v01"])
    assert [asyncio.run(id_at(row["tunnel_v01"])) for row in rows] == [row["id"] for row in rows]


async def id_at(address: str) -> str:
    """Return the id of the proxy at a listener of version 0.1."""
    channel = channel_to(address)
    client = TunnelClient(channel, WireVersion.V0_1)
    register = asyncio.create_task(client.run())
    await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE):
        await client.wait_until_up()
        stream = await client.open_session(auth_path.PROXY_ID_TARGET)
        answer = await stream.read()
        await stream.close()
        await client.close()
        await asyncio.wait((register,))
    register.exception()
    await channel.close()
    return bytes(answer).decode()


def test_config_is_read_through_the_gateway(fleet: Fleet) -> None:
    """It counts the call, and passes it to an auth that is well."""
    call_counter = 'refloat_gateway_calls_total{rule="operators/0",status="OK"}'

    def calls() -> float:
        lines = [line for line in fleet.metrics("gateway").splitlines() if line.startswith(call_counter)]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    before = calls()
    assert "agent_connection_count" in fleet.do("config", "get")
    assert calls() == before + 1


def test_freeze_the_proxy_is_silent_and_out_of_rotation_until_thawed(fleet: Fleet) -> None:
    """SIGSTOP: connections are accepted without a response; the tunnels stay."""
    before = fleet.connections("proxy")
    fleet.do("freeze", "proxy-1")
    assert fleet.ps()["proxy-1"]["state"] == "frozen"
    assert fleet.silent("proxy-1")
    eventually_sync(lambda: fleet.in_rotation("proxy") == {"proxy-2"})
    assert fleet.connections("proxy") >= before
    fleet.do("resume", "proxy-1")
    eventually_sync(lambda: fleet.in_rotation("proxy") == {"proxy-1", "proxy-2"})
    eventually_sync(lambda: fleet.readyz("proxy-1") == 200)


def test_drain_new_connections_go_elsewhere_and_old_ones_stay(fleet: Fleet) -> None:
    """An instance drains, as a balancer sees it; /readyz is 200 all the while."""
    before = fleet.connections("proxy")
    fleet.do("drain", "proxy-1", "--reason", "kernel update")
    eventually_sync(lambda: fleet.in_rotation("proxy") == {"proxy-2"})
    eventually_sync(lambda: fleet.readyz("proxy-1") == 200)
    assert fleet.connections("proxy") >= before
    fleet.do("undrain", "proxy-1")
    eventually_sync(lambda: fleet.in_rotation("proxy") == {"proxy-1", "proxy-2"})


@pytest.mark.parametrize("hold", [[], ["--hold"]], ids=["cut", "hold"])
def test_cut_backend_the_auth_turns_unready_its_agents_leave_and_it_recovers(
    fleet: Fleet, groups: list[Group], hold: list[str]
) -> None:
    """No heartbeat reaches the backend: /readyz is 503, new connections go elsewhere, and so do agents, for good."""
    fleet.do("block-backend", *hold, "auth-1")
    assert fleet.ps()["auth-1"]["faults"] == [f"backend {'hold' if hold else 'cut'}"]
    eventually_sync(lambda: fleet.readyz("auth-1") == 503)
    eventually_sync(lambda: fleet.in_rotation("auth") == {"auth-2"})
    eventually_sync(lambda: all(group.at(fleet, "auth-2") for group in groups))
    fleet.do("unblock-backend", "auth-1")
    eventually_sync(fleet.whole)
    assert all(group.at(fleet, "auth-2") for group in groups)


def test_freeze_an_auth_its_agents_leave(fleet: Fleet, groups: list[Group]) -> None:
    """The auth is silent: pings detect it, and agents reconnect, directly and through proxies."""
    eventually_sync(lambda: all(group.at(fleet, "auth-2") for group in groups))
    fleet.do("freeze", "auth-2")
    eventually_sync(lambda: all(group.at(fleet, "auth-1") for group in groups))
    fleet.do("resume", "auth-2")
    eventually_sync(fleet.whole)


def test_blackhole_nothing_passes_until_undone(fleet: Fleet) -> None:
    """The process runs, but is unreachable and out of rotation."""
    fleet.do("blackhole", "proxy-2")
    assert fleet.ps()["proxy-2"]["state"] == "running"
    assert fleet.silent("proxy-2")
    eventually_sync(lambda: fleet.in_rotation("proxy") == {"proxy-1"})
    fleet.do("unblackhole", "proxy-2")
    eventually_sync(lambda: fleet.readyz("proxy-2") == 200)


def test_kill_is_seen_and_restart_brings_the_same_instance_back(fleet: Fleet) -> None:
    """A killed process stays down until it is restarted, with the same name, id and addresses."""
    before = fleet.ps()["proxy-1"]
    fleet.do("kill", "proxy-1")
    eventually_sync(lambda: fleet.ps()["proxy-1"]["state"] == "dead")
    again = refloat(fleet.home, "freeze", "proxy-1")
    assert again.code == 2
    assert "refloat fleet restart proxy-1" in again.stderr
    fleet.do("restart", "proxy-1")
    after = fleet.ps()["proxy-1"]
    assert after["pid"] != before["pid"]
    assert [after[key] for key in ("state", "grpc", "diag", "id")] == [
        "running",
        *(before[k] for k in ("grpc", "diag", "id")),
    ]
    eventually_sync(lambda: fleet.readyz("proxy-1") == 200)


def test_process_that_cannot_start_starts_when_it_can(fleet: Fleet) -> None:
    """An auth that restarts while it cannot reach its backend ends, and is started again until it runs."""
    log = Path(fleet_record.load(fleet.home, "default").find_member("auth-1").log)
    fleet.do("kill", "auth-1")
    fleet.do("block-backend", "auth-1")
    request = faults.restart_request_path(fleet_record.folder_of(fleet.home, "default"), "auth-1")
    request.parent.mkdir(exist_ok=True)
    request.touch()
    eventually_sync(lambda: log.read_text().count("check that --backend is right") > 1)
    assert fleet.ps()["auth-1"]["state"] == "dead"
    fleet.do("unblock-backend", "auth-1")
    eventually_sync(lambda: fleet.ps()["auth-1"]["state"] == "running")
    eventually_sync(fleet.whole)


def test_up_twice_on_one_home_is_refused(fleet: Fleet) -> None:
    """The second command explains what to do, and the first fleet keeps running."""
    second = program(fleet.home, "up", *SHAPE)
    assert second.returncode == 2
    assert "refloat fleet down" in second.stderr
    assert fleet.process.poll() is None


def test_unknown_name_changes_no_process(fleet: Fleet) -> None:
    """All names are checked before any action."""
    wrong = program(fleet.home, "freeze", "proxy-1", "proxy-9")
    assert wrong.returncode == 2
    assert "'proxy-9' was not found in fleet default; its processes: " in wrong.stderr
    assert fleet.ps()["proxy-1"]["state"] == "running"


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_parent_killed_no_process_is_left(fleet: Fleet) -> None:
    """SIGKILL of the fleet's own process takes all others with it, a frozen one too."""
    fleet.do("freeze", "proxy-1")
    born = {row["pid"]: pids.start_ticks(row["pid"]) for row in fleet.ps().values()}
    fleet.process.kill()
    fleet.process.wait(PATIENCE)
    eventually_sync(lambda: {pids.state(pid, at) for pid, at in born.items()} == {ProcessState.DEAD})
    listing = refloat(fleet.home, "ps")
    assert listing.code == 2
    assert "refloat fleet up" in listing.stderr


def test_failed_start_prints_one_line_with_the_log_and_leaves_nothing(tmp_path: Path) -> None:
    """An instance that cannot start stops the fleet: its name, the reason and the log; exit code 2, and no process."""
    shape = ("--auths", "1", "--proxies", "1", "--agents", "1")
    process = program(tmp_path, "up", *shape, **{RFD_VARIABLE: "{"})
    assert process.returncode == 2
    assert len(process.stderr.strip().splitlines()) == 1
    assert process.stderr.startswith("refloat: auth-1 ended with exit code 2 before it was ready: ")
    assert str(tmp_path / "fleet" / "default" / "logs" / "auth-1.log") in process.stderr
    assert refloat(tmp_path, "ps").code == 2
    assert _processes_of(tmp_path) == []


def test_wrong_flags_are_reported_before_anything_starts(tmp_path: Path) -> None:
    """No folder, no process."""
    for wrong, message in (
        (("--announce-ttl", "soon"), "--announce-ttl"),
        (("--mesh", "--connections", "2"), "exclude each other"),
        (("--auths", "0"), "0 is not in the range"),
    ):
        outcome = refloat(tmp_path, "up", *wrong)
        assert outcome.code == 2
        assert message in outcome.stderr
    assert not (tmp_path / "fleet").exists()


def test_interrupted_while_starting_ends_everything(tmp_path: Path) -> None:
    """Ctrl-C before the fleet is up leaves no process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fleet.cli", "fleet", "up", *SHAPE],
        env={**os.environ, "REFLOAT_HOME": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    log = tmp_path / "fleet" / "default" / "logs" / "forwarder.log"
    eventually_sync(lambda: log.exists() and len(_processes_of(tmp_path)) > 1)
    process.send_signal(signal.SIGINT)
    stderr = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 2
    assert stderr == "refloat: interrupted before all processes were ready\n"
    assert _processes_of(tmp_path) == []


def _processes_of(home: Path) -> list[int]:
    """Return the ids of the processes with this state folder in their environment, or with a log in it.

    The command line of a fork takes the place of its first environment.
    """
    found_ids = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get("REFLOAT_HOME") == str(home) or _has_log_in(home, process.pid):
                found_ids.append(process.pid)
    return found_ids


def _has_log_in(home: Path, pid: int) -> bool:
    return Path(f"/proc/{pid}/fd/1").readlink().is_relative_to(home)
