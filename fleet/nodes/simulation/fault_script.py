"""The faults of an invented fleet as text: `freeze proxy-14`, `strand proxy-3 50`, and scripts of them.

docs/simulate.md lists the actions. Pure; used by the simulator, its command and its tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from typing_extensions import override


class FaultError(ValueError):
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


_COUNTED = frozenset({Action.STRAND, Action.OFFLINE, Action.DEAF})


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing to do now."""

    action: Action
    #: An instance's name, or a pattern of names: `proxy-1*`, `auth-*`, `all`.
    target: str
    #: Agents concerned, for strand, offline and deaf.
    count: int = 0

    @override
    def __str__(self) -> str:
        return " ".join(str(part) for part in (self.action, self.target, self.count or "") if part != "")

    def names(self, known: Iterable[str]) -> list[str]:
        """The instances it means. Raises FaultError when there are none."""
        pattern = "*" if self.target == "all" else self.target
        found = [name for name in known if fnmatchcase(name, pattern)]
        if not found:
            raise FaultError(f"no instance is called {self.target!r}: names are like auth-1 and proxy-1")
        return found


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a script."""

    #: Seconds after the start.
    after: float
    fault: Fault


def parse_fault(text: str) -> Fault:
    """Read `ACTION TARGET [COUNT]`. Raises FaultError."""
    words = text.split()
    actions = ", ".join(Action)
    if len(words) < 2:
        raise FaultError(f"{text!r} is no fault: write ACTION TARGET [COUNT], with one of {actions}")
    try:
        action = Action(words[0])
    except ValueError:
        raise FaultError(f"{words[0]!r} is no action: use one of {actions}") from None
    counted = action in _COUNTED
    if len(words) != (3 if counted else 2):
        raise FaultError(f"{action} takes TARGET{' COUNT' if counted else ' alone'}: {text!r}")
    if not counted:
        return Fault(action, words[1])
    if not words[2].isdecimal() or int(words[2]) == 0:
        raise FaultError(f"{words[2]!r} is no number of agents: {text!r}")
    return Fault(action, words[1], int(words[2]))


def parse_script(text: str) -> tuple[Step, ...]:
    """Read lines `t=SECONDS FAULT`, with # comments, into steps in order of time. Raises FaultError."""
    steps = []
    for number, line in enumerate(text.splitlines(), start=1):
        code = line.partition("#")[0].strip()
        if not code:
            continue
        moment, _, rest = code.partition(" ")
        try:
            if not moment.startswith("t="):
                raise FaultError(f"a step begins with t=SECONDS, this one with {moment!r}")
            steps.append(Step(_seconds(moment[2:]), parse_fault(rest)))
        except FaultError as error:
            raise FaultError(f"line {number}: {error}") from None
    return tuple(sorted(steps, key=lambda step: step.after))


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise FaultError(f"{text!r} is no number of seconds")
    return value
