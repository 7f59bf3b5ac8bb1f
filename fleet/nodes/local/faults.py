"""Inject faults into a running local fleet, and end them: signals to processes, modes of forwards.

Nodes contain no code for faults: to a node, a fault looks like a hung host or a broken network.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from fleet.nodes.local import record
from fleet.nodes.local.forward_names import BACKEND, PORTS, ForwardMode
from fleet.nodes.local.record import FleetError, FleetRecord, Member
from fleet.processes import folders, pids
from fleet.processes.pids import ProcessState

#: Seconds for a request to the forwarder, which runs on this machine.
_CONTROL_TIMEOUT = 5.0
_STOP_TIMEOUT = 30.0
#: Seconds until a signal must have taken effect on every thread of a process.
_SIGNAL_TIMEOUT = 10.0
_RESTART_TIMEOUT = 30.0
_POLL_INTERVAL = 0.05
#: Roles that cannot be restarted alone, because all other processes depend on them.
NON_RESTARTABLE_ROLES = ("forwarder", "backend")


class FaultError(FleetError):
    """A fault that could not be injected or ended."""


def kill(fleet: FleetRecord, name: str) -> None:
    """Kill a process (SIGKILL), so that it cannot drain or deregister. Raises FaultError."""
    _signal_and_wait(fleet, name, signal.SIGKILL, ProcessState.DEAD)


def freeze(fleet: FleetRecord, name: str) -> None:
    """Freeze a process (SIGSTOP): its connections stay open, but it does not respond. Raises FaultError."""
    _signal_and_wait(fleet, name, signal.SIGSTOP, ProcessState.FROZEN)


def resume(fleet: FleetRecord, name: str) -> None:
    """Resume a frozen process (SIGCONT). Raises FaultError."""
    _signal_and_wait(fleet, name, signal.SIGCONT, ProcessState.RUNNING)


def cut_backend(fleet: FleetRecord, name: str, mode: ForwardMode = ForwardMode.CUT) -> None:
    """Cut an instance off from the backend: reset and refuse its connections, or hold their data."""
    _set_mode(fleet, name, (BACKEND,), mode)


def restore_backend(fleet: FleetRecord, name: str) -> None:
    """Restore the backend connection of an instance."""
    _set_mode(fleet, name, (BACKEND,), ForwardMode.PASS)


def blackhole(fleet: FleetRecord, name: str, *, backend: bool = True) -> None:
    """Hold all data to and from an instance; its connections stay open. `backend`: hold data to the backend, too."""
    _set_mode(
        fleet,
        name,
        (*_ports_of(fleet, name), BACKEND) if backend else _ports_of(fleet, name),
        ForwardMode.HOLD,
    )


def unblackhole(fleet: FleetRecord, name: str) -> None:
    """End the blackhole of an instance: held data is delivered."""
    _set_mode(fleet, name, (*_ports_of(fleet, name), BACKEND), ForwardMode.PASS)


def read_forward_modes(fleet: FleetRecord) -> dict[str, str]:
    """Return the mode of every forward by name (`proxy-1/grpc`); empty for a fleet without forwarder."""
    if not fleet.control:
        return {}
    return {forward["name"]: forward["mode"] for forward in call_control_api(fleet, "/forwards")["forwards"]}


def set_forward_target(fleet: FleetRecord, forward: str, target_address: str) -> None:
    """Set the destination of a forward, host:port. Raises FaultError."""
    call_control_api(fleet, f"/forwards/{forward}", {"target_address": target_address})


def stop_fleet(fleet: FleetRecord) -> None:
    """Stop a fleet and wait until it has ended. Raises FaultError after 30 s."""
    for signal_number in (signal.SIGCONT, signal.SIGTERM):
        _signal(Member("the fleet", "up", fleet.pid, fleet.born, ""), signal_number)
    if not _wait_for_state(fleet.pid, fleet.born, ProcessState.DEAD, _STOP_TIMEOUT):
        raise FaultError(f"the fleet (pid {fleet.pid}) did not stop within {_STOP_TIMEOUT:.0f} s of SIGTERM")


def find_restartable(fleet: FleetRecord, name: str) -> Member:
    """Return a dead process that can be restarted. Raises FaultError if it runs or cannot be restarted alone."""
    member = fleet.find_member(name)
    if member.state is not ProcessState.DEAD:
        raise FaultError(f"{name} is running (pid {member.pid}): run `refloat fleet kill {name}` first")
    if member.role in NON_RESTARTABLE_ROLES:
        raise FaultError(
            f"the {member.role} cannot be restarted alone: run `refloat fleet down`, then `refloat fleet up`"
        )
    return member


def restart(fleet: FleetRecord, name: str, home: Path) -> Member:
    """Restart a killed process of a fleet and wait until it is ready. Raises FaultError."""
    member = find_restartable(fleet, name)
    request_file = restart_request_path(record.folder_of(home, fleet.cluster), name)
    folders.create_private_folder(request_file.parent)
    request_file.touch()
    deadline = time.monotonic() + _RESTART_TIMEOUT
    while (restarted := record.load(home, fleet.cluster).find_member(name)).pid == member.pid:
        if time.monotonic() > deadline:
            request_file.unlink(missing_ok=True)
            raise FaultError(
                f"{name} was not ready within {_RESTART_TIMEOUT:.0f} s of its restart (log: {member.log})"
            )
        time.sleep(_POLL_INTERVAL)
    return restarted


def restart_request_path(folder: Path, name: str) -> Path:
    """Return the path of the file that requests a restart from the fleet's first process, the parent of all others."""
    return folder / "restart" / name


