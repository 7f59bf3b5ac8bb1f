"""The networking config of each cluster as it was last read, and every revision that was ever seen of it."""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from typing_extensions import override

from fleet.models.changes import Change
from fleet.models.clusters import Cluster


class NetworkingRevision(models.Model):
    """One stored config: what it says, since when, by whom and why."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="networking_revisions")
    #: The auths' own word for it; opaque.
    revision = models.CharField(max_length=128)
    #: As Teleport shows it: kind, metadata, spec.
    document = models.JSONField()
    #: The one it took the place of.
    previous = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    #: Empty when it was not written through this console.
    who = models.CharField(max_length=200, blank=True, default="")
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
    """What came of reading a cluster's config."""

    cluster = models.OneToOneField(
        Cluster, on_delete=models.CASCADE, primary_key=True, related_name="networking"
    )
    #: None before it was ever read.
    current = models.ForeignKey(
        NetworkingRevision, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    read_at = models.DateTimeField(null=True, blank=True)
    #: Why the last attempt failed; empty when it did not.
    error = models.TextField(blank=True, default="")
    #: Whether GracefulTunnelClosing survived being written; None while nobody tried.
    knows_closing = models.BooleanField(null=True, blank=True)

    class Meta:
        default_permissions = ()

    @override
    def __str__(self) -> str:
        return f"{self.cluster_id}: {self.current_id or 'never read'}"
