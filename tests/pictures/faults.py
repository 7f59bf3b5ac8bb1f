"""The faults of which pictures are made: the commands that cause and repair each, and names of pictures. Pure."""

from __future__ import annotations

import random
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

#: Seconds after the command of a fault has returned, one picture each.
DELAYS = (5, 10, 60)
#: Shape of the fleet in the pictures.
AUTHS, PROXIES, AGENTS = 3, 4, 60
DEMO_FLAGS = ("--auths", str(AUTHS), "--proxies", str(PROXIES))

#: Arguments of `refloat`.
Command = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, or a change on purpose, that the map must show. Both commands are arguments of `refloat`."""

    name: str
    #: A stranger who sees the pictures should name this.
    answer: str
    cause: Command
    #: What repairs it; none where it ends without help.
    repair: Command = ()


def confirm(reason: str) -> Command:
    """Return the flags that confirm a change without a prompt."""
    return ("--reason", reason, "--yes")


def _break(name: str, answer: str, cause: str, repair: str, *instances: str) -> Fault:
    """Return a fault of instances, which one command of `refloat fleet` causes and another one repairs."""
    return Fault(name, answer, ("fleet", cause, *instances), ("fleet", repair, *instances))


_SET_PROXY_POLICY = ("policies", "set", "proxy", "TELEPORT_UNSTABLE_REVERSETUNNEL_RECONNECT_INTERVAL=6h")
_ALL_AUTHS = tuple(f"auth-{number + 1}" for number in range(AUTHS))
FAULTS = (
    _break("frozen-proxy", "proxy-2 does not respond (frozen)", "freeze", "resume", "proxy-2"),
    _break("killed-proxy", "proxy-3 has ended (killed)", "kill", "restart", "proxy-3"),
    _break("cut-auth", "auth-2 lost its backend", "block-backend", "unblock-backend", "auth-2"),
    _break("cut-auths", "all auths lost the backend", "block-backend", "unblock-backend", *_ALL_AUTHS),
    _break(
        "blackholed-proxy", "proxy-4 does not respond (blackholed)", "blackhole", "unblackhole", "proxy-4"
    ),
    Fault(
        "campaign",
        "a campaign moves agents off proxy-1",
        (
            "reconnect",
            "start",
            "--proxy",
            "proxy-1",
            *confirm("maintenance of the host of proxy-1"),
            "--no-wait",
        ),
    ),
    Fault(
        "rollout",
        "a rollout restarts the proxies, one at a time",
        (*_SET_PROXY_POLICY, *confirm("new policy for proxies"), "--no-wait"),
    ),
)


def select_faults(names: Sequence[str]) -> tuple[Fault, ...]:
    """Return the faults with these names in the order of `FAULTS`; all without names. Raises ValueError."""
    unknown = set(names) - {fault.name for fault in FAULTS}
    if unknown:
        raise ValueError(
            f"unknown fault: {', '.join(sorted(unknown))}; there are {', '.join(f.name for f in FAULTS)}"
        )
    return tuple(fault for fault in FAULTS if not names or fault.name in names)


def assign_letters(faults: Iterable[Fault], seed: int) -> dict[str, str]:
    """Return a letter for each fault by name, in an order that does not tell the fault."""
    names = [fault.name for fault in faults]
    letters = list(string.ascii_lowercase[: len(names)])
    random.Random(seed).shuffle(letters)
    return dict(zip(names, letters, strict=True))


def format_key(faults: Iterable[Fault], letters: dict[str, str]) -> str:
    """Return the lines of the key: the letter in the names of the pictures, and what they show."""
    lines = sorted(f"{letters[fault.name]}  {fault.name:<18} {fault.answer}" for fault in faults)
    return "\n".join(lines) + "\n"
