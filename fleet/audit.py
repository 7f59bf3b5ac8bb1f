"""The log of all that anybody did: one row for each attempt, also a refused one. docs/changes.md, "The log"."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from fleet.models.changes import AuditEntry, Change
from fleet.vocabulary.actions import ActionName, AuditAction, AuditOutcome, Refusal
from fleet.vocabulary.changes import SYSTEM, Actor, ActorKind

#: The ids of the rows that were written since `counting` began.
_written: ContextVar[list[int] | None] = ContextVar("written", default=None)
#: As long as the columns.
_LONGEST = {"who": 200, "subject": 255, "reason": 500}


@dataclass(slots=True)
class Attempt:
    """What is tried; fill in what becomes known on the way."""

    actor: Actor
    action: AuditAction | ActionName
    cluster: str = ""
    subject: str = ""
    reason: str = ""
    before: Any = None
    after: Any = None
    detail: str = ""
    change_id: int | None = None
    request_id: str = ""

    def about(self, change: Change) -> None:
        """Say which change it is about."""
        self.change_id, self.subject, self.cluster = change.pk, change.title, change.cluster_id


@dataclass(frozen=True, slots=True)
class By:
    """Who asks, and in which request."""

    actor: Actor
    request_id: str = ""
    idempotency_key: str = ""

    def attempt(
        self, action: AuditAction | ActionName, cluster: str = "", subject: str = "", **fields: Any
    ) -> Attempt:
        """Return an attempt of theirs; `fields` are those of Attempt."""
        return Attempt(self.actor, action, cluster, subject, request_id=self.request_id, **fields)


#: The console itself.
CONSOLE = By(SYSTEM)


def shell(command: str) -> By:
    """Who asks at a shell: the command, and whom the operating system names."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # no such user, as in a container
        name = f"user {os.getuid()}"
    return By(Actor(ActorKind.SYSTEM, f"manage.py {command}, by {name}"))


def record(attempt: Attempt, outcome: AuditOutcome, now: datetime) -> AuditEntry:
    """Write one row. In a transaction that is rolled back it is lost: write it outside of those."""
    row = AuditEntry.objects.create(
        at=now,
        cluster=attempt.cluster,
        who=_fit("who", attempt.actor.name),
        actor_kind=attempt.actor.kind.value,
        user_id=attempt.actor.user_id,
        action=str(attempt.action),
        subject=_fit("subject", attempt.subject),
        outcome=str(outcome),
        detail=attempt.detail.replace("\0", ""),
        reason=_fit("reason", attempt.reason),
        before=attempt.before,
        after=attempt.after,
        change_id=attempt.change_id,
        request_id=attempt.request_id,
    )
    if (written := _written.get()) is not None:
        written.append(row.pk)
    return row


@contextmanager
def counting() -> Iterator[list[int]]:
    """Collect the ids of all rows that are written in the block, also by threads it waits for."""
    written: list[int] = []
    token = _written.set(written)
    try:
        yield written
    finally:
        _written.reset(token)


@contextmanager
def attempted(attempt: Attempt, clock: Callable[[], datetime] = timezone.now) -> Iterator[Attempt]:
    """Write one row about the block when it ends: `done`, `refused` by a rule, or `failed`. Errors go on.

    A refusal that a block inside has written already is not written twice.
    """
    try:
        yield attempt
    except Refusal as error:
        if not error.logged:
            attempt.detail, error.logged = str(error), True
            record(attempt, AuditOutcome.REFUSED, clock())
        raise
    except BaseException as error:
        attempt.detail = f"{type(error).__name__}: {error}"
        record(attempt, AuditOutcome.FAILED, clock())
        raise
    record(attempt, AuditOutcome.DONE, clock())


def _fit(column: str, text: str) -> str:
    """A text that the column takes: PostgreSQL refuses a NUL, and one that is too long."""
    return text.replace("\0", "")[: _LONGEST[column]]
