"""A script of incidents for the demo: what `refloat fleet` can do, played by the clock and announced."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DemoIncident:
    """One command of `refloat fleet`, `at` seconds after the script began."""

    at: float
    command: str
    name: str
    sentence: str


#: After this the script begins again, seconds.
PERIOD = 400.0
_SCRIPT = (
    DemoIncident(20, "freeze", "proxy-1", "its agents lose their only tunnel, and cannot know it yet"),
    DemoIncident(60, "thaw", "proxy-1", "its agents come back"),
    DemoIncident(90, "cut-backend", "auth-1", "it cannot write heartbeats; its agents' resources run out"),
    DemoIncident(140, "restore-backend", "auth-1", "heartbeats are written again"),
    DemoIncident(170, "kill", "proxy-2", "a power cut: its agents find other proxies"),
    DemoIncident(210, "restart", "proxy-2", "it is back, with the name and the addresses it had"),
    DemoIncident(240, "blackhole", "proxy-3", "connections stay open and nothing passes"),
    DemoIncident(290, "unblackhole", "proxy-3", "what was held arrives"),
    DemoIncident(320, "freeze", "auth-2", "one of the auths answers nobody"),
    DemoIncident(360, "thaw", "auth-2", "it answers again"),
)


def select_incidents(auths: int, proxies: int) -> tuple[DemoIncident, ...]:
    """The incidents that a fleet of this shape can have."""
    member_names = {f"auth-{n}" for n in range(1, auths + 1)} | {f"proxy-{n}" for n in range(1, proxies + 1)}
    return tuple(incident for incident in _SCRIPT if incident.name in member_names)


@dataclass
class IncidentPlayer:
    """Plays a script: `tick` starts what is due. Times are monotonic; a command runs beside us, never in our loop."""

    incidents: Sequence[DemoIncident]
    started_at: float
    run: Callable[[DemoIncident], subprocess.Popen[bytes]]
    write_line: Callable[[str], None]
    _played_count: int = 0
    _running_commands: list[tuple[DemoIncident, subprocess.Popen[bytes]]] = field(default_factory=list)

    def tick(self, now: float) -> None:
        """Start the next incident when its time has come, and tell of commands that failed."""
        self._reap()
        if not self.incidents:
            return
        turn, place = divmod(self._played_count, len(self.incidents))
        incident = self.incidents[place]
        if now - self.started_at >= turn * PERIOD + incident.at:
            self._played_count += 1
            self.write_line(f"refloat fleet {incident.command} {incident.name}: {incident.sentence}")
            self._running_commands.append((incident, self.run(incident)))

    def _reap(self) -> None:
        for incident, process in list(self._running_commands):
            code = process.poll()
            if code is not None:
                self._running_commands.remove((incident, process))
                if code:
                    self.write_line(f"refloat fleet {incident.command} {incident.name} ended with code {code}")
