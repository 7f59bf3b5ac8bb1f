"""Settings of alerting (rules, agent sets, silences, windows, channels, routes) and the outbox of deliveries.

docs/reference/alerts.md.
"""

from __future__ import annotations

import time
from datetime import date, timedelta
from typing import TypeVar

from django.db import models
from django.db.models import Q, QuerySet
from typing_extensions import override

from fleet.models.clusters import Cluster
from fleet.models.incidents import Incident
from fleet.models.moments import SecondsField

_Row = TypeVar("_Row", bound="OwnedModel")


class OwnedModel(models.Model):
    """An object that belongs to one cluster, or to the whole installation.

    docs/reference/access.md, "Cluster limits".
    """

    #: Id of the cluster that owns the object; empty: the whole installation. Never changes.
    cluster = models.CharField(max_length=64, blank=True, default="")

    class Meta:
        abstract = True


def filter_applicable_to(rows: QuerySet[_Row], cluster: str) -> QuerySet[_Row]:
    """Return the rows that apply to a cluster: its own, and those of the whole installation."""
    return rows.filter(cluster__in=("", cluster))


class AlertRule(OwnedModel):
    """An alert rule; `fleet.alerts.rules.Rule` documents the fields.

    A rule of a cluster overrides the rule of the whole installation with the same name. Built-in rules may be changed
    and disabled, but not deleted.
    """

    name = models.CharField(max_length=100)
    kind = models.CharField(max_length=16)
    severity = models.PositiveSmallIntegerField()
    enabled = models.BooleanField(default=True)
    min_count = models.PositiveIntegerField(default=1)
    min_share = models.FloatField(default=0.0)
    agent_set = models.CharField(max_length=64, blank=True, default="")
    pending_rounds = models.PositiveIntegerField(default=2)
    pending_seconds = models.FloatField(default=0.0)
    recover_seconds = models.FloatField(default=300.0)
    group_wait = models.FloatField(default=30.0)
    group_interval = models.FloatField(default=300.0)
    repeat_seconds = models.FloatField(default=4 * 3600.0)
    runbook = models.URLField(blank=True, default="")
    builtin = models.BooleanField(default=False)

    class Meta:
        default_permissions = ()
        ordering = ("-severity", "name")
        constraints = (models.UniqueConstraint(fields=("cluster", "name"), name="one_rule_per_name"),)

    @override
    def __str__(self) -> str:
        return self.name

    @property
    def min_share_percent(self) -> str:
        """Minimum share in percent as text; empty if there is none."""
        return f"{self.min_share * 100:g}" if self.min_share else ""


