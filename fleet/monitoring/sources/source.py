"""What a source of evidence declares, and what it asks with. docs/howto/add-an-evidence-source.md."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import grpc.aio

from fleet.transport.poll_connections import Connections
from fleet.vocabulary.instances import InstanceKind, Poll

ResponseT = TypeVar("ResponseT")


@dataclass(frozen=True, slots=True)
class PollTarget:
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
class SourceContext:
    """What the sources get to ask one instance with."""

    target: PollTarget
    channel: grpc.aio.Channel
    #: For other questions than by gRPC.
    connections: Connections
    #: Seconds left.
    remaining_seconds: Callable[[], float]
    #: Says when an answer came, seconds since the epoch.
    clock: Callable[[], float]


def _applies_to_all(_: PollTarget) -> bool:
    return True


def _keep_poll(poll: Poll, _answer: object, _at: float) -> Poll:
    return poll


@dataclass(frozen=True, slots=True)
class EvidenceSource(Generic[ResponseT]):
    """One question. Sources of the same name are equal: their answers are the same evidence."""

    #: Of what an auth lists, also the name of its feed in the record.
    name: str
    #: Raises only SourceError.
    query: Callable[[SourceContext], Awaitable[ResponseT]] = field(compare=False)
    #: Which instances are asked.
    applies_to: Callable[[PollTarget], bool] = field(default=_applies_to_all, compare=False)
    #: Of the seconds that are left, how much it may use.
    share: float = field(default=1.0, compare=False)
    #: gRPC's failures are retried within that time: right for lists, wrong for what tells whether somebody is there.
    is_retried: bool = field(default=False, compare=False)
    #: An answer proves that the instance was reached.
    is_contact: bool = field(default=False, compare=False)
    #: Return the poll of the instance with what the answer says, and when it came.
    record: Callable[[Poll, ResponseT, float], Poll] = field(default=_keep_poll, compare=False)
