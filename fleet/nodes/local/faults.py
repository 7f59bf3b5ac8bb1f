"""Faults of a running local fleet, and how to undo them: signals to a process, modes of its forwards.

Nodes hold no fault code: what happens here happens to them as it would by a hung host or a broken network.
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

#: The forwarder is on this machine and does nothing long.
_CONTROL_TIMEOUT = 5.0
_END_TIMEOUT = 30.0
#: How long the kernel may take to stop, continue or end every thread of a process.
_SIGNAL_TIMEOUT = 10.0
_RESTART_TIMEOUT = 30.0
_POLL = 0.05
#: Roles that all others hold on to: without them the fleet is another fleet.
NON_RESTARTABLE_ROLES = ("forwarder", "backend")


class FaultError(FleetError):
    """A fault that could not be injected or undone."""


def kill(fleet: FleetRecord, name: str) -> None:
    """End a process at once, as a power cut does (SIGKILL)."""
    _signal_until(fleet, name, signal.SIGKILL, ProcessState.DEAD)


def freeze(fleet: FleetRecord, name: str) -> None:
    """Stop a process (SIGSTOP), and wait until it stands still: its connections stay open and it answers nobody."""
    _signal_until(fleet, name, signal.SIGSTOP, ProcessState.FROZEN)


def thaw(fleet: FleetRecord, name: str) -> None:
    """Let a frozen process go on."""
    _signal_until(fleet, name, signal.SIGCONT, ProcessState.RUNNING)


def cut_backend(fleet: FleetRecord, name: str, mode: ForwardMode = ForwardMode.CUT) -> None:
    """Part an instance from the backend: reset and refuse its connections, or hold their bytes."""
    _set_mode(fleet, name, (BACKEND,), mode)


def restore_backend(fleet: FleetRecord, name: str) -> None:
    """Give an instance its backend again."""
    _set_mode(fleet, name, (BACKEND,), ForwardMode.PASS)


def blackhole(fleet: FleetRecord, name: str, *, backend: bool = True) -> None:
    """Hold every byte to and from an instance; its connections stay open. Without `backend`, that one passes."""
    _set_mode(fleet, name, (*_ports(fleet, name), BACKEND) if backend else _ports(fleet, name), ForwardMode.HOLD)


def unblackhole(fleet: FleetRecord, name: str) -> None:
    """Let the bytes of an instance pass again, those held first."""
    _set_mode(fleet, name, (*_ports(fleet, name), BACKEND), ForwardMode.PASS)


def modes(fleet: FleetRecord) -> dict[str, str]:
    """The mode of every forward by name (`proxy-1/grpc`); empty in a fleet without forwarder."""
    if not fleet.control:
        return {}
    return {forward["name"]: forward["mode"] for forward in call_control_api(fleet, "/forwards")["forwards"]}


def point(fleet: FleetRecord, forward: str, to: str) -> None:
    """Give a forward its target."""
    call_control_api(fleet, f"/forwards/{forward}", {"to": to})


def end(fleet: FleetRecord) -> None:
    """End a whole fleet and wait until it is gone. Raises FaultError when it will not."""
    for signal_number in (signal.SIGCONT, signal.SIGTERM):
        _signal(Member("the fleet", "up", fleet.pid, fleet.born, ""), signal_number)
    if not _comes_to(fleet.pid, fleet.born, ProcessState.DEAD, _END_TIMEOUT):
        raise FaultError(f"process {fleet.pid} was asked to end and has not within {_END_TIMEOUT:.0f} s")


def find_restartable(fleet: FleetRecord, name: str) -> Member:
    """Find a process that is dead and can be started alone. Raises FaultError, FleetError."""
    member = fleet.member(name)
    if member.state is not ProcessState.DEAD:
        raise FaultError(f"{name} runs (pid {member.pid}): `refloat fleet kill {name}` first")
    if member.role in NON_RESTARTABLE_ROLES:
        raise FaultError(f"the {member.role} cannot be started alone: `refloat fleet down`, then `up`")
    return member


def restart(fleet: FleetRecord, name: str, home: Path) -> Member:
    """Have the process of a fleet that was killed started again, and wait until it is ready."""
    member = find_restartable(fleet, name)
    request_file = restart_request(record.folder(home, fleet.cluster), name)
    folders.make_private(request_file.parent)
    request_file.touch()
    deadline = time.monotonic() + _RESTART_TIMEOUT
    while (restarted := record.load(home, fleet.cluster).member(name)).pid == member.pid:
        if time.monotonic() > deadline:
            request_file.unlink(missing_ok=True)
            raise FaultError(f"{name} did not come back within {_RESTART_TIMEOUT:.0f} s (log: {member.log})")
        time.sleep(_POLL)
    return restarted


def restart_request(folder: Path, name: str) -> Path:
    """The file that asks the fleet's first process to start a dead one again: only a parent can be a parent."""
    return folder / "restart" / name


def call_control_api(fleet: FleetRecord, path: str, body: dict[str, str] | None = None) -> Any:
    """Ask the forwarder's control API. Raises FaultError."""
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
            raise FaultError(f"the forwarder refused: {error.read().decode(errors='replace')}") from error
    except OSError as error:
        raise FaultError(
            f"the forwarder at {fleet.control} does not answer ({error}): is it killed or frozen?"
        ) from error


def _ports(fleet: FleetRecord, name: str) -> tuple[str, ...]:
    return PORTS.get(fleet.member(name).role, ())


def _set_mode(fleet: FleetRecord, name: str, parts: tuple[str, ...], mode: ForwardMode) -> None:
    member = fleet.member(name)
    if not member.is_instance:
        raise FaultError(f"{name} is no auth or proxy: no forward stands before it")
    if not fleet.control:
        raise FaultError("this fleet was started with --no-faults: it has no forwarder")
    for part in parts:
        call_control_api(fleet, f"/forwards/{name}/{part}", {"mode": mode.value})


def _find_alive(fleet: FleetRecord, name: str) -> Member:
    member = fleet.member(name)
    if member.state is ProcessState.DEAD:
        raise FaultError(f"{name} (pid {member.pid}) is dead: `refloat fleet restart {name}` starts it again")
    return member


def _signal_until(fleet: FleetRecord, name: str, signal_number: signal.Signals, state: ProcessState) -> None:
    member = _find_alive(fleet, name)
    _signal(member, signal_number)
    # Elsewhere nothing says whether a process is stopped.
    if sys.platform == "linux" and not _comes_to(member.pid, member.born, state, _SIGNAL_TIMEOUT):
        raise FaultError(
            f"{name} (pid {member.pid}) got {signal_number.name} and is not {state} after {_SIGNAL_TIMEOUT:.0f} s"
        )


def _comes_to(pid: int, born: int | None, state: ProcessState, timeout: float) -> bool:
    """Wait until a process is in a state; return False when it is not after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while pids.state(pid, born) is not state:
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL)
    return True


def _signal(member: Member, signal_number: signal.Signals) -> None:
    try:
        os.kill(member.pid, signal_number)
    except ProcessLookupError as error:
        raise FaultError(f"{member.name} (pid {member.pid}) has just ended") from error
    except PermissionError as error:
        raise FaultError(f"{member.name} (pid {member.pid}) is another user's process") from error
