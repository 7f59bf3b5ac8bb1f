"""Messages of a TCP-over-gRPC tunnel: what is sent on Register, independent of the wire version.

Both versions (the design "TCP over gRPC Tunnel", 0.1, and openconfig/grpctunnel 0.2) have the same messages;
`fleet.transport.tunnel.codec` encodes them for either. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TypeAlias

from typing_extensions import override

#: Maximum length of a target's name and of its type, characters: responses and subscribers receive both.
LONGEST_TARGET = 1024
#: Highest tag: tags are int32, and 0 is never used.
HIGHEST_TAG = (1 << 31) - 1


class WireVersion(Enum):
    """Version of the protocol: from configuration or metadata, never guessed from the first message."""

    V0_1 = "0.1"
    V0_2 = "0.2"


class TunnelError(Exception):
    """An error for the other end or the caller; the message is sent over the wire as it is."""


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """The destination of a session. Version 0.1 has no types."""

    name: str
    type: str = ""

    @override
    def __str__(self) -> str:
        return f"{self.name} ({self.type})" if self.type else self.name


class Op(IntEnum):
    """Operation on a target or a subscription; the numbers are the wire's."""

    UNKNOWN = 0
    #: SUBSCRIBE of a subscription.
    ADD = 1
    #: UNSUBSCRIBE of a subscription.
    REMOVE = 2


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The first message of both ends in version 0.1."""

    handler: bool


@dataclass(frozen=True, slots=True)
class Registration:
    """Registration or removal of a target, the response to it, or a notice of it for subscribers."""

    op: Op
    target: Target
    accept: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class Session:
    """Request for a session, or its acceptance or refusal. The requester's tag identifies it on this connection."""

    tag: int
    target: Target = Target("")
    accept: bool = False
    error: str = ""
    #: Why the message is invalid; never sent.
    malformed_reason: str = ""


@dataclass(frozen=True, slots=True)
class Subscription:
    """Version 0.2: subscribes a client to the targets of a type; an empty type means all."""

    op: Op
    type: str = ""
    accept: bool = False
    error: str = ""


#: A message on Register. None is an empty message, which is legal and has no meaning.
Message: TypeAlias = Capabilities | Registration | Session | Subscription | None


class Tags:
    """The tags of one end, each used once: +1, +2, … of a server, -1, -2, … of a client."""

    def __init__(self, step: int) -> None:
        assert step in (1, -1)
        self._step = step
        self._last = 0

    def take(self) -> int:
        """Return the next tag. Raises TunnelError when all int32 tags are used up."""
        if abs(self._last) >= HIGHEST_TAG:
            raise TunnelError("this connection has used up its tags. Open a new connection")
        self._last += self._step
        return self._last
