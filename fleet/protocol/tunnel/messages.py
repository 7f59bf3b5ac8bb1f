"""The words of a TCP-over-gRPC tunnel: what travels on Register, and what its two ends decide.

Both versions of the wire say the same things (seed "TCP over gRPC Tunnel"; openconfig/grpctunnel 0.2): a message here
is of neither, and `fleet.transport.tunnel.codec` writes it as either. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TypeAlias

from typing_extensions import override

#: Characters of the name and of the type of a target: answers repeat them, and subscribers hear them.
LONGEST_TARGET = 1024
#: Tags are int32, and 0 is nobody's.
LAST_TAG = (1 << 31) - 1


class WireVersion(Enum):
    """Which version an end speaks: configuration or metadata, never guessed from what it says first."""

    V0_1 = "0.1"
    V0_2 = "0.2"


class TunnelError(Exception):
    """What the other end, or the caller, is told; the sentence goes over the wire as it is."""


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """What a session is opened to. Version 0.1 knows no types."""

    name: str
    type: str = ""

    @override
    def __str__(self) -> str:
        return f"{self.name} ({self.type})" if self.type else self.name


class Op(IntEnum):
    """What a target or a subscription is about; the numbers are the wire's."""

    UNKNOWN = 0
    #: SUBSCRIBE of a subscription.
    ADD = 1
    #: UNSUBSCRIBE of a subscription.
    REMOVE = 2


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Version 0.1: the first message of either end."""

    handler: bool


@dataclass(frozen=True, slots=True)
class Registration:
    """A target comes or goes; or the answer to that; or news of it for subscribers."""

    op: Op
    target: Target
    accept: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class Session:
    """A session is asked for, accepted or refused. The asker's tag names it on this connection."""

    tag: int
    target: Target = Target("")
    accept: bool = False
    error: str = ""
    #: Why it can be neither of these; never sent.
    malformed_reason: str = ""


@dataclass(frozen=True, slots=True)
class Subscription:
    """Version 0.2: a client wants to hear of targets of a type; empty means of all."""

    op: Op
    type: str = ""
    accept: bool = False
    error: str = ""


#: What travels on Register. None is an empty message: legal, and of no meaning.
Message: TypeAlias = Capabilities | Registration | Session | Subscription | None


class Tags:
    """Tags of one end, each given once: +1, +2, … of a server, -1, -2, … of a client."""

    def __init__(self, step: int) -> None:
        assert step in (1, -1)
        self._step = step
        self._last = 0

    def take(self) -> int:
        """The next. Raises TunnelError when an int32 has no more."""
        if abs(self._last) >= LAST_TAG:
            raise TunnelError("this connection has used up its tags: open a new one")
        self._last += self._step
        return self._last
