"""The audit log: one row for each attempt to change something, also a refused one.

docs/reference/changes.md, "Audit log".
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from fleet.models.changes import AuditEntry, Change
from fleet.vocabulary.actions import ActionName, AuditAction, AuditOutcome, RefusalError
from fleet.vocabulary.changes import SYSTEM_ACTOR, Actor, ActorKind

#: Ids of the rows written since `collect_audit_entry_ids` began.
_audit_entry_ids: ContextVar[list[int] | None] = ContextVar("audit_entry_ids", default=None)
#: Lengths of the columns in characters.
_MAX_LENGTHS = {"actor_name": 200, "subject": 255, "reason": 500}
#: Rows in one INSERT.
_BATCH_SIZE = 500


@dataclass(slots=True)
class Attempt:
    """An attempt to change something, with the fields of its row. The code that runs fills in what it finds out."""

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
        """Set number, title and cluster of the change that the attempt belongs to."""
        self.change_id, self.subject, self.cluster = change.pk, change.title, change.cluster_id


@dataclass(frozen=True, slots=True)
class RequestActor:
    """The actor of a request, and the ids of the request."""

    identity: Actor
    request_id: str = ""
    idempotency_key: str = ""
    #: A plan that this request makes is returned and not stored.
    is_dry_run: bool = False

    def create_attempt(
        self, action: AuditAction | ActionName, cluster: str = "", subject: str = "", **fields: Any
    ) -> Attempt:
        """Return an attempt by this actor; `fields` are fields of Attempt."""
        return Attempt(self.identity, action, cluster, subject, request_id=self.request_id, **fields)


#: Actor of what the console does without a person.
CONSOLE_ACTOR = RequestActor(SYSTEM_ACTOR)


def shell_actor_of(command: str) -> RequestActor:
    """Return the actor of a shell command: the command and the user of the operating system."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # no such user, as in a container
        name = f"user {os.getuid()}"
    return RequestActor(Actor(ActorKind.SYSTEM, f"manage.py {command}, by {name}"))


def write_entry(attempt: Attempt, outcome: AuditOutcome, now: datetime) -> AuditEntry:
    """Write a row. Call it outside transactions that may be rolled back, or the row is lost."""
    row = _entry_of(attempt, outcome, now)
    row.save(force_insert=True)
    _collect_ids([row])
    return row


def write_entries(attempts: Iterable[Attempt], outcome: AuditOutcome, now: datetime) -> None:
    """Write a row for each attempt; see `write_entry`."""
    _collect_ids(
        AuditEntry.objects.bulk_create(
            (_entry_of(attempt, outcome, now) for attempt in attempts), batch_size=_BATCH_SIZE
        )
    )


def _entry_of(attempt: Attempt, outcome: AuditOutcome, now: datetime) -> AuditEntry:
    return AuditEntry(
        at=now,
        cluster=attempt.cluster,
        actor_name=_fit_column("actor_name", attempt.actor.name),
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


def _collect_ids(rows: Iterable[AuditEntry]) -> None:
    if (entry_ids := _audit_entry_ids.get()) is not None:
        entry_ids.extend(row.pk for row in rows)


@contextmanager
def collect_audit_entry_ids() -> Iterator[list[int]]:
    """Collect the ids of the rows that are written in the block, also by threads that the block waits for."""
    entry_ids: list[int] = []
    token = _audit_entry_ids.set(entry_ids)
    try:
        yield entry_ids
    finally:
        _audit_entry_ids.reset(token)


@contextmanager
def record_outcome(attempt: Attempt, clock: Callable[[], datetime] = timezone.now) -> Iterator[Attempt]:
    """Write a row when the block ends: `done`, `refused` by a rule, or `failed`. Errors are raised again.

    A refusal that an inner block has written is not written twice.
    """
    try:
        yield attempt
    except RefusalError as error:
        if not error.is_logged:
            attempt.detail, error.is_logged = str(error), True
            write_entry(attempt, AuditOutcome.REFUSED, clock())
        raise
    except BaseException as error:
        attempt.detail = f"{type(error).__name__}: {error}"
        write_entry(attempt, AuditOutcome.FAILED, clock())
        raise
    write_entry(attempt, AuditOutcome.SUCCEEDED, clock())


def _fit_column(column: str, text: str) -> str:
    """Return the text without NUL characters and cut to the column, as PostgreSQL requires."""
    return text.replace("\0", "")[: _MAX_LENGTHS[column]]
