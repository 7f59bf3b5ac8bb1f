"""A script of incidents for the demo: what `refloat fleet` can do, played by the clock and announced."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Incident:
    """One command of `refloat fleet`, `at` seconds after the script began."""

    at: float
    command: str
    name: str
    says: str


#: After this the script begins again, seconds.
PERIOD = 400.0
_SCRIPT = (
    Incident(20, "freeze", "proxy-1", "its agents lose their only tunnel, and cannot know it yet"),
    Incident(60, "thaw", "proxy-1", "its agents come back"),
    Incident(90, "cut-backend", "auth-1", "it cannot write heartbeats; its agents' resources run out"),
    Incident(140, "restore-backend", "auth-1", "heartbeats are written again"),
    Incident(170, "kill", "proxy-2", "a power cut: its agents find other proxies"),
    Incident(210, "restart", "proxy-2", "it is back, with the name and the addresses it had"),
    Incident(240, "blackhole", "proxy-3", "connections stay open and nothing passes"),
    Incident(290, "unblackhole", "proxy-3", "what was held arrives"),
    Incident(320, "freeze", "auth-2", "one of the auths answers nobody"),
    Incident(360, "thaw", "auth-2", "it answers again"),
)


def script(auths: int, proxies: int) -> tuple[Incident, ...]:
    """The incidents that a fleet of this shape can have."""
    there = {f"auth-{n}" for n in range(1, auths + 1)} | {f"proxy-{n}" for n in range(1, proxies + 1)}
    return tuple(incident for incident in _SCRIPT if incident.name in there)


@dataclass
class Player:
    """Plays a script: `tick` starts what is due. Times are monotonic; a command runs beside us, never in our loop."""

    incidents: Sequence[Incident]
    began_at: float
    run: Callable[[Incident], subprocess.Popen[bytes]]
    say: Callable[[str], None]
    _played: int = 0
    _running: list[tuple[Incident, subprocess.Popen[bytes]]] = field(default_factory=list)

    def tick(self, now: float) -> None:
        """Start the next incident when its time has come, and tell of commands that failed."""
        self._reap()
        if not self.incidents:
            return
        turn, place = divmod(self._played, len(self.incidents))
        incident = self.incidents[place]
        if now - self.began_at >= turn * PERIOD + incident.at:
            self._played += 1
            self.say(f"refloat fleet {incident.command} {incident.name}: {incident.says}")
            self._running.append((incident, self.run(incident)))

    def _reap(self) -> None:
        for incident, process in list(self._running):
            code = process.poll()
            if code is not None:
                self._running.remove((incident, process))
                if code:
                    self.say(f"refloat fleet {incident.command} {incident.name} ended with code {code}")
