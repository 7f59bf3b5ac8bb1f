"""The schedule of a soak: which faults, on what, when and for how long. Pure; a seed determines it entirely."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    """What a fault concerns."""

    INSTANCE = "instance"
    #: Processes that carry traffic but are no instances: balancers, gateway, agents.
    MEMBER = "member"
    #: The backend of all auths.
    BACKEND = "backend"
    #: A program of the console, its Redis or its database.
    CONSOLE = "console"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, and how it is undone; the words are those of `refloat fleet`."""

    action: str
    undo: str
    target: str
    scope: Scope

    @property
    def label(self) -> str:
        """Name for people: `freeze proxy-1`."""
        return f"{self.action} {self.target}"

    @property
    def makes_sick(self) -> bool:
        """Return whether the target is an instance that must be shown as failing."""
        return self.scope is Scope.INSTANCE and self.action != "drain"


@dataclass(frozen=True, slots=True)
class Step:
    """A fault at a time, seconds after the start. Some steps kill a program of the console meanwhile."""

    number: int
    at: float
    duration: float
    fault: Fault
    killed_program: str = ""

    @property
    def label(self) -> str:
        """Name for people: `freeze proxy-1 for 30 s, meanwhile kill web`."""
        meanwhile = f", meanwhile kill {self.killed_program}" if self.killed_program else ""
        if self.fault.scope is Scope.CONSOLE:
            return self.fault.label
        return f"{self.fault.label} for {self.duration:.0f} s{meanwhile}"


@dataclass(frozen=True, slots=True)
class Shape:
    """The processes of an installation that faults can concern."""

    auths: int = 2
    proxies: int = 3
    #: Agents, and processes of them; the agents are shared evenly.
    agents: int = 12
    agent_processes: int = 3
    programs: Sequence[str] = ("web", "worker-polls", "worker-actions", "beat", "alerts", "valkey")

    @property
    def agents_per_process(self) -> int:
        """Agents in one process."""
        return -(-self.agents // self.agent_processes)


#: Faults of auths and proxies.
_OF_INSTANCES = (
    ("freeze", "resume"),
    ("kill", "restart"),
    ("block-backend", "unblock-backend"),
    ("block-backend --hold", "unblock-backend"),
    ("blackhole", "unblackhole"),
    ("blackhole --keep-backend", "unblackhole"),
    ("drain", "undrain"),
)
#: Seconds: how long a fault lasts, and how long nothing happens after a fleet has healed.
_DURATIONS, _GAPS = (15.0, 45.0), (3.0, 12.0)
#: Seconds that a plan reserves for healing.
_HEALING = 20.0
_KILL_SHARE = 0.2


def list_faults(shape: Shape) -> list[Fault]:
    """Return every fault of an installation of this shape."""
    instances = [f"auth-{number}" for number in range(1, shape.auths + 1)]
    instances += [f"proxy-{number}" for number in range(1, shape.proxies + 1)]
    agents = [f"agents-{number}" for number in range(1, shape.agent_processes + 1)]
    faults = [
        Fault(action, undo, name, Scope.INSTANCE) for name in instances for action, undo in _OF_INSTANCES
    ]
    faults += [
        Fault(action, undo, name, Scope.MEMBER)
        for name in agents
        for action, undo in (("freeze", "resume"), ("kill", "restart"))
    ]
    faults += [
        Fault("kill", "restart", name, Scope.MEMBER)
        for name in ("auth-balancer", "proxy-balancer", "gateway")
    ]
    faults.append(Fault("freeze", "resume", "backend", Scope.BACKEND))
    faults += [Fault("kill", "", name, Scope.CONSOLE) for name in shape.programs]
    return faults


def plan(seed: int, minutes: float, shape: Shape) -> list[Step]:
    """Return the steps of a soak that lasts so long. Every fault comes once before one comes a second time."""
    rng = random.Random(seed)
    draws = _draw(rng, list_faults(shape))
    steps: list[Step] = []
    at = 0.0
    while True:
        fault = next(draws)
        is_instant = fault.scope is Scope.CONSOLE
        at += rng.uniform(*_GAPS)
        duration = 0.0 if is_instant else round(rng.uniform(*_DURATIONS), 1)
        is_kill = fault.scope is Scope.INSTANCE and rng.random() < _KILL_SHARE
        killed_program = rng.choice([name for name in shape.programs if name != "valkey"]) if is_kill else ""
        if steps and at + duration > 60.0 * minutes:
            return steps
        steps.append(Step(len(steps) + 1, round(at, 1), duration, fault, killed_program))
        at += duration + _HEALING


def format_schedule(steps: Sequence[Step]) -> str:
    """Return the schedule as text, a line for each step."""
    return "\n".join(f"{step.number:4}  t={step.at:6.1f}  {step.label}" for step in steps)


def _draw(rng: random.Random, faults: Sequence[Fault]) -> Iterator[Fault]:
    """Yield the faults in random order, again and again; no two in a row concern the same target."""
    last = ""
    while True:
        bag = list(faults)
        rng.shuffle(bag)
        while bag:
            index = next((index for index, fault in enumerate(bag) if fault.target != last), 0)
            fault = bag.pop(index)
            last = fault.target
            yield fault
