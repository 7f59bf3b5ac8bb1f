"""Instances and agents as they outlive their heartbeats, and Redis."""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from typing_extensions import override

from fleet.models.clusters import Cluster


class Instance(models.Model):
    """An auth or proxy that was ever seen. `position` is its dense index in the record."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="instances")
    #: Host UUID.
    instance_id = models.CharField(max_length=64)
    kind = models.CharField(max_length=8)
    name = models.CharField(max_length=255)
    position = models.PositiveIntegerField()
    first_seen_at = models.DateTimeField(default=timezone.now)

    class Meta:
        default_permissions = ()
        ordering = ("position", "pk")
        constraints = (
            models.UniqueConstraint(fields=("cluster", "instance_id"), name="one_row_per_instance"),
        )

    @override
    def __str__(self) -> str:
        return self.name


class Agent(models.Model):
    """An agent that was ever seen, with what is remembered of it: `columns.MEMORY`, by instance ids.

    Written when it is first seen and when one of these changes, never merely because it was seen again.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="agents")
    agent_id = models.CharField(max_length=255)
    name = models.CharField(max_length=255)
    #: Its dense index in the record, and so its place on the map.
    position = models.PositiveIntegerField()
    home = models.CharField(max_length=64, blank=True, default="")
    last_auth = models.CharField(max_length=64, blank=True, default="")
    #: Newest first.
    last_proxies = models.JSONField(default=list, blank=True)
    had_tunnel = models.BooleanField(default=False)
    #: Since when it has had no live tunnel.
    lost_at = models.DateTimeField(null=True, blank=True)
    #: An operator said so.
    retired = models.BooleanField(default=False)
    first_seen_at = models.DateTimeField(default=timezone.now)

    class Meta:
        default_permissions = ()
        ordering = ("position", "pk")
        constraints = (models.UniqueConstraint(fields=("cluster", "agent_id"), name="one_row_per_agent"),)
        indexes = (models.Index(fields=("cluster", "position"), name="agent_by_position"),)

    @override
    def __str__(self) -> str:
        return self.name
