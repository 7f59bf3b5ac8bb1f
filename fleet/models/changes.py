"""Changes to clusters, and the log of all that anybody did. docs/changes.md.

Rows only: `fleet.changes` writes them, one function for each thing that may happen.
"""

from __future__ import annotations

from typing import Any, TypeVar

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone
from typing_extensions import override

from fleet.models.clusters import Cluster
from fleet.vocabulary.changes import EXCLUSIVE_STATES, ActorKind, ChangeKind, ChangeState

_KINDS = [(kind.value, kind.label) for kind in ChangeKind]
_STATES = [(state.value, state.value) for state in ChangeState]
_ACTORS = [(kind.value, kind.value) for kind in ActorKind]

Row = TypeVar("Row", bound=models.Model)


class Change(models.Model):
    """One change, from its plan to what came of it."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="changes")
    kind = models.CharField(max_length=24, choices=_KINDS)
    state = models.CharField(max_length=16, choices=_STATES, default=ChangeState.PLANNED.value)
    #: Counts its steps, so that who acts on what they read can say which step they saw.
    step = models.PositiveIntegerField(default=1)
    #: One line for lists: what is changed.
    title = models.CharField(max_length=200)
    who = models.CharField(max_length=200)
    actor_kind = models.CharField(max_length=8, choices=_ACTORS)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    #: Empty until it is confirmed.
    reason = models.CharField(max_length=500, blank=True, default="")
    #: What is there and what is wanted, as documents of the kind.
    before = models.JSONField(null=True, blank=True)
    after = models.JSONField(null=True, blank=True)
    #: What was foreseen when it was planned, and how many agents it touches.
    plan = models.JSONField(default=dict, blank=True)
    agents = models.PositiveIntegerField(default=0)
    #: How it is to be done, for kinds that take time.
    parameters = models.JSONField(default=dict, blank=True)
    progress = models.JSONField(default=dict, blank=True)
    #: What happened, to be held against the plan.
    outcome = models.JSONField(default=dict, blank=True)
    #: Why it is in its state, as a sentence: an error, a reason to pause.
    detail = models.TextField(blank=True, default="")
    needs_second = models.BooleanField(default=False)
    confirmed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    #: The second person who agreed.
    approved_by = models.CharField(max_length=200, blank=True, default="")
    undoes = models.ForeignKey(
        "self", on_delete=models.SET_NULL, null=True, blank=True, related_name="undone_by"
    )
    request_id = models.CharField(max_length=64, blank=True, default="")
    #: Given by a client that may ask twice; the second time it is answered the same change.
    idempotency_key = models.CharField(max_length=100, blank=True, default="")
    created_at = models.DateTimeField(default=timezone.now)
    confirmed_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        default_permissions = ()
        ordering = ("-created_at", "-pk")
        indexes = (models.Index(fields=("cluster", "-created_at"), name="change_by_time"),)
        constraints = (
            models.UniqueConstraint(
                fields=("cluster",),
                condition=Q(state__in=[state.value for state in EXCLUSIVE_STATES]),
                name="one_change_at_a_time",
            ),
            models.UniqueConstraint(
                fields=("cluster", "idempotency_key"),
                condition=~Q(idempotency_key=""),
                name="one_change_per_key",
            ),
        )

    @override
    def __str__(self) -> str:
        return f"{self.kind} {self.pk}: {self.title}"


class AppendOnlyError(Exception):
    """Somebody tried to change or delete what was written for good."""


class AppendOnlyQuerySet(models.QuerySet[Row]):
    """Rows that are written once."""

    @override
    def update(self, **kwargs: Any) -> int:
        raise AppendOnlyError("the audit log is never changed")

    @override
    def delete(self) -> tuple[int, dict[str, int]]:
        raise AppendOnlyError("the audit log is never deleted from")


class AuditEntry(models.Model):
    """One attempt of anybody to change anything, also a refused one. Triggers of the database guard it as well.

    No foreign keys: it outlives people, clusters and changes.
    """

    at = models.DateTimeField(default=timezone.now)
    #: Empty for what concerns no cluster.
    cluster = models.CharField(max_length=64, blank=True, default="")
    who = models.CharField(max_length=200)
    actor_kind = models.CharField(max_length=8, choices=_ACTORS)
    user_id = models.BigIntegerField(null=True, blank=True)
    #: What was tried: `networking-config.confirm`.
    action = models.CharField(max_length=64)
    #: On what: a change's title, an instance, a user's name.
    subject = models.CharField(max_length=255, blank=True, default="")
    #: `done`, `refused` (by a rule) or `failed` (by an error).
    outcome = models.CharField(max_length=8)
    #: Why it was refused, or what went wrong.
    detail = models.TextField(blank=True, default="")
    #: What the actor said.
    reason = models.CharField(max_length=500, blank=True, default="")
    before = models.JSONField(null=True, blank=True)
    after = models.JSONField(null=True, blank=True)
    change_id = models.BigIntegerField(null=True, blank=True)
    request_id = models.CharField(max_length=64, blank=True, default="")

    objects = AppendOnlyQuerySet.as_manager()

    class Meta:
        default_permissions = ()
        ordering = ("-at", "-pk")
        indexes = (
            models.Index(fields=("cluster", "-at"), name="audit_by_time"),
            models.Index(fields=("change_id",), name="audit_by_change"),
        )

    @override
    def __str__(self) -> str:
        return f"{self.who}: {self.action} {self.subject} ({self.outcome})"

    @override
    def save(self, *args: Any, **kwargs: Any) -> None:
        """Write it once. Raises AppendOnlyError the second time."""
        if not self._state.adding:
            raise AppendOnlyError("the audit log is never changed")
        super().save(*args, **kwargs)

    @override
    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Refuse."""
        raise AppendOnlyError("the audit log is never deleted from")
