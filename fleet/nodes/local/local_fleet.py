"""`fleet up`: run a local fleet of real processes until it is stopped.

Start order:

1. The backend, a Valkey of this fleet; then the forwarder, whose ports all other processes use.
2. Auths, balancers and the gateway together. When all are ready, the forwards of auths get their destinations: proxies
   choose an auth at random for their heartbeats, and can choose any of them.
3. Proxies. Their forwards have no destination yet, so early connections wait and are not refused.
4. When every proxy is ready, their forwards get their destinations: to the balancer, all become ready together.
5. The agents.

With `--no-forwarder`: auths, proxies, balancers, then agents. If this process dies, children get SIGKILL:
a frozen process does not handle SIGTERM.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Protocol

import fleet
from fleet.nodes.local import faults, forked_nodes, gateway, keys, networking
from fleet.nodes.local import plan as fleet_plan
from fleet.nodes.local import record as fleet_record
from fleet.nodes.local.forward_names import PORTS
from fleet.nodes.local.plan import FleetPlan
from fleet.nodes.local.record import FleetError, FleetRecord, Member
from fleet.processes import folders, pids, valkey
from fleet.processes.child_restarter import describe_exit, pause_before_start
from fleet.processes.supervisor import Child, Supervisor, SupervisorError, has_ready_line
from fleet.protocol.networking.config import NetworkingConfigError

#: Seconds until every process must be ready, on a slow and busy machine.
START_TIMEOUT = 60.0
#: Stop order, highest first: agents and proxies deregister at auths (through balancers and forwarder), auths at the
#: backend.
_AGENT_STAGE, _PROXY_STAGE, _AUTH_STAGE, _NETWORK_STAGE, _BACKEND_STAGE = 4, 3, 2, 1, 0
#: Stages of instances, by role.
_STAGES = {"auth": _AUTH_STAGE, "proxy": _PROXY_STAGE}


class FleetObserver(Protocol):
    """Receives events of a fleet that starts and runs."""

    def on_progress(self, ready: int, total: int) -> None:
        """Called when another process is ready: `ready` of `total` processes."""

    def on_up(self, record: FleetRecord, path: Path, seconds: float) -> None:
        """Called when all processes are ready after `seconds`; the record is at `path`."""

    def on_exit(self, name: str, outcome: str, log: Path) -> None:
        """Called when a process ended by itself or by a fault."""

    def on_restart(self, name: str) -> None:
        """Called when a dead process was restarted."""


def run(plan: FleetPlan, home: Path, observer: FleetObserver) -> None:
    """Run a fleet until SIGINT or SIGTERM, then stop it. Raises FleetError; no process is left running then."""
    folder = fleet_record.folder_of(home, plan.cluster)
    started_at = time.monotonic()
    with _lock_folder(folder), Supervisor(folder / "logs") as supervisor:
        try:
            keys.make(plan)
            plan = replace(
                plan, bootstrap_file=networking.write_config(plan, folder), data_folder=folder / "data"
            )
            local_fleet = _LocalFleet(plan, home, folder, supervisor, observer)
            local_fleet.start()
        except (SupervisorError, valkey.ValkeyError, NetworkingConfigError, OSError) as error:
            raise FleetError(str(error)) from error
        record_path = local_fleet.save_record()
        observer.on_up(local_fleet.make_record(), record_path, time.monotonic() - started_at)
        try:
            supervisor.watch(on_exit=local_fleet.handle_exit, on_tick=local_fleet.restart_processes)
        finally:
            record_path.unlink(missing_ok=True)


@dataclass
class _LocalFleet:
    """A fleet that starts and runs."""

    plan: FleetPlan
    home: Path
    folder: Path
    supervisor: Supervisor
    observer: FleetObserver
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    started_at: float = field(default_factory=time.time)
    roles: dict[str, str] = field(default_factory=dict)
    #: Listen addresses of the forwarder by forward name.
    forward_addresses: dict[str, str] = field(default_factory=dict)
    ready_count: int = 0
    #: When processes that failed start again (monotonic), and how often in a row they failed.
    restart_times: dict[str, float] = field(default_factory=dict)
    failure_counts: Counter[str] = field(default_factory=Counter)

    def start(self) -> None:
        """Start all processes and wait until they are ready. Raises SupervisorError, ValkeyError, FleetError."""
        server = valkey.start(self.folder / "backend", persist=False)
        self.backend_address, self.backend_password_file = server.address, server.password_file
        self.roles["backend"] = "backend"
        self.supervisor.adopt(
            "backend", server.process, log=self.folder / "backend" / "valkey.log", stage=_BACKEND_STAGE
        )
        if self.plan.has_forwarder:
            self._start_with_forwarder()
        else:
            self._start_without_forwarder()

    def _start_with_forwarder(self) -> None:
        argv = fleet_plan.make_forwarder_argv(self.plan, self.backend_address)
        forwarder = self._start_child("forwarder", "forwarder", argv, _NETWORK_STAGE)
        # While the forwarder starts.
        forked_nodes.import_shared_modules()
        self._await_ready([forwarder])
        self.forward_addresses = dict(forwarder.ready_message["forwards"])
        auths = self._start_instances("auth")
        balancers = self._start_balancers()
        self._await_ready([*auths, *balancers, self._start_gateway()])
        for child in auths:
            self._set_forward_targets(child)
        proxies = self._start_instances("proxy")
        self._await_ready(proxies)
        for child in proxies:
            self._set_forward_targets(child)
        # Agents start last: an agent remembers failed connection attempts as long as it runs.
        self._await_ready(self._start_agents(*balancers))

    def _start_without_forwarder(self) -> None:
        forked_nodes.import_shared_modules()
        self._await_ready(self._start_instances("auth"))
        self._await_ready(self._start_instances("proxy"))
        balancers = self._start_balancers()
        self._await_ready([*balancers, self._start_gateway()])
        self._await_ready(self._start_agents(*balancers))

    def _start_instances(self, role: str) -> list[Child]:
        return [
            self._start_child(
                name,
                role,
                fleet_plan.make_instance_argv(
                    self.plan,
                    role,
                    name,
                    self.backend_address,
                    self.forward_addresses,
                    self.backend_password_file,
                ),
                _STAGES[role],
            )
            for kind, name in self.plan.instances
            if kind == role
        ]

    def _start_balancers(self) -> list[Child]:
        return [
            self._start_child(
                f"{role}-balancer",
                "balancer",
                fleet_plan.make_balancer_argv(
                    f"{role}-balancer",
                    [
                        (name, self._address_of(name, "grpc"), self._address_of(name, "diag"))
                        for kind, name in self.plan.instances
                        if kind == role
                    ],
                ),
                _NETWORK_STAGE,
            )
            for role in ("auth", "proxy")
        ]

    def _start_gateway(self) -> Child:
        auths = [self._address_of(name, "grpc") for role, name in self.plan.instances if role == "auth"]
        argv = fleet_plan.make_gateway_argv(self.plan, gateway.write_routes(self.folder), auths)
        return self._start_child("gateway", "gateway", argv, _NETWORK_STAGE)

    def _start_agents(self, auth_balancer: Child, proxy_balancer: Child) -> list[Child]:
        balancer_addresses = auth_balancer.ready_message["listen"], proxy_balancer.ready_message["listen"]
        return [
            self._start_child(
                name,
                "agent",
                fleet_plan.make_agents_argv(self.plan, name, first, count, *balancer_addresses),
                _AGENT_STAGE,
            )
            for name, first, count in self.plan.agent_groups
        ]

    def _start_child(self, name: str, role: str, argv: list[str], stage: int) -> Child:
        self.roles[name] = role
        env = {**os.environ, "REFLOAT_FORWARDER_TOKEN": self.token, "PYTHONPATH": _python_path()}
        if role in _STAGES:
            env |= fleet_plan.make_environment(self.plan)
        return self.supervisor.start(
            name,
            argv,
            env=env,
            stage=stage,
            readiness_probe=has_ready_line,
            on_parent_death=signal.SIGKILL,
            spawn=forked_nodes.create_spawner(name) if role in forked_nodes.FORKED_ROLES else None,
        )

    def _await_ready(self, children: list[Child]) -> None:
        def on_ready(child: Child) -> None:
            self.ready_count += 1
            self.observer.on_progress(self.ready_count, self._process_count)

        self.supervisor.await_ready(children, timeout=START_TIMEOUT, on_ready=on_ready)

    @property
    def _process_count(self) -> int:
        return len(self.plan.instances) + len(self.plan.agent_groups) + 3 + self.plan.has_forwarder

    def _child_of(self, name: str) -> Child:
        return next(child for child in self.supervisor.children if child.name == name)

    def _address_of(self, name: str, part: str) -> str:
        """Return the address of a port of an instance: its forward, or the port itself; empty if there is none."""
        if self.forward_addresses:
            return self.forward_addresses.get(f"{name}/{part}", "")
        return str(self._child_of(name).ready_message.get(part, ""))

    def _set_forward_targets(self, child: Child) -> None:
        for part in PORTS[self.roles[child.name]]:
            faults.set_forward_target(self.make_record(), f"{child.name}/{part}", child.ready_message[part])

    def make_record(self) -> FleetRecord:
        """Return the current record of the fleet."""
        forwarder = self._child_of("forwarder").ready_message if self.plan.has_forwarder else {}
        return FleetRecord(
            cluster=self.plan.cluster,
            pid=os.getpid(),
            born=pids.start_ticks(os.getpid()),
            started_at=self.started_at,
            agents=self.plan.agents,
            backend=f"redis://{self.backend_address}/0",
            auth_balancer=str(self._child_of("auth-balancer").ready_message.get("listen", "")),
            proxy_balancer=str(self._child_of("proxy-balancer").ready_message.get("listen", "")),
            control=str(forwarder.get("control", "")),
            token=self.token if forwarder else "",
            gateway=str(self._child_of("gateway").ready_message.get("grpc", "")),
            gateway_diag=str(self._child_of("gateway").ready_message.get("diag", "")),
            members=tuple(self._member_of(child) for child in self.supervisor.children),
            console=keys.console_settings_of(self.plan.keys_folder) if self.plan.keys_folder else {},
        )

    def _member_of(self, child: Child) -> Member:
        role = self.roles[child.name]
        member = Member(child.name, role, child.pid, pids.start_ticks(child.pid), str(child.log))
        ready_message = child.ready_message
        if member.is_instance:
            grpc, diag, connect = (self._address_of(child.name, part) for part in ("grpc", "diag", "connect"))
            tunnel_v01, instance_id = (
                str(ready_message.get("tunnel_v01", "")),
                str(ready_message.get("id", "")),
            )
            return replace(
                member, grpc=grpc, diag=diag, connect=connect, tunnel_v01=tunnel_v01, id=instance_id
            )
        return replace(
            member,
            grpc=str(ready_message.get("listen", "") or ready_message.get("grpc", "")),
            diag=str(ready_message.get("diag", "")),
        )

    def save_record(self) -> Path:
        """Write the record to its file, and return the path."""
        return fleet_record.save(self.home, self.make_record())

    def handle_exit(self, child: Child) -> None:
        """Report a process that ended. One that failed starts again; one that a fault killed stays dead."""
        code = child.process.returncode
        note = self._schedule_restart(child) if code > 0 else ""
        self.observer.on_exit(child.name, f"{describe_exit(code)}{note}", child.log)

    def restart_processes(self) -> None:
        """Restart the dead processes that `faults.restart` requested, and those that failed, after a pause."""
        now = time.monotonic()
        names = {name for name, restart_time in self.restart_times.items() if restart_time <= now}
        for request_file in sorted((self.folder / "restart").glob("*")):
            request_file.unlink(missing_ok=True)
            names.add(request_file.name)
        for child in [child for child in self.supervisor.children if child.name in names]:
            self.restart_times.pop(child.name, None)
            if not child.is_alive() and self.roles[child.name] not in faults.NON_RESTARTABLE_ROLES:
                self._restart(child)

    def _restart(self, child: Child) -> None:
        self._keep_ports(child)
        try:
            self.supervisor.restart(child)
            self.supervisor.await_ready([child], timeout=START_TIMEOUT)
            if self.forward_addresses and self.roles[child.name] in ("auth", "proxy"):
                self._set_forward_targets(child)
        except (SupervisorError, FleetError) as error:
            note = self._schedule_restart(child)
            self.observer.on_exit(child.name, f"could not be restarted: {error}{note}", child.log)
        else:
            del self.failure_counts[child.name]
            self.save_record()
            self.observer.on_restart(child.name)

    def _schedule_restart(self, child: Child) -> str:
        """Schedule the restart of a process, and return when it is, for the report; empty if it cannot be restarted.

        A service manager would restart it: for example an auth that restarts for a rollout while its backend is down.
        """
        if child.is_alive() or self.roles[child.name] in faults.NON_RESTARTABLE_ROLES:
            return ""
        self.failure_counts[child.name] += 1
        pause = pause_before_start(self.failure_counts[child.name])
        self.restart_times[child.name] = time.monotonic() + pause
        return f"; restarting in {pause:.0f} s"

    def _keep_ports(self, child: Child) -> None:
        """Make a dead child listen on its old ports, unless a forward in front of it can get a new destination."""
        role = self.roles[child.name]
        if role in ("balancer", "gateway") or (role in ("auth", "proxy") and not self.forward_addresses):
            grpc = child.ready_message["listen" if role == "balancer" else "grpc"]
            if "--listen" not in child.argv:
                child.argv += ("--listen", grpc, "--diag-listen", child.ready_message["diag"])
                # If a flag is given twice, click uses the last value.
                if role == "proxy":
                    child.argv += ("--connect-listen", child.ready_message["connect"])
                    if self.plan.tunnel_v01:
                        child.argv += ("--tunnel-v01-listen", child.ready_message["tunnel_v01"])
                elif role == "auth":
                    child.argv += ("--http-listen", child.ready_message["http"])


def _python_path() -> str:
    """Return a PYTHONPATH with this checkout, so that children load the same code in any working directory."""
    checkout = str(Path(fleet.__file__).resolve().parents[1])
    inherited_path = os.environ.get("PYTHONPATH")
    return f"{checkout}{os.pathsep}{inherited_path}" if inherited_path else checkout


@contextlib.contextmanager
def _lock_folder(folder: Path) -> Iterator[IO[bytes]]:
    """Lock a folder against a second fleet. Raises FleetError if a fleet uses it."""
    try:
        folders.create_private_folder(folder)
        lock = (folder / "lock").open("ab")
    except OSError as error:
        raise FleetError(f"cannot write to {folder}: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise FleetError(
                f"a fleet already runs in {folder}: stop it with `refloat fleet down`"
            ) from error
        yield lock
