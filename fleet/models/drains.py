"""Drain requests of operators for instances. `fleet.changes` writes them."""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from typing_extensions import override

from fleet.models.clusters import Cluster


class Drain(models.Model):
    """Last drain or undrain request for an auth or proxy. A worker repeats it while the instance does not match it."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="drains")
    #: Host UUID; instances are in the record, not in the database.
    instance = models.CharField(max_length=200)
    name = models.CharField(max_length=200)
    is_drained = models.BooleanField()
    reason = models.CharField(max_length=200, blank=True, default="")
    actor_name = models.CharField(max_length=200)
    requested_at = models.DateTimeField(default=timezone.now)
    #: When the instance last accepted the request, and why it did not, as a sentence.
    applied_at = models.DateTimeField(null=True, blank=True)
    error = models.TextField(blank=True, default="")

    class Meta:
        default_permissions = ()
        constraints = (models.UniqueConstraint(fields=("cluster", "instance"), name="one_word_per_instance"),)

    @override
    def __str__(self) -> str:
        return f"{self.name}: {'drained' if self.is_drained else 'not drained'}"