class AgentSet(models.Model):
    """A pattern of agent names in an agent set, for example `critical`. A set has a row for each of its patterns."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="agent_sets")
    #: Agent name, or pattern with `*` and `?`.
    pattern = models.CharField(max_length=255)
    #: Name of the set.
    name = models.SlugField(max_length=64)

    class Meta:
        default_permissions = ()
        ordering = ("name", "pattern")
        constraints = (
            models.UniqueConstraint(
                fields=("cluster", "pattern", "name"), name="one_row_per_set_and_pattern"
            ),
        )

    @override
    def __str__(self) -> str:
        return f"{self.pattern}: {self.name}"


class Silence(OwnedModel):
    """A silence: matching incidents send no notifications for a limited time."""

    matchers = models.TextField(blank=True, default="")
    reason = models.CharField(max_length=500)
    #: Name of the signed-in user, never from a form.
    creator = models.CharField(max_length=200)
    created_at = SecondsField(default=time.time)
    starts_at = SecondsField()
    ends_at = SecondsField()
    #: The notification that the silence ends soon was queued.
    expiry_notified = models.BooleanField(default=False)

    class Meta:
        default_permissions = ()
        ordering = ("-ends_at", "-pk")

    @override
    def __str__(self) -> str:
        return f"{self.matchers or 'everything'}: {self.reason}"


class MaintenanceWindow(OwnedModel):
    """A recurring maintenance window, in local time of a time zone."""

    name = models.CharField(max_length=100)
    matchers = models.TextField(blank=True, default="")
    #: RFC 5545 recurrence rule: FREQ=WEEKLY;BYDAY=SU.
    rule = models.CharField(max_length=200)
    first_day = models.DateField(default=date.today)
    start_time = models.TimeField()
    length = models.DurationField(default=timedelta(hours=2))
    time_zone = models.CharField(max_length=64, default="UTC")
    reason = models.CharField(max_length=500)
    creator = models.CharField(max_length=200)
    enabled = models.BooleanField(default=True)

    class Meta:
        default_permissions = ()
        ordering = ("name", "pk")

    @override
    def __str__(self) -> str:
        return self.name


class Channel(OwnedModel):
    """A notification channel. Its secrets are sealed."""

    name = models.CharField(max_length=100)
    #: A slug of `fleet.alerts.channels.registry.CHANNEL_KINDS`.
    kind = models.CharField(max_length=16)
    #: Addresses and other values that are not secret.
    config = models.JSONField(default=dict)
    #: Secrets, sealed by `fleet.models.sealed_secrets`.
    secrets = models.TextField(blank=True, default="")
    enabled = models.BooleanField(default=True)
    #: Resolved notifications are sent, too.
    send_resolved = models.BooleanField(default=True)
    #: Private and loopback addresses are allowed. Requires the permission to manage access.
    allow_private = models.BooleanField(default=False)
    #: Period of digests: `daily`, `weekly` or empty for none.
    digest = models.CharField(max_length=8, blank=True, default="")
    #: Rate limit, notifications per minute.
    per_minute = models.PositiveIntegerField(default=10)
    #: The receiver accepts nothing before this time.
    rate_limited_until = SecondsField(null=True, blank=True)
    #: End of the first of the attempts that failed since the last notification was sent; None: the last one succeeded.
    failing_since = SecondsField(null=True, blank=True)

    class Meta:
        default_permissions = ()
        ordering = ("name", "cluster")
        constraints = (models.UniqueConstraint(fields=("cluster", "name"), name="one_channel_per_name"),)

    @override
    def __str__(self) -> str:
        return self.name


class Route(OwnedModel):
    """A notification route, with channels of its cluster and of the whole installation."""

    name = models.CharField(max_length=100)
    parent = models.ForeignKey(
        "self", on_delete=models.CASCADE, null=True, blank=True, related_name="children"
    )
    position = models.PositiveIntegerField(default=0)
    matchers = models.TextField(blank=True, default="")
    min_severity = models.PositiveSmallIntegerField(default=1)
    channels = models.ManyToManyField(Channel, blank=True, related_name="routes")
    #: The channels of the parent route are notified, too.
    includes_parent_channels = models.BooleanField(default=False)
    escalate_after = models.FloatField(null=True, blank=True)
    escalate_to = models.ManyToManyField(Channel, blank=True, related_name="escalations")
    quiet_from = models.TimeField(null=True, blank=True)
    quiet_until = models.TimeField(null=True, blank=True)
    quiet_zone = models.CharField(max_length=64, blank=True, default="UTC")
    continue_matching = models.BooleanField(default=False)

    class Meta:
        default_permissions = ()
        ordering = ("position", "pk")

    @override
    def __str__(self) -> str:
        return self.name


class Delivery(models.Model):
    """A notification to one channel; the rows are the outbox and the delivery log.

    Written in one transaction with the incident, and sent in short steps.
    """

    #: None: the channel was deleted; `channel_name` is its last name.
    channel = models.ForeignKey(Channel, on_delete=models.SET_NULL, null=True, related_name="deliveries")
    channel_name = models.CharField(max_length=100, blank=True, default="")
    #: Cluster that the notification is about; empty: none.
    cluster = models.CharField(max_length=64, blank=True, default="")
    incident = models.ForeignKey(
        Incident, on_delete=models.CASCADE, null=True, blank=True, related_name="deliveries"
    )
    #: Deduplication key for receivers, the same for every attempt.
    key = models.CharField(max_length=400)
    kind = models.CharField(max_length=16)
    payload = models.JSONField()
    created_at = SecondsField()
    #: Earliest time of the next attempt, and the reason for waiting.
    next_attempt_at = SecondsField()
    delay_reason = models.CharField(max_length=300, blank=True, default="")
    attempts = models.PositiveIntegerField(default=0)
    #: End of the last attempt.
    attempted_at = SecondsField(null=True, blank=True)
    #: Holder of the lease for the current attempt, and its end.
    leased_by = models.CharField(max_length=100, blank=True, default="")
    leased_until = SecondsField(null=True, blank=True)
    sent_at = SecondsField(null=True, blank=True)
    #: Time at which the delivery was given up: after 24 h, or after a permanent error.
    failed_at = SecondsField(null=True, blank=True)
    last_error = models.TextField(blank=True, default="")
    #: What the channel returned: address of the message, for later notifications of the incident.
    receipt = models.JSONField(null=True, blank=True, default=None)

    class Meta:
        default_permissions = ()
        ordering = ("-pk",)
        constraints = (models.UniqueConstraint(fields=("channel", "key"), name="one_delivery_per_key"),)
        indexes = (
            models.Index(
                fields=("next_attempt_at",),
                condition=Q(sent_at=None, failed_at=None),
                name="delivery_to_do",
            ),
            models.Index(fields=("cluster", "-id"), name="delivery_by_cluster"),
            models.Index(fields=("channel", "-attempted_at"), name="delivery_by_attempt"),
        )

    @override
    def __str__(self) -> str:
        return f"{self.kind} {self.key} to {self.channel_id}"


class AlertClock(models.Model):
    """Time of the last evaluation of the alert rules of a cluster: the watchdog."""

    cluster = models.OneToOneField(
        Cluster, on_delete=models.CASCADE, primary_key=True, related_name="alert_clock"
    )
    evaluated_at = SecondsField(null=True, blank=True)
    duration_ms = models.FloatField(default=0.0)
    #: Time of the newest digest.
    digest_at = SecondsField(null=True, blank=True)

    class Meta:
        default_permissions = ()

    @override
    def __str__(self) -> str:
        return f"{self.cluster_id}: {self.evaluated_at}"
