"""Clusters that the console watches, and leases on them. Every key, row, event and route has a cluster id."""

from __future__ import annotations

from collections.abc import Sequence

from django.conf import settings
from django.core.validators import RegexValidator
from django.db import models
from django.utils import timezone
from typing_extensions import override

from fleet.vocabulary.clusters import AddressKind, TLSSource

__all__ = [
    "DEFAULT_CLUSTER",
    "AddressKind",
    "Cluster",
    "ClusterLease",
    "TLSSource",
    "ensure_default_cluster",
    "has_fixed_addresses",
    "read_tls_settings",
]

#: Cluster of URLs without a cluster id.
DEFAULT_CLUSTER = "default"


class Cluster(models.Model):
    """A fleet with its own control plane."""

    #: Part of URLs, Redis keys and Channels group names; the last allow only these characters.
    id = models.CharField(
        primary_key=True, max_length=64, validators=[RegexValidator(r"^[a-z0-9][a-z0-9-]*$")], editable=False
    )
    name = models.CharField(max_length=100)
    #: Kind of the source of its evidence; `refloat` is the wire of Refloat's own instances.
    source = models.CharField(max_length=32, default="refloat", db_default="refloat")
    #: AddressKind of `auths`.
    address_kind = models.CharField(
        max_length=16, default=AddressKind.STATIC.value, db_default=AddressKind.STATIC.value
    )
    #: Where the first auths are, from which Refloat finds the others: host:port, the name of an SRV record, or the path
    #: of a file, by `address_kind`.
    auths = models.JSONField(default=list)
    #: TLSSource of the next three.
    tls_source = models.CharField(
        max_length=16, default=TLSSource.SETTINGS.value, db_default=TLSSource.SETTINGS.value
    )
    #: Paths by `authority`, `certificate` and `key`.
    tls_files = models.JSONField(default=dict, blank=True, db_default={})
    #: Uploaded PEM by the same names, sealed by `fleet.models.sealed_secrets`. Never returned.
    tls_secrets = models.TextField(blank=True, default="", db_default="")
    #: Expected name in the certificates of its instances; empty: by role.
    tls_server_name = models.CharField(max_length=253, blank=True, default="", db_default="")
    #: host:port of `/readyz` and `/metrics` by name or id of the instance, for sources that do not list them.
    diag_addresses = models.JSONField(default=dict, blank=True, db_default={})
    #: host:port of the diag ports of gateways and tunnel servers by name; people choose the names.
    edge_instances = models.JSONField(default=dict, blank=True, db_default={})
    #: Not polled, and without incidents, until it is resumed.
    is_paused = models.BooleanField(default=False, db_default=False)
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

    Both are static addresses. Without either the cluster keeps the addresses that people entered.
    """
    addresses = list(auths or settings.REFLOAT_AUTHS)
    cluster, _ = Cluster.objects.get_or_create(
        id=DEFAULT_CLUSTER, defaults={"name": "Default", "auths": addresses}
    )
    if addresses and (cluster.auths, cluster.address_kind) != (addresses, AddressKind.STATIC.value):
        cluster.auths, cluster.address_kind = addresses, AddressKind.STATIC.value
        cluster.save(update_fields=["auths", "address_kind"])
    return cluster


def has_fixed_addresses(cluster_id: str) -> bool:
    """Return whether the setting REFLOAT_AUTHS has the addresses of a cluster, so that they cannot be edited."""
    return cluster_id == DEFAULT_CLUSTER and bool(settings.REFLOAT_AUTHS)


def read_tls_settings() -> tuple[dict[str, str], str]:
    """Return the TLS files of the settings as in `Cluster.tls_files`, and the expected name of servers."""
    paths = {
        "authority": settings.REFLOAT_TLS_CA,
        "certificate": settings.REFLOAT_TLS_CERT,
        "key": settings.REFLOAT_TLS_KEY,
    }
    return {part: path for part, path in paths.items() if path}, settings.REFLOAT_TLS_SERVER_NAME
