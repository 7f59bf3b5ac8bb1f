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
from fleet.vocabulary.actions import ActionName, AuditAction, AuditOutcome, RefusalError
from fleet.vocabulary.changes import SYSTEM_ACTOR, Actor, ActorKind

#: The ids of the rows that were written since `counting` began.
_recorded_ids: ContextVar[list[int] | None] = ContextVar("written", default=None)
#: As long as the columns.
_MAX_LENGTHS = {"who": 200, "subject": 255, "reason": 500}


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

    def set_change(self, change: Change) -> None:
        """Say which change it is about."""
        self.change_id, self.subject, self.cluster = change.pk, change.title, change.cluster_id


@dataclass(frozen=True, slots=True)
class RequestActor:
    """Who asks, and in which request."""

    identity: Actor
    request_id: str = ""
    idempotency_key: str = ""

    def create_attempt(
        self, action: AuditAction | ActionName, cluster: str = "", subject: str = "", **fields: Any
    ) -> Attempt:
        """Return an attempt of theirs; `fields` are those of Attempt."""
        return Attempt(self.identity, action, cluster, subject, request_id=self.request_id, **fields)


#: The console itself.
CONSOLE_ACTOR = RequestActor(SYSTEM_ACTOR)


def shell_actor_of(command: str) -> RequestActor:
    """Who asks at a shell: the command, and whom the operating system names."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # no such user, as in a container
        name = f"user {os.getuid()}"
    return RequestActor(Actor(ActorKind.SYSTEM, f"manage.py {command}, by {name}"))


def record(attempt: Attempt, outcome: AuditOutcome, now: datetime) -> AuditEntry:
    """Write one row. In a transaction that is rolled back it is lost: write it outside of those."""
    row = AuditEntry.objects.create(
        at=now,
        cluster=attempt.cluster,
        who=_fit_column("who", attempt.actor.name),
        actor_kind=attempt.actor.kind.value,
        user_id=attempt.actor.user_id,
        action=str(attempt.action),
        subject=_fit_column("subject", attempt.subject),
        outcome=str(outcome),
        detail=attempt.detail.replace("\0", ""),
        reason=_fit_column("reason", attempt.reason),
        before=attempt.before,
        after=attempt.after,
        change_id=attempt.change_id,
        request_id=attempt.request_id,
    )
    if (recorded_ids := _recorded_ids.get()) is not None:
        recorded_ids.append(row.pk)
    return row


@contextmanager
def collect_recorded_ids() -> Iterator[list[int]]:
    """Collect the ids of all rows that are written in the block, also by threads it waits for."""
    recorded_ids: list[int] = []
    token = _recorded_ids.set(recorded_ids)
    try:
        yield recorded_ids
    finally:
        _recorded_ids.reset(token)


@contextmanager
def record_outcome(attempt: Attempt, clock: Callable[[], datetime] = timezone.now) -> Iterator[Attempt]:
    """Write one row about the block when it ends: `done`, `refused` by a rule, or `failed`. Errors go on.

    A refusal that a block inside has written already is not written twice.
    """
    try:
        yield attempt
    except RefusalError as error:
        if not error.is_logged:
            attempt.detail, error.is_logged = str(error), True
            record(attempt, AuditOutcome.REFUSED, clock())
        raise
    except BaseException as error:
        attempt.detail = f"{type(error).__name__}: {error}"
        record(attempt, AuditOutcome.FAILED, clock())
        raise
    record(attempt, AuditOutcome.DONE, clock())


def _fit_column(column: str, text: str) -> str:
    """A text that the column takes: PostgreSQL refuses a NUL, and one that is too long."""
    return text.replace("\0", "")[: _MAX_LENGTHS[column]]