def call_control_api(fleet: FleetRecord, path: str, body: dict[str, str] | None = None) -> Any:
    """Send a request to the control API of the forwarder, and return its JSON. Raises FaultError."""
    request = urllib.request.Request(
        f"http://{fleet.control}{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {fleet.token}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=_CONTROL_TIMEOUT) as response:  # noqa: S310
            return json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            raise FaultError(
                f"the forwarder rejected the request: {error.read().decode(errors='replace')}"
            ) from error
    except OSError as error:
        raise FaultError(
            f"the forwarder at {fleet.control} does not respond ({error}): `refloat fleet ps` shows its state"
        ) from error


def _ports_of(fleet: FleetRecord, name: str) -> tuple[str, ...]:
    return PORTS.get(fleet.find_member(name).role, ())


def _set_mode(fleet: FleetRecord, name: str, parts: tuple[str, ...], mode: ForwardMode) -> None:
    member = fleet.find_member(name)
    if not member.is_instance:
        raise FaultError(f"{name} is not an auth or a proxy: it has no forward in which to inject this fault")
    if not fleet.control:
        raise FaultError("this fleet has no forwarder: start it without --no-forwarder")
    for part in parts:
        call_control_api(fleet, f"/forwards/{name}/{part}", {"mode": mode.value})


def find_alive(fleet: FleetRecord, name: str) -> Member:
    """Return a process that can receive signals. Raises FaultError if it is dead, UnknownNameError."""
    member = fleet.find_member(name)
    if member.state is ProcessState.DEAD:
        raise FaultError(f"{name} (pid {member.pid}) is dead: run `refloat fleet restart {name}`")
    return member


def _signal_and_wait(
    fleet: FleetRecord, name: str, signal_number: signal.Signals, state: ProcessState
) -> None:
    member = find_alive(fleet, name)
    _signal(member, signal_number)
    # On other systems it is not known whether a process is stopped.
    if sys.platform == "linux" and not _wait_for_state(member.pid, member.born, state, _SIGNAL_TIMEOUT):
        raise FaultError(
            f"{name} (pid {member.pid}) is not {state} {_SIGNAL_TIMEOUT:.0f} s after {signal_number.name}"
        )


def _wait_for_state(pid: int, born: int | None, state: ProcessState, timeout: float) -> bool:
    """Wait until a process is in a state; return False if it is not after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while pids.state(pid, born) is not state:
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_INTERVAL)
    return True


def _signal(member: Member, signal_number: signal.Signals) -> None:
    try:
        os.kill(member.pid, signal_number)
    except ProcessLookupError as error:
        raise FaultError(f"{member.name} (pid {member.pid}) has just ended") from error
    except PermissionError as error:
        raise FaultError(f"{member.name} (pid {member.pid}) belongs to another user") from error
