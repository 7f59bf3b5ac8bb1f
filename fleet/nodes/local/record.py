"""The record of a running local fleet: a file that other commands find it by.

HOME/fleet/CLUSTER/fleet.json, readable by its owner alone: it holds the token of the forwarder's control API.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fleet.processes import folders, pids
from fleet.processes.pids import ProcessState


class FleetError(Exception):
    """Something about a local fleet that its operator can mend; the sentence says how. Exit code 2."""


class NoFleetError(FleetError):
    """No fleet runs where it was looked for."""


class UnknownNameError(FleetError):
    """A name that no process of the fleet has."""


@dataclass(frozen=True, slots=True)
class Member:
    """One process of a fleet."""

    name: str
    #: auth, proxy, agent, balancer, gateway, forwarder or backend.
    role: str
    pid: int
    #: When it was started, in the kernel's ticks: with the pid it names one process for ever.
    born: int | None
    log: str
    #: Where others reach it, host:port, through the forwarder if there is one; empty for what it has not.
    grpc: str = ""
    diag: str = ""
    #: A proxy's port for users.
    connect: str = ""
    #: A proxy's listener for tunnels of version 0.1; no forward stands before it.
    tunnel_v01: str = ""
    #: Host UUID of an auth or a proxy.
    id: str = ""

    @property
    def is_instance(self) -> bool:
        """Whether it is an auth or a proxy."""
        return self.role in ("auth", "proxy")

    @property
    def state(self) -> ProcessState:
        """How its process is now."""
        return pids.state(self.pid, self.born)


@dataclass(frozen=True, slots=True)
class FleetRecord:
    """A running fleet. Addresses are host:port."""

    cluster: str
    #: The process that started all others, and ends them.
    pid: int
    born: int | None
    #: Seconds since the epoch.
    started_at: float
    agents: int
    backend: str
    #: What agents dial: the balancers.
    auth_balancer: str
    proxy_balancer: str
    #: The forwarder's control API; both empty in a fleet without faults.
    control: str
    token: str
    members: tuple[Member, ...]
    #: Unary calls to auths may go here; empty in the record of a fleet that has none.
    gateway: str = ""
    #: The files with which a console polls a fleet with TLS, by the setting that takes each.
    console: dict[str, str] = field(default_factory=dict)

    def member(self, name: str) -> Member:
        """The process of that name. Raises UnknownNameError."""
        for member in self.members:
            if member.name == name:
                return member
        names = ", ".join(member.name for member in self.members)
        raise UnknownNameError(f"no {name!r} in fleet {self.cluster}; there are: {names}")

    def addresses(self, role: str) -> list[str]:
        """gRPC addresses of the members of a role."""
        return [member.grpc for member in self.members if member.role == role]


def folder(home: Path, cluster: str) -> Path:
    """Where a fleet keeps its record, its logs and its backend's data."""
    return home / "fleet" / cluster


def save(home: Path, record: FleetRecord) -> Path:
    """Write the record, whole or not at all."""
    path = folder(home, record.cluster) / "fleet.json"
    folders.write_private(path, json.dumps(asdict(record), indent=1))
    return path


def load(home: Path, cluster: str) -> FleetRecord:
    """Read the record of the fleet that runs. Raises NoFleetError when none does."""
    path = folder(home, cluster) / "fleet.json"
    message = f"no fleet {cluster!r} runs in {home}: start one with `refloat fleet up`"
    try:
        document: dict[str, Any] = json.loads(path.read_text())
        members = tuple(Member(**member) for member in document.pop("members"))
        record = FleetRecord(**document, members=members)
    except FileNotFoundError:
        raise NoFleetError(message) from None
    except PermissionError as error:
        raise FleetError(f"{path} is another user's: {error.strerror}") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FleetError(f"{path} cannot be read: {error}; remove it and start the fleet anew") from error
    if pids.state(record.pid, record.born) is ProcessState.DEAD:
        raise NoFleetError(f"{message} (the last one's process {record.pid} is gone)")
    return record
