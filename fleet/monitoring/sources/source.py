"""What a source of evidence declares, and what it asks with. docs/howto/add-an-evidence-source.md."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import grpc.aio

from fleet.transport.poll_connections import Connections
from fleet.vocabulary.instances import InstanceKind, Poll

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True)
class Target:
    """An instance to ask."""

    #: None for an address of which the record knows no instance yet.
    index: int | None
    kind: InstanceKind
    address: str
    diag_address: str = ""
    #: Our place in its feed.
    epoch: str = ""
    revision: int = 0
    #: Ask over a new connection.
    fresh: bool = False
    #: Agents to ask through it, as (index, id).
    agents: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """What the sources get to ask one instance with."""

    target: Target
    channel: grpc.aio.Channel
    #: For other questions than by gRPC.
    connections: Connections
    #: Seconds left.
    left: Callable[[], float]
    #: Says when an answer came, seconds since the epoch.
    clock: Callable[[], float]


def _every(_: Target) -> bool:
    return True


def _as_it_was(poll: Poll, _answer: object, _at: float) -> Poll:
    return poll


@dataclass(frozen=True, slots=True)
class EvidenceSource(Generic[AnswerT]):
    """One question. Sources of the same name are equal: their answers are the same evidence."""

    #: Of what an auth lists, also the name of its feed in the record.
    name: str
    #: Raises only SourceFailed.
    ask: Callable[[Question], Awaitable[AnswerT]] = field(compare=False)
    #: Which instances are asked.
    applies_to: Callable[[Target], bool] = field(default=_every, compare=False)
    #: Of the seconds that are left, how much it may use.
    share: float = field(default=1.0, compare=False)
    #: gRPC's failures are retried within that time: right for lists, wrong for what tells whether somebody is there.
    is_retried: bool = field(default=False, compare=False)
    #: An answer proves that the instance was reached.
    is_contact: bool = field(default=False, compare=False)
    #: Return the poll of the instance with what the answer says, and when it came.
    record: Callable[[Poll, AnswerT, float], Poll] = field(default=_as_it_was, compare=False)
