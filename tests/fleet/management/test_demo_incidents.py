"""The demo's incidents happen in time and in order, and are announced."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field

from click import Group

from fleet.cli.local.fleet import fleet as fleet_commands
from fleet.management.demo_incidents import (
    SCRIPT_PERIOD_SECONDS,
    DemoIncident,
    IncidentPlayer,
    select_incidents,
)

_REVERSE_COMMANDS = {
    "freeze": "resume",
    "block-backend": "unblock-backend",
    "kill": "restart",
    "blackhole": "unblackhole",
}


@dataclass
class _PlayerSetup:
    """An incident player whose commands are only recorded."""

    incidents: tuple[DemoIncident, ...]
    code: int = 0
    lines: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.player = IncidentPlayer(self.incidents, 100.0, self.run, self.lines.append)

    def run(self, incident: DemoIncident) -> subprocess.Popen[bytes]:
        self.commands.append(f"{incident.command} {incident.member_name}")
        process = subprocess.Popen([sys.executable, "-c", f"raise SystemExit({self.code})"])
        process.wait()
        return process


def test_first_incident_happens_within_two_minutes() -> None:
    """A new user of the demo soon sees an incident."""
    assert select_incidents(3, 4)[0].offset_seconds < 120


def test_script_undoes_all_faults() -> None:
    """At the end of a period the fleet is healthy."""
    pending_commands: set[tuple[str, str]] = set()
    for incident in select_incidents(3, 4):
        if incident.command in _REVERSE_COMMANDS:
            pending_commands.add((_REVERSE_COMMANDS[incident.command], incident.member_name))
        else:
            pending_commands.remove((incident.command, incident.member_name))

    assert not pending_commands


def test_script_is_sorted_and_within_its_period() -> None:
    """A period ends before the next one begins."""
    times = [incident.offset_seconds for incident in select_incidents(3, 4)]

    assert times == sorted(times)
    assert times[-1] < SCRIPT_PERIOD_SECONDS


def test_script_uses_existing_commands() -> None:
    """Each command is a command of `refloat fleet`."""
    assert isinstance(fleet_commands, Group)
    assert {incident.command for incident in select_incidents(3, 4)} <= set(fleet_commands.commands)


def test_script_of_small_fleet_uses_existing_instances() -> None:
    """No incident names an instance that the fleet lacks."""
    assert {incident.member_name for incident in select_incidents(1, 1)} == {"proxy-1", "auth-1"}


def test_player_runs_an_incident_once_at_its_time() -> None:
    """The announcement is the command that a user would type."""
    setup = _PlayerSetup((DemoIncident(20, "freeze", "proxy-1", "why"),))

    setup.player.tick(119.9)
    early_commands = list(setup.commands)
    setup.player.tick(120.0)
    setup.player.tick(120.5)

    assert early_commands == []
    assert setup.commands == ["freeze proxy-1"]
    assert setup.lines == ["refloat fleet freeze proxy-1: why"]


def test_player_repeats_the_script() -> None:
    """The script is played as long as the demo runs."""
    setup = _PlayerSetup(
        (DemoIncident(20, "freeze", "proxy-1", ""), DemoIncident(60, "resume", "proxy-1", ""))
    )
    for now in (120.0, 160.0, 100.0 + SCRIPT_PERIOD_SECONDS, 120.0 + SCRIPT_PERIOD_SECONDS):
        setup.player.tick(now)

    assert setup.commands == ["freeze proxy-1", "resume proxy-1", "freeze proxy-1"]


def test_failed_command_is_reported() -> None:
    """The line has the command and its exit code."""
    setup = _PlayerSetup((DemoIncident(20, "freeze", "proxy-9", ""),), code=2)
    setup.player.tick(120.0)
    setup.player.tick(121.0)

    assert setup.lines[-1] == "refloat fleet freeze proxy-9 failed with exit code 2"


def test_player_without_script_does_nothing() -> None:
    """The plain demo has no incidents."""
    setup = _PlayerSetup(())
    setup.player.tick(1e6)

    assert setup.lines == []
