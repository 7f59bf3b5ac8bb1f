"""Changes to clusters, and the audit log. docs/reference/changes.md.

Rows only: `fleet.changes` writes them, with one function for each transition.
"""

from __future__ import annotations

from typing import Any, TypeVar

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone
from typing_extensions import override

from fleet.models.clusters import Cluster
from fleet.vocabulary.changes import EXCLUSIVE_STATES, ActorKind, ChangeKind, ChangeState, state_label_of

_KINDS = [(kind.value, kind.label) for kind in ChangeKind]
_STATES = [(state.value, state.value) for state in ChangeState]
_ACTOR_KINDS = [(kind.value, kind.value) for kind in ActorKind]

Row = TypeVar("Row", bound=models.Model)


class Change(models.Model):
    """One change, from its plan to its outcome."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="changes")
    kind = models.CharField(max_length=24, choices=_KINDS)
    state = models.CharField(max_length=16, choices=_STATES, default=ChangeState.PLANNED.value)
    #: Number of state transitions, for compare-and-set and If-Match.
    step = models.PositiveIntegerField(default=1)
    #: One line that says what changes, for lists.
    title = models.CharField(max_length=200)
    actor_name = models.CharField(max_length=200)
    actor_kind = models.CharField(max_length=8, choices=_ACTOR_KINDS)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    #: Reason given with the confirmation; empty until then.
    reason = models.CharField(max_length=500, blank=True, default="")
    #: The config or the desired values before and after the change, as documents of the kind.
    before = models.JSONField(null=True, blank=True)
    after = models.JSONField(null=True, blank=True)
    #: The expected effect, and the number of affected agents.
    plan = models.JSONField(default=dict, blank=True)
    affected_count = models.PositiveIntegerField(default=0)
    #: Settings of a campaign or a rollout.
    parameters = models.JSONField(default=dict, blank=True)
    progress = models.JSONField(default=dict, blank=True)
    #: The result, compared with the plan.
    outcome = models.JSONField(default=dict, blank=True)
    #: Why the change is in its state, as a sentence: an error, or why it is paused.
    detail = models.TextField(blank=True, default="")
    review_required = models.BooleanField(default=False)
    confirmed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    #: Name of the approver; empty: not approved.
    approved_by = models.CharField(max_length=200, blank=True, default="")
    undoes = models.ForeignKey(
        "self", on_delete=models.SET_NULL, null=True, blank=True, related_name="undone_by"
    )
    request_id = models.CharField(max_length=64, blank=True, default="")
    #: Key of a client that may repeat its request; the repeated request returns the same change.
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

    @property
    def state_label(self) -> str:
        """The state as pages name it; see `state_label_of`."""
        return state_label_of(self.state, has_started=self.started_at is not None)

    @property
    def kind_label(self) -> str:
        """What pages call the change: a retirement that reinstates agents is a `reinstatement`."""
        if self.kind == ChangeKind.RETIRE and not (self.after or {}).get("is_retired", True):
            return "reinstatement"
        return ChangeKind(self.kind).label


class AppendOnlyError(Exception):
    """An attempt to change or delete an append-only row."""


class AppendOnlyQuerySet(models.QuerySet[Row]):
    """A query set of append-only rows: update and delete raise AppendOnlyError."""

    @override
    def update(self, **kwargs: Any) -> int:
        raise AppendOnlyError("the audit log is append-only: entries cannot be changed")

    @override
    def delete(self) -> tuple[int, dict[str, int]]:
        raise AppendOnlyError("the audit log is append-only: entries cannot be deleted")


class AuditEntry(models.Model):
    """One attempted action, including refused ones. Database triggers make the table append-only too.

    There are no foreign keys, because entries outlive people, clusters and changes.
    """

    at = models.DateTimeField(default=timezone.now)
    #: Empty for actions that concern no cluster.
    cluster = models.CharField(max_length=64, blank=True, default="")
    actor_name = models.CharField(max_length=200)
    actor_kind = models.CharField(max_length=8, choices=_ACTOR_KINDS)
    user_id = models.BigIntegerField(null=True, blank=True)
    #: The attempted action: `networking-config.confirm`.
    action = models.CharField(max_length=64)
    #: The object of the action: the title of a change, an instance, a user's name.
    subject = models.CharField(max_length=255, blank=True, default="")
    #: `succeeded`, `refused` (by a rule) or `failed` (by an error).
    outcome = models.CharField(max_length=16)
    #: Why the action was refused, or the error.
    detail = models.TextField(blank=True, default="")
    #: The reason that the actor gave.
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
        return f"{self.actor_name}: {self.action} {self.subject} ({self.outcome})"

    @override
    def save(self, *args: Any, **kwargs: Any) -> None:
        """Store a new entry. Raises AppendOnlyError for a stored one."""
        if not self._state.adding:
            raise AppendOnlyError("the audit log is append-only: entries cannot be changed")
        super().save(*args, **kwargs)

    @override
    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Raise AppendOnlyError."""
        raise AppendOnlyError("the audit log is append-only: entries cannot be deleted")
