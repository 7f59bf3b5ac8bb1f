"""The faults of a simulated fleet as text: `freeze proxy-14`, `strand proxy-3 50`, and scripts of them.

docs/reference/simulated-fleet.md lists the actions. Pure; used by the simulator, its command and its tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from typing_extensions import override


class SimulatedFaultError(ValueError):
    """A fault or a script cannot be parsed. The message says what is wrong and how to write it."""


class SimulatedFaultAction(StrEnum):
    """Faults of an instance, or of agents connected to it."""

    #: The ports accept connections, but nothing responds.
    FREEZE = "freeze"
    #: End a freeze; tunnels are still there.
    RESUME = "resume"
    #: The ports refuse connections; tunnels and heartbeats through the instance end.
    KILL = "kill"
    #: The instance reports NOT_SERVING and HTTP 503.
    UNHEALTHY = "unhealthy"
    #: The instance stops sending heartbeats and expires; an auth cannot write agents' heartbeats either.
    EXPIRE = "expire"
    #: A lost backend: unhealthy and expire at once.
    BLOCK_BACKEND = "block-backend"
    #: Some of its agents lose every tunnel and continue to send heartbeats.
    STRAND = "strand"
    #: Some of its agents lose every tunnel and stop sending heartbeats.
    OFFLINE = "offline"
    #: Some of its agents ignore advice to reconnect elsewhere.
    IGNORE_ADVICE = "ignore-advice"
    #: End all faults of the instance and of the agents affected through it.
    HEAL = "heal"


_ACTIONS_WITH_COUNT = frozenset(
    {SimulatedFaultAction.STRAND, SimulatedFaultAction.OFFLINE, SimulatedFaultAction.IGNORE_ADVICE}
)


@dataclass(frozen=True, slots=True)
class SimulatedFault:
    """One fault to inject now."""

    action: SimulatedFaultAction
    #: Name of an instance, or a pattern of names: `proxy-1*`, `auth-*`, `all`.
    instance_pattern: str
    #: Number of agents, for strand, offline and ignore-advice.
    agent_count: int = 0

    @override
    def __str__(self) -> str:
        return " ".join(
            str(part) for part in (self.action, self.instance_pattern, self.agent_count or "") if part != ""
        )

    def match_names(self, instance_names: Iterable[str]) -> list[str]:
        """Return the names of the instances that match. Raises SimulatedFaultError if none does."""
        pattern = "*" if self.instance_pattern == "all" else self.instance_pattern
        matching_names = [name for name in instance_names if fnmatchcase(name, pattern)]
        if not matching_names:
            raise SimulatedFaultError(
                f"no instance matches {self.instance_pattern!r}: names are like auth-1 and proxy-1"
            )
        return matching_names


@dataclass(frozen=True, slots=True)
class ScriptStep:
    """One line of a script."""

    #: Seconds after the start.
    after_seconds: float
    fault: SimulatedFault


def parse_fault(text: str) -> SimulatedFault:
    """Read `ACTION TARGET [COUNT]`. Raises SimulatedFaultError."""
    parts = text.split()
    actions = ", ".join(SimulatedFaultAction)
    if len(parts) < 2:
        raise SimulatedFaultError(
            f"{text!r} is not a fault: write ACTION TARGET [COUNT]; the actions are {actions}"
        )
    try:
        action = SimulatedFaultAction(parts[0])
    except ValueError:
        raise SimulatedFaultError(f"unknown action {parts[0]!r}: use one of {actions}") from None
    has_count = action in _ACTIONS_WITH_COUNT
    if len(parts) != (3 if has_count else 2):
        raise SimulatedFaultError(f"{action} needs TARGET{' COUNT' if has_count else ' only'}, not {text!r}")
    if not has_count:
        return SimulatedFault(action, parts[1])
    if not parts[2].isdecimal() or int(parts[2]) == 0:
        raise SimulatedFaultError(f"{parts[2]!r} is not a number of agents greater than 0: {text!r}")
    return SimulatedFault(action, parts[1], int(parts[2]))


def parse_script(text: str) -> tuple[ScriptStep, ...]:
    """Parse lines of the form `t=SECONDS FAULT`, with # comments; return the steps by time.

    Raises SimulatedFaultError.
    """
    steps = []
    for number, line in enumerate(text.splitlines(), start=1):
        code = line.partition("#")[0].strip()
        if not code:
            continue
        moment, _, rest = code.partition(" ")
        try:
            if not moment.startswith("t="):
                raise SimulatedFaultError(f"a step must begin with t=SECONDS, not with {moment!r}")
            steps.append(ScriptStep(_parse_seconds(moment[2:]), parse_fault(rest)))
        except SimulatedFaultError as error:
            raise SimulatedFaultError(f"line {number}: {error}") from None
    return tuple(sorted(steps, key=lambda step: step.after_seconds))


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise SimulatedFaultError(f"{text!r} is not a number of seconds")
    return seconds
