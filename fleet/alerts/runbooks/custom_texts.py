"""Custom texts of runbooks, written by operators: read them, and write them with an audit log entry.

docs/reference/alerts.md, "Runbooks".
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from django.db import IntegrityError, transaction

from fleet.audit import RequestActor, record_outcome
from fleet.models.alerting import filter_applicable_to
from fleet.models.runbooks import RunbookText
from fleet.vocabulary.actions import AuditAction, RefusalError
from fleet.vocabulary.runbooks import RunbookCause

#: Longest text, characters.
MAX_TEXT_LENGTH = 10_000


class RunbookTextError(RefusalError, ValueError):
    """The text cannot be stored; the message says why and how to mend it."""


class RunbookTextChangedError(RunbookTextError):
    """Somebody changed the text since the user read it."""


def read_custom_texts(cluster: str) -> dict[RunbookCause, RunbookText]:
    """Return the texts that a cluster shows: its own, or else those of the whole installation."""
    rows = filter_applicable_to(RunbookText.objects.all(), cluster).order_by("cluster")
    return {RunbookCause(row.cause): row for row in rows if row.cause in set(RunbookCause)}


def read_text(owner: str, cause: RunbookCause) -> str:
    """Return the text of an owner, a cluster or the whole installation (""); empty without one."""
    return (
        RunbookText.objects.filter(cluster=owner, cause=cause.value).values_list("text", flat=True).first()
        or ""
    )


def version_of(text: str) -> str:
    """Return a value that differs when the text differs: an edit names the version that it began with."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def normalize_text(text: str) -> str:
    """Return a text as it is stored: without NUL characters and surrounding blank lines, lines end with a line feed."""
    lines = text.replace("\0", "").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def find_text_problem(text: str) -> str:
    """Return why a normalized text cannot be stored, as the end of a sentence; empty if it can."""
    excess = len(text) - MAX_TEXT_LENGTH
    if excess <= 0:
        return ""
    return (
        f"the text has {len(text):,} characters, and at most {MAX_TEXT_LENGTH:,} are allowed. Shorten the text by "
        f"{excess:,}, or link to a page with the details"
    )


def save_text(
    owner: str, cause: RunbookCause, text: str, actor: RequestActor, now: float, *, seen_version: str = ""
) -> None:
    """Write the text of an owner, or remove it if the new text is empty.

    `seen_version`: the version that the edit began with; empty: any. Raises RunbookTextError and
    RunbookTextChangedError.
    """
    text, stored_text = normalize_text(text), read_text(owner, cause)
    if text == stored_text:
        return
    attempt = actor.create_attempt(
        AuditAction.RUNBOOK_UPDATE, owner, cause.label, before=_audit_values_of(cause, stored_text)
    )
    with record_outcome(attempt):
        if problem := find_text_problem(text):
            raise RunbookTextError(problem)
        if seen_version and seen_version != version_of(stored_text):
            raise RunbookTextChangedError("out of date: somebody changed this text")
        if not _replace(owner, cause, stored_text, text, actor.identity.name, now):
            raise RunbookTextChangedError("out of date: somebody changed this text")
        attempt.after = _audit_values_of(cause, text)


def _replace(
    owner: str, cause: RunbookCause, stored_text: str, text: str, author_name: str, now: float
) -> bool:
    """Replace exactly the stored text; return False if another request was first."""
    rows = RunbookText.objects.filter(cluster=owner, cause=cause.value)
    values = {"text": text, "updated_at": now, "updated_by": author_name[:200]}
    if not stored_text:
        try:
            with transaction.atomic():
                RunbookText.objects.create(cluster=owner, cause=cause.value, **values)
        except IntegrityError:
            return False
        return True
    unchanged_rows = rows.filter(text=stored_text)
    return bool(unchanged_rows.update(**values) if text else unchanged_rows.delete()[0])


def _audit_values_of(cause: RunbookCause, text: str) -> Mapping[str, str] | None:
    return {"cause": cause.value, "text": text} if text else None
