"""Instances and agents that were ever seen: rows that outlive heartbeats and Redis."""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from typing_extensions import override

from fleet.models.clusters import Cluster


class Instance(models.Model):
    """An auth or proxy. `position` is its dense index in the record."""

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
    """An agent, with its remembered data: `columns.MEMORY`, by instance ids.

    Written when the agent is first seen and when one of the values changes, not at every heartbeat.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="agents")
    agent_id = models.CharField(max_length=255)
    name = models.CharField(max_length=255)
    #: Dense index in the record, and so the place on the map.
    position = models.PositiveIntegerField()
    home_proxy = models.CharField(max_length=64, blank=True, default="")
    last_auth = models.CharField(max_length=64, blank=True, default="")
    #: Instance ids, newest first.
    last_proxies = models.JSONField(default=list, blank=True)
    had_tunnel = models.BooleanField(default=False)
    #: Since when the agent has had no live tunnel; None while it has one.
    lost_at = models.DateTimeField(null=True, blank=True)
    #: An operator retired the agent.
    is_retired = models.BooleanField(default=False)
    #: Version and labels that the agent reported last.
    version = models.CharField(max_length=256, blank=True, default="")
    labels = models.JSONField(default=dict, blank=True)
    first_seen_at = models.DateTimeField(default=timezone.now)
    #: First change ever, and newest change that was deleted for its age, with the columns of AgentChange; None until
    #: changes of the agent are deleted. Both outlive the history.
    first_change = models.JSONField(null=True, blank=True)
    last_deleted_change = models.JSONField(null=True, blank=True)

    class Meta:
        default_permissions = ()
        ordering = ("position", "pk")
        constraints = (models.UniqueConstraint(fields=("cluster", "agent_id"), name="one_row_per_agent"),)
        indexes = (models.Index(fields=("cluster", "position"), name="agent_by_position"),)

    @override
    def __str__(self) -> str:
        return self.name
