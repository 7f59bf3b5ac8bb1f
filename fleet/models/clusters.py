"""Clusters the console watches, and leases of them. Every key, row, event and route carries a cluster's id."""

from __future__ import annotations

from collections.abc import Sequence

from django.conf import settings
from django.core.validators import RegexValidator
from django.db import models
from django.utils import timezone
from typing_extensions import override

#: The cluster that short URLs mean.
DEFAULT_CLUSTER = "default"


class Cluster(models.Model):
    """One fleet with a control plane of its own."""

    #: In URLs, Redis keys and group names: those of Channels allow no more than this.
    id = models.CharField(
        primary_key=True, max_length=64, validators=[RegexValidator(r"^[a-z0-9][a-z0-9-]*$")], editable=False
    )
    name = models.CharField(max_length=100)
    #: host:port of auths to begin with; the others are found from them.
    auths = models.JSONField(default=list)
    #: Dangerous actions ask twice.
    production = models.BooleanField(default=False)
    #: Changes wait until a second person agreed.
    second_approver = models.BooleanField(default=False)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        default_permissions = ()
        ordering = ("id",)

    @override
    def __str__(self) -> str:
        return self.name


class ClusterLease(models.Model):
    """Which process works on a cluster for a purpose. Each holder's token is higher than all before it."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="leases")
    purpose = models.CharField(max_length=16)
    #: Empty: the lease is free.
    holder = models.CharField(max_length=200, blank=True, default="")
    change = models.ForeignKey("Change", on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    token = models.PositiveBigIntegerField(default=0)
    expires_at = models.DateTimeField()

    class Meta:
        default_permissions = ()
        constraints = (models.UniqueConstraint(fields=("cluster", "purpose"), name="one_lease_per_purpose"),)

    @override
    def __str__(self) -> str:
        return f"{self.cluster_id}, {self.purpose}: {self.holder or 'free'}"


def ensure_default_cluster(auths: Sequence[str] = ()) -> Cluster:
    """Make the cluster `default`, or give it `auths`, else those that REFLOAT_AUTHS names.

    Without any it keeps its own.
    """
    addresses = list(auths or settings.REFLOAT_AUTHS)
    cluster, is_created = Cluster.objects.get_or_create(
        id=DEFAULT_CLUSTER, defaults={"name": "Default", "auths": addresses}
    )
    if not is_created and addresses and cluster.auths != addresses:
        cluster.auths = addresses
        cluster.save(update_fields=["auths"])
    return cluster
