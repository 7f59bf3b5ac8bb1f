"""The record of a running local fleet: the file by which other commands find the fleet.

HOME/fleet/CLUSTER/fleet.json, mode 0600, because it contains the token of the forwarder's control API.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fleet.processes import folders, pids
from fleet.processes.pids import ProcessState


class FleetError(Exception):
    """An error of a local fleet that the operator can fix; the message says how. Exit code 2."""


class NoFleetError(FleetError):
    """No fleet runs in this folder."""


class UnknownNameError(FleetError):
    """No process of the fleet has this name."""


@dataclass(frozen=True, slots=True)
class Member:
    """A process of a local fleet."""

    name: str
    #: auth, proxy, agent, balancer, gateway, forwarder or backend.
    role: str
    pid: int
    #: Start time in clock ticks since boot: together with the pid it identifies the process.
    born: int | None
    log: str
    #: Addresses, host:port, through the forwarder if there is one; empty if the process has no such port.
    grpc: str = ""
    diag: str = ""
    #: CONNECT port of a proxy.
    connect: str = ""
    #: Port of a proxy for tunnels of version 0.1, without a forward.
    tunnel_v01: str = ""
    #: Host UUID of an auth or a proxy.
    id: str = ""

    @property
    def is_instance(self) -> bool:
        """Return whether the process is an auth or a proxy."""
        return self.role in ("auth", "proxy")

    @property
    def state(self) -> ProcessState:
        """Return the current state of the process."""
        return pids.state(self.pid, self.born)


@dataclass(frozen=True, slots=True)
class FleetRecord:
    """A running local fleet. Addresses are host:port."""

    cluster: str
    #: The process that started all others and stops them.
    pid: int
    born: int | None
    #: Seconds since the epoch.
    started_at: float
    agents: int
    backend: str
    #: The balancers, which agents dial.
    auth_balancer: str
    proxy_balancer: str
    #: Address and token of the forwarder's control API; empty for a fleet without forwarder.
    control: str
    token: str
    members: tuple[Member, ...]
    #: The gateway for unary calls to auths; empty in a record without a gateway.
    gateway: str = ""
    #: Its diag port.
    gateway_diag: str = ""
    #: TLS files of a console for a fleet with TLS, by setting name.
    console: dict[str, str] = field(default_factory=dict)

    def find_member(self, name: str) -> Member:
        """Return the process with this name. Raises UnknownNameError."""
        for member in self.members:
            if member.name == name:
                return member
        names = ", ".join(member.name for member in self.members)
        raise UnknownNameError(f"{name!r} was not found in fleet {self.cluster}; its processes: {names}")

    def addresses_of(self, role: str) -> list[str]:
        """Return the gRPC addresses of the processes of a role."""
        return [member.grpc for member in self.members if member.role == role]


def folder_of(home: Path, cluster: str) -> Path:
    """Return the folder of a fleet's record, logs and backend data."""
    return home / "fleet" / cluster


def save(home: Path, record: FleetRecord) -> Path:
    """Write the record atomically, and return its path."""
    path = folder_of(home, record.cluster) / "fleet.json"
    folders.write_private_file(path, json.dumps(asdict(record), indent=1))
    return path


def load(home: Path, cluster: str) -> FleetRecord:
    """Return the record of the running fleet. Raises NoFleetError if no fleet runs."""
    path = folder_of(home, cluster) / "fleet.json"
    flags = "" if cluster == "default" else f" --cluster {cluster}"
    message = f"fleet {cluster!r} is not running in {home}: start it with `refloat fleet up{flags}`"
    try:
        document: dict[str, Any] = json.loads(path.read_text())
        members = tuple(Member(**member) for member in document.pop("members"))
        record = FleetRecord(**document, members=members)
    except FileNotFoundError:
        raise NoFleetError(message) from None
    except PermissionError as error:
        raise FleetError(f"{path} belongs to another user: {error.strerror}") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FleetError(f"cannot read {path}: {error}. Delete the file and start the fleet again") from error
    if pids.state(record.pid, record.born) is ProcessState.DEAD:
        raise NoFleetError(f"{message} (its last process, pid {record.pid}, has ended)")
    return record
