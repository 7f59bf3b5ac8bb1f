"""A script of incidents for the demo: `refloat fleet` commands that run, and are announced, at fixed times."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DemoIncident:
    """One `refloat fleet` command, `offset_seconds` after the start of the script."""

    offset_seconds: float
    command: str
    member_name: str
    sentence: str


#: Seconds after which the script starts again.
SCRIPT_PERIOD_SECONDS = 400.0
_SCRIPT = (
    DemoIncident(20, "freeze", "proxy-1", "its agents lose their only tunnel and do not notice yet"),
    DemoIncident(60, "resume", "proxy-1", "its agents are healthy again"),
    DemoIncident(
        90, "block-backend", "auth-1", "it cannot write heartbeats, so the resources of its agents expire"
    ),
    DemoIncident(140, "unblock-backend", "auth-1", "heartbeats are written again"),
    DemoIncident(170, "kill", "proxy-2", "power failure: its agents connect to other proxies"),
    DemoIncident(210, "restart", "proxy-2", "it runs again with the same name and addresses"),
    DemoIncident(240, "blackhole", "proxy-3", "its connections stay open, but carry no data"),
    DemoIncident(290, "unblackhole", "proxy-3", "held data is delivered"),
    DemoIncident(320, "freeze", "auth-2", "auth-2 does not respond"),
    DemoIncident(360, "resume", "auth-2", "auth-2 responds again"),
)


def select_incidents(auths: int, proxies: int) -> tuple[DemoIncident, ...]:
    """Return the incidents for the auths and proxies that a fleet of this size has."""
    member_names = {f"auth-{n}" for n in range(1, auths + 1)} | {f"proxy-{n}" for n in range(1, proxies + 1)}
    return tuple(incident for incident in _SCRIPT if incident.member_name in member_names)


@dataclass
class IncidentPlayer:
    """Runs a script of incidents: `tick` starts the commands that are due, as child processes. Times are monotonic."""

    incidents: Sequence[DemoIncident]
    started_at: float
    start_command: Callable[[DemoIncident], subprocess.Popen[bytes]]
    write_line: Callable[[str], None]
    _played_count: int = 0
    _running_commands: list[tuple[DemoIncident, subprocess.Popen[bytes]]] = field(default_factory=list)

    def tick(self, now: float) -> None:
        """Start the next incident when it is due, and report commands that failed."""
        self._reap_commands()
        if not self.incidents:
            return
        cycle, incident_index = divmod(self._played_count, len(self.incidents))
        incident = self.incidents[incident_index]
        if now - self.started_at >= cycle * SCRIPT_PERIOD_SECONDS + incident.offset_seconds:
            self._played_count += 1
            self.write_line(f"refloat fleet {incident.command} {incident.member_name}: {incident.sentence}")
            self._running_commands.append((incident, self.start_command(incident)))

    def _reap_commands(self) -> None:
        for incident, process in list(self._running_commands):
            code = process.poll()
            if code is not None:
                self._running_commands.remove((incident, process))
                if code:
                    self.write_line(
                        f"refloat fleet {incident.command} {incident.member_name} failed with exit code {code}"
                    )
