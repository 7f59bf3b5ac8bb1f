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
DEMO_FLAGS = ("--auths", str(AUTHS), "--proxies", str(PROXIES), "--agents", str(AGENTS))

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


def _confirm(reason: str) -> Command:
    return ("--reason", reason, "--yes", "--no-wait")


_SET_PROXY_POLICY = ("policies", "set", "proxy", "TELEPORT_UNSTABLE_REVERSETUNNEL_RECONNECT_INTERVAL=6h")
FAULTS = (
    Fault(
        "frozen-proxy",
        "proxy-2 does not respond (frozen)",
        ("fleet", "freeze", "proxy-2"),
        ("fleet", "resume", "proxy-2"),
    ),
    Fault(
        "killed-proxy",
        "proxy-3 has ended (killed)",
        ("fleet", "kill", "proxy-3"),
        ("fleet", "restart", "proxy-3"),
    ),
    Fault(
        "cut-auth",
        "auth-2 lost its backend",
        ("fleet", "block-backend", "auth-2"),
        ("fleet", "unblock-backend", "auth-2"),
    ),
    Fault(
        "cut-auths",
        "all auths lost the backend",
        ("fleet", "block-backend", *(f"auth-{number + 1}" for number in range(AUTHS))),
        ("fleet", "unblock-backend", *(f"auth-{number + 1}" for number in range(AUTHS))),
    ),
    Fault(
        "blackholed-proxy",
        "proxy-4 does not respond (blackholed)",
        ("fleet", "blackhole", "proxy-4"),
        ("fleet", "unblackhole", "proxy-4"),
    ),
    Fault(
        "campaign",
        "a campaign moves agents off proxy-1",
        ("reconnect", "start", "--proxy", "proxy-1", *_confirm("maintenance of the host of proxy-1")),
    ),
    Fault(
        "rollout",
        "a rollout restarts the proxies, one at a time",
        (*_SET_PROXY_POLICY, *_confirm("new policy for proxies")),
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
