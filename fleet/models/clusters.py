"""Clusters that the console watches, and leases on them. Every key, row, event and route has a cluster id."""

from __future__ import annotations

from collections.abc import Sequence

from django.conf import settings
from django.core.validators import RegexValidator
from django.db import models
from django.utils import timezone
from typing_extensions import override

#: Cluster of URLs without a cluster id.
DEFAULT_CLUSTER = "default"


class Cluster(models.Model):
    """A fleet with its own control plane."""

    #: Part of URLs, Redis keys and Channels group names; the last allow only these characters.
    id = models.CharField(
        primary_key=True, max_length=64, validators=[RegexValidator(r"^[a-z0-9][a-z0-9-]*$")], editable=False
    )
    name = models.CharField(max_length=100)
    #: Addresses (host:port) of the first auths; Refloat finds the others from these.
    auths = models.JSONField(default=list)
    #: Dangerous actions require typing the name of the cluster.
    production = models.BooleanField(default=False)
    #: Changes require the approval of a second person.
    review_required = models.BooleanField(default=False)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        default_permissions = ()
        ordering = ("id",)

    @override
    def __str__(self) -> str:
        return self.name


class ClusterLease(models.Model):
    """Lease of a process on a cluster for a purpose. Each holder gets a higher fencing token than all before."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="leases")
    purpose = models.CharField(max_length=16)
    #: Process that holds the lease; empty: the lease is free.
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
    """Create the cluster `default` or update its auths to `auths`, or to REFLOAT_AUTHS without `auths`.

    Without either the cluster keeps its auths.
    """
    addresses = list(auths or settings.REFLOAT_AUTHS)
    cluster, is_created = Cluster.objects.get_or_create(
        id=DEFAULT_CLUSTER, defaults={"name": "Default", "auths": addresses}
    )
    if not is_created and addresses and cluster.auths != addresses:
        cluster.auths = addresses
        cluster.save(update_fields=["auths"])
    return cluster
