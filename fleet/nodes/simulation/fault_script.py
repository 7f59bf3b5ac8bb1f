"""The faults of an invented fleet as text: `freeze proxy-14`, `strand proxy-3 50`, and scripts of them.

docs/simulate.md lists the actions. Pure; used by the simulator, its command and its tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from typing_extensions import override


class SimulatedFaultError(ValueError):
    """A fault or a script that cannot be read; the sentence says what is wrong and what would be right."""


class Action(StrEnum):
    """What can be done to an instance, or to agents of one."""

    #: The port accepts, nothing answers.
    FREEZE = "freeze"
    #: Undo freeze; tunnels are still there.
    THAW = "thaw"
    #: The port refuses; tunnels and heartbeats through it end.
    KILL = "kill"
    #: It answers NOT_SERVING and 503.
    UNHEALTHY = "unhealthy"
    #: It stops renewing its own resource, which then expires; an auth cannot write heartbeats either.
    EXPIRE = "expire"
    #: What a lost backend looks like: unhealthy and expire at once.
    CUT_BACKEND = "cut-backend"
    #: Some of its agents lose every tunnel and go on heartbeating.
    STRAND = "strand"
    #: Some of its agents lose every tunnel and stop heartbeating.
    OFFLINE = "offline"
    #: Some of its agents take no advice to reconnect elsewhere.
    DEAF = "deaf"
    #: Undo everything done to it and to agents through it.
    HEAL = "heal"


_ACTIONS_WITH_COUNT = frozenset({Action.STRAND, Action.OFFLINE, Action.DEAF})


@dataclass(frozen=True, slots=True)
class SimulatedFault:
    """One thing to do now."""

    action: Action
    #: An instance's name, or a pattern of names: `proxy-1*`, `auth-*`, `all`.
    target: str
    #: Agents concerned, for strand, offline and deaf.
    count: int = 0

    @override
    def __str__(self) -> str:
        return " ".join(str(part) for part in (self.action, self.target, self.count or "") if part != "")

    def names(self, instance_names: Iterable[str]) -> list[str]:
        """The instances it means. Raises FaultError when there are none."""
        pattern = "*" if self.target == "all" else self.target
        matching_names = [name for name in instance_names if fnmatchcase(name, pattern)]
        if not matching_names:
            raise SimulatedFaultError(f"no instance is called {self.target!r}: names are like auth-1 and proxy-1")
        return matching_names


@dataclass(frozen=True, slots=True)
class ScriptStep:
    """One line of a script."""

    #: Seconds after the start.
    after_seconds: float
    fault: SimulatedFault


def parse_fault(text: str) -> SimulatedFault:
    """Read `ACTION TARGET [COUNT]`. Raises FaultError."""
    parts = text.split()
    actions = ", ".join(Action)
    if len(parts) < 2:
        raise SimulatedFaultError(f"{text!r} is no fault: write ACTION TARGET [COUNT], with one of {actions}")
    try:
        action = Action(parts[0])
    except ValueError:
        raise SimulatedFaultError(f"{parts[0]!r} is no action: use one of {actions}") from None
    has_count = action in _ACTIONS_WITH_COUNT
    if len(parts) != (3 if has_count else 2):
        raise SimulatedFaultError(f"{action} takes TARGET{' COUNT' if has_count else ' alone'}: {text!r}")
    if not has_count:
        return SimulatedFault(action, parts[1])
    if not parts[2].isdecimal() or int(parts[2]) == 0:
        raise SimulatedFaultError(f"{parts[2]!r} is no number of agents: {text!r}")
    return SimulatedFault(action, parts[1], int(parts[2]))


def parse_script(text: str) -> tuple[ScriptStep, ...]:
    """Read lines `t=SECONDS FAULT`, with # comments, into steps in order of time. Raises FaultError."""
    steps = []
    for number, line in enumerate(text.splitlines(), start=1):
        code = line.partition("#")[0].strip()
        if not code:
            continue
        moment, _, rest = code.partition(" ")
        try:
            if not moment.startswith("t="):
                raise SimulatedFaultError(f"a step begins with t=SECONDS, this one with {moment!r}")
            steps.append(ScriptStep(_seconds(moment[2:]), parse_fault(rest)))
        except SimulatedFaultError as error:
            raise SimulatedFaultError(f"line {number}: {error}") from None
    return tuple(sorted(steps, key=lambda step: step.after_seconds))


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise SimulatedFaultError(f"{text!r} is no number of seconds")
    return seconds
