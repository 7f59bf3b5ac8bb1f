"""The local fleet of a soak: real auths, proxies, balancers and agents, their faults, and what users find there."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import redis

from fleet.nodes.local import faults, record
from fleet.nodes.local.forward_names import ForwardMode
from fleet.nodes.local.record import FleetRecord
from fleet.processes import children, valkey
from fleet.processes.pids import ProcessState
from tests.meta.house import ROOT
from tests.soak import users
from tests.soak.schedule import Fault, Shape

CLUSTER = "default"
#: Compressed timers: of Teleport's 10 min these are 10 s and 20 s, of the 30 to 60 min until a tunnel closes 5 to 10 s.
_TTL, _AGENT_TTL = "10s", "20s"
_NETWORKING = (
    "graceful_tunnel_closing=true",
    "tunnel_closing_wait_min=5s",
    "tunnel_closing_wait_max=10s",
)
_START_TIMEOUT = 300.0
_BACKEND_TIMEOUT = 1.0


class SoakFleet:
    """A fleet of its own in `home`."""

    def __init__(self, home: Path, shape: Shape, service_port: int) -> None:
        self.home = home
        self.shape = shape
        self._service_port = service_port
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the fleet and wait until it is ready."""
        shape = self.shape
        argv = [
            *(sys.executable, "-m", "fleet.cli", "fleet", "up", "--json", "--home", str(self.home)),
            *("--auths", str(shape.auths), "--proxies", str(shape.proxies), "--agents", str(shape.agents)),
            *("--agents-per-process", str(shape.agents_per_process)),
            *("--announce-ttl", _TTL, "--agent-announce-ttl", _AGENT_TTL),
            *("--service", f"{users.SERVICE}=127.0.0.1:{self._service_port}"),
        ]
        for pair in _NETWORKING:
            argv += ["--networking", pair]
        with (self.home / "up.log").open("wb") as log:
            self._process = children.spawn(argv, cwd=str(ROOT), log=log)
        await_text(self._process, self.home / "up.log", '"ready"', _START_TIMEOUT)

    def stop(self) -> None:
        """Stop the fleet in order."""
        if self._process is not None:
            children.stop([self._process], grace=30.0)

    @property
    def auths(self) -> str:
        """The addresses of the auths, for a console."""
        return ",".join(self._record.addresses_of("auth"))

    @property
    def logs(self) -> list[Path]:
        """The logs of all its processes."""
        folder = record.folder_of(self.home, CLUSTER)
        return [self.home / "up.log", *folder.glob("logs/*.log"), *folder.glob("backend/*.log")]

    def processes(self) -> dict[str, psutil.Process]:
        """Return the processes that run, by name."""
        assert self._process is not None
        pid_by_name = {
            member.name: member.pid for member in self._record.members if member.state is ProcessState.RUNNING
        }
        return {"fleet": psutil.Process(self._process.pid)} | {
            name: psutil.Process(pid) for name, pid in pid_by_name.items() if psutil.pid_exists(pid)
        }

    def inject(self, fault: Fault) -> None:
        """Inject a fault."""
        fleet_record, name = self._record, fault.target
        match fault.action:
            case "freeze":
                faults.freeze(fleet_record, name)
            case "kill":
                faults.kill(fleet_record, name)
            case "block-backend":
                faults.cut_backend(fleet_record, name)
            case "block-backend --hold":
                faults.cut_backend(fleet_record, name, ForwardMode.HOLD)
            case "blackhole":
                faults.blackhole(fleet_record, name)
            case "blackhole --keep-backend":
                faults.blackhole(fleet_record, name, backend=False)
            case "drain":
                self._run("drain", name, "--reason", "soak")
            case _:
                raise AssertionError(f"no fault {fault.action}")

    def undo(self, fault: Fault) -> None:
        """End a fault."""
        fleet_record, name = self._record, fault.target
        match fault.undo:
            case "resume":
                faults.resume(fleet_record, name)
            case "restart":
                faults.restart(fleet_record, name, self.home)
            case "unblock-backend":
                faults.restore_backend(fleet_record, name)
            case "unblackhole":
                faults.unblackhole(fleet_record, name)
            case "undrain":
                self._run("undrain", name)
            case _:
                raise AssertionError(f"no end of a fault {fault.undo}")

    def connect_address(self, proxy: str) -> str:
        """Return the CONNECT port of a proxy."""
        return self._record.find_member(proxy).connect

    def agent_process(self, agent: str) -> str:
        """Return the name of the process of an agent."""
        number = int(agent.rpartition("-")[2])
        return f"agents-{(number - 1) // self.shape.agents_per_process + 1}"

    def find_reachable(
        self, proxies_by_agent: Mapping[str, Sequence[str]], ids: Mapping[str, str]
    ) -> dict[str, bool]:
        """Return by name whether a user finds each agent in the list of agents and reaches it through some proxy.

        Nothing is known while the backend does not answer. `proxies_by_agent` names the proxies to try first.
        """
        resource_ids = self._list_resources()
        if resource_ids is None:
            return {}
        connects = {member.name: member.connect for member in self._record.members if member.role == "proxy"}

        def reach(agent: str) -> bool:
            first = [name for name in proxies_by_agent[agent] if name in connects]
            order = [*first, *(name for name in connects if name not in first)]
            return users.is_reachable(agent, [connects[name] for name in order])

        absent = {agent: False for agent in ids if ids[agent] not in resource_ids}
        present = [agent for agent in ids if agent not in absent]
        with ThreadPoolExecutor(8) as executor:
            return {**absent, **dict(zip(present, executor.map(reach, present), strict=True))}

    def count_keys(self) -> dict[str, int]:
        """Return the number of keys in the backend by kind; empty while it does not answer."""
        try:
            with self._backend() as client:
                return count_keys(client)
        except redis.RedisError:
            return {}

    def _list_resources(self) -> set[str] | None:
        """Return the ids of the agents with a resource in the backend; None while it does not answer."""
        try:
            with self._backend() as client:
                return {key.rpartition(b":agent:")[2].decode() for key in client.keys("*:agent:*")}
        except redis.RedisError:
            return None

    def _backend(self) -> redis.Redis:
        url = valkey.running_url(record.folder_of(self.home, CLUSTER) / "backend")
        if url is None:
            raise redis.ConnectionError("the backend does not run")
        return redis.Redis.from_url(
            url, socket_timeout=_BACKEND_TIMEOUT, socket_connect_timeout=_BACKEND_TIMEOUT, retry=None
        )

    def _run(self, *args: str) -> None:
        subprocess.run(
            [sys.executable, "-m", "fleet.cli", "fleet", *args, "--home", str(self.home)],
            cwd=ROOT, check=True, capture_output=True, timeout=180,
        )  # fmt: skip

    @property
    def _record(self) -> FleetRecord:
        return record.load(self.home, CLUSTER)


def count_keys(client: redis.Redis) -> dict[str, int]:
    """Return the number of keys of a server that expire, and of those that last."""
    keyspace = client.info("keyspace").get("db0", {"keys": 0, "expires": 0})
    return {"lasting-keys": keyspace["keys"] - keyspace["expires"], "expiring-keys": keyspace["expires"]}


def await_text(process: subprocess.Popen[bytes], log: Path, text: str, seconds: float) -> None:
    """Wait until a program writes a text to its log; fail with the log if the program ends first."""
    deadline = time.monotonic() + seconds
    while text not in log.read_text(errors="replace"):
        assert process.poll() is None, log.read_text(errors="replace")
        assert time.monotonic() < deadline, (
            f"not ready within {seconds:.0f} s: {log.read_text(errors='replace')}"
        )
        time.sleep(0.1)
