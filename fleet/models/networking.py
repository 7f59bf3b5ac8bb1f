"""Networking config of each cluster: the last read, and every revision that was ever read."""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from typing_extensions import override

from fleet.models.changes import Change
from fleet.models.clusters import Cluster


class NetworkingRevision(models.Model):
    """A revision of the networking config: document, time, author and reason."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="networking_revisions")
    #: Revision as the auths name it; opaque.
    revision = models.CharField(max_length=128)
    #: As Teleport shows it: kind, metadata, spec.
    document = models.JSONField()
    #: Revision that this one replaced.
    previous = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    #: User who wrote it; empty when it was not written with Refloat.
    author = models.CharField(max_length=200, blank=True, default="")
    reason = models.CharField(max_length=500, blank=True, default="")
    change = models.ForeignKey(
        Change, on_delete=models.SET_NULL, null=True, blank=True, related_name="revisions"
    )
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        default_permissions = ()
        ordering = ("-at", "-pk")
        constraints = (models.UniqueConstraint(fields=("cluster", "revision"), name="one_row_per_revision"),)

    @override
    def __str__(self) -> str:
        return f"{self.cluster_id}: {self.revision}"


class NetworkingReading(models.Model):
    """Result of reading a cluster's networking config."""

    cluster = models.OneToOneField(
        Cluster, on_delete=models.CASCADE, primary_key=True, related_name="networking"
    )
    #: Last revision that was read; None before the first one.
    current = models.ForeignKey(
        NetworkingRevision, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    read_at = models.DateTimeField(null=True, blank=True)
    #: Why the last attempt failed; empty after a success.
    error = models.TextField(blank=True, default="")
    #: Whether the auths kept GracefulTunnelClosing when it was written; None before anybody tried.
    knows_closing = models.BooleanField(null=True, blank=True)

    class Meta:
        default_permissions = ()

    @override
    def __str__(self) -> str:
        return f"{self.cluster_id}: {self.current_id or 'never read'}"
