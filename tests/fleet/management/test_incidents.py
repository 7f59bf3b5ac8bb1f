"""The demo's incidents come in time, in order, and are announced."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field

from click import Group

from fleet.cli.local.fleet import fleet as fleet_commands
from fleet.management.incidents import PERIOD, DemoIncident, IncidentPlayer, select_incidents

_OPPOSITE = {
    "freeze": "resume",
    "block-backend": "unblock-backend",
    "kill": "restart",
    "blackhole": "unblackhole",
}


@dataclass
class _Stage:
    """A player whose commands only note that they were run."""

    incidents: tuple[DemoIncident, ...]
    code: int = 0
    said: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.player = IncidentPlayer(self.incidents, 100.0, self.run, self.said.append)

    def run(self, incident: DemoIncident) -> subprocess.Popen[bytes]:
        self.ran.append(f"{incident.command} {incident.name}")
        process = subprocess.Popen([sys.executable, "-c", f"raise SystemExit({self.code})"])
        process.wait()
        return process


def test_first_incident_comes_within_two_minutes() -> None:
    """Whoever watches sees something soon."""
    assert select_incidents(3, 4)[0].at < 120


def test_script_undoes_whatever_it_does() -> None:
    """At the end of a turn the fleet is whole, so the next turn finds it so."""
    broken: set[tuple[str, str]] = set()
    for incident in select_incidents(3, 4):
        if incident.command in _OPPOSITE:
            broken.add((_OPPOSITE[incident.command], incident.name))
        else:
            broken.remove((incident.command, incident.name))

    assert not broken


def test_script_is_in_order_and_within_its_period() -> None:
    """A turn ends before the next begins."""
    times = [incident.at for incident in select_incidents(3, 4)]

    assert times == sorted(times)
    assert times[-1] < PERIOD


def test_commands_exist() -> None:
    """Each is a command of `refloat fleet`, as announced."""
    assert isinstance(fleet_commands, Group)
    assert {incident.command for incident in select_incidents(3, 4)} <= set(fleet_commands.commands)


def test_small_fleet_gets_what_it_can_have() -> None:
    """Nobody is named who is not there."""
    assert {incident.name for incident in select_incidents(1, 1)} == {"proxy-1", "auth-1"}


def test_player_waits_for_the_time() -> None:
    """Nothing before, once at, and it is announced as what one would type."""
    stage = _Stage((DemoIncident(20, "freeze", "proxy-1", "why"),))

    stage.player.tick(119.9)
    early = list(stage.ran)
    stage.player.tick(120.0)
    stage.player.tick(120.5)

    assert early == []
    assert stage.ran == ["freeze proxy-1"]
    assert stage.said == ["refloat fleet freeze proxy-1: why"]


def test_player_begins_again_after_a_turn() -> None:
    """The script plays for as long as the demo runs."""
    stage = _Stage((DemoIncident(20, "freeze", "proxy-1", ""), DemoIncident(60, "resume", "proxy-1", "")))
    for now in (120.0, 160.0, 100.0 + PERIOD, 120.0 + PERIOD):
        stage.player.tick(now)

    assert stage.ran == ["freeze proxy-1", "resume proxy-1", "freeze proxy-1"]


def test_command_that_failed_is_told() -> None:
    """An incident that did not happen is not passed over."""
    stage = _Stage((DemoIncident(20, "freeze", "proxy-9", ""),), code=2)
    stage.player.tick(120.0)
    stage.player.tick(121.0)

    assert stage.said[-1] == "refloat fleet freeze proxy-9 failed with exit code 2"


def test_no_script_no_incident() -> None:
    """The plain demo is left in peace."""
    stage = _Stage(())
    stage.player.tick(1e6)

    assert stage.said == []
