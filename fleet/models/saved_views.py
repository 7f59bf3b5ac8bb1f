"""Saved views of the list of agents: a filter, a grouping, an order and columns under a name."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone
from typing_extensions import override

from fleet.models.clusters import Cluster


class SavedView(models.Model):
    """A view of one user, or a view that everybody in the cluster sees. docs/reference/api.md, "Saved views"."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="saved_views")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_views")
    name = models.CharField(max_length=100)
    is_shared = models.BooleanField(default=False)
    #: Parameters of the page; empty: its default.
    q = models.CharField(max_length=2000, blank=True, default="")
    grouping = models.CharField(max_length=200, blank=True, default="")
    sort = models.CharField(max_length=32, blank=True, default="")
    columns = models.CharField(max_length=200, blank=True, default="")
    updated_at = models.DateTimeField(default=timezone.now)

    class Meta:
        default_permissions = ()
        ordering = ("name", "pk")
        constraints = (
            models.UniqueConstraint(fields=("cluster", "owner", "name"), name="one_view_per_name"),
        )

    @override
    def __str__(self) -> str:
        return self.name
