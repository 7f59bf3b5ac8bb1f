"""API routes of clusters. Uploaded TLS files are only written, never read. docs/reference/clusters.md."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Router, Status
from ninja.errors import HttpError
from pydantic import Field

from dashboards.clusters import identity_rows
from dashboards.clusters.cluster_lookup import require_row
from dashboards.shared import record_reader
from dashboards.shared.api.access import ApiAccess
from dashboards.shared.api.change_responses import (
    REFUSAL_RESPONSES,
    caller_of,
    request_actor_of,
    require_reauthentication,
)
from dashboards.shared.api.parameters import RequestBody, Schema
from dashboards.shared.capabilities.missing import missing_capabilities_of
from dashboards.shared.permissions import find_write_refusal, visible_clusters_of
from fleet.clusters import service
from fleet.clusters.address_entries import MOST_ENTRIES
from fleet.clusters.cluster_values import ClusterValues
from fleet.clusters.diag_addresses import EDGE_FORM, MOST_DIAG_ADDRESSES
from fleet.clusters.tls_uploads import MAX_PEM_LENGTH, TLS_PARTS, read_upload_facts
from fleet.models.access import Permission
from fleet.models.clusters import Cluster, has_fixed_addresses
from fleet.models.sealed_secrets import UnsealError
from fleet.protocol.text_limits import LONGEST_NAME
from fleet.source_plugins.registry import source_labels
from fleet.vocabulary.clusters import AddressKind, TLSSource

router = Router()
_VIEW = ApiAccess(Permission.VIEW_FLEET)
_VIEW_ANY = ApiAccess(Permission.VIEW_FLEET, is_per_cluster=False)
_MANAGE = ApiAccess(Permission.MANAGE_ACCESS)
_MANAGE_ALL = ApiAccess(Permission.MANAGE_ACCESS, is_per_cluster=False)

_Text = Annotated[str, Field(max_length=1_100)]
_Entries = Annotated[list[_Text], Field(max_length=MOST_ENTRIES)]
_Paths = Annotated[dict[str, _Text], Field(max_length=len(TLS_PARTS))]
_Uploads = Annotated[
    dict[str, Annotated[str, Field(max_length=MAX_PEM_LENGTH)] | None], Field(max_length=len(TLS_PARTS))
]
_DiagAddresses = Annotated[
    dict[Annotated[str, Field(max_length=LONGEST_NAME)], Annotated[str, Field(max_length=300)]],
    Field(max_length=MOST_DIAG_ADDRESSES),
]
_EdgeInstances = Annotated[
    dict[Annotated[str, Field(max_length=LONGEST_NAME)], Annotated[str, Field(max_length=300)]],
    Field(max_length=EDGE_FORM.most),
]
_Source = Annotated[str, Field(max_length=32, json_schema_extra={"enum": list(source_labels())})]
_AddressKind = Annotated[
    str, Field(max_length=16, json_schema_extra={"enum": [kind.value for kind in AddressKind]})
]
_TLSSource = Annotated[
    str, Field(max_length=16, json_schema_extra={"enum": [source.value for source in TLSSource]})
]


class ClustersResponse(Schema):
    """Clusters that you may see."""

    clusters: list[str]
    """Ids of the clusters that you may see."""


class UploadedFile(Schema):
    """What is told about an uploaded TLS file."""

    part: str
    """`authority`, `certificate`, `key` or `identity`."""
    common_name: str
    """Common name of its first certificate; empty for a key."""
    expires_at: datetime | None
    """Expiry of its first certificate; null for a key."""


class ClusterIdentity(Schema):
    """The client certificate with which Refloat reads a cluster."""

    common_name: str
    """Its common name: of an identity of Teleport, the user."""
    expires_at: datetime
    """When the cluster refuses it, unless it is renewed."""
    is_expiring: bool
    """Whether it has expired, or is in the last quarter of its lifetime and expires within 7 days."""
    roles: list[str]
    """Organizations in the certificate: of an identity of Teleport, its roles."""


class MissingCapability(Schema):
    """A capability that the source of a cluster does not have there."""

    capability: str
    """Its slug, such as `policies`."""
    label: str
    """Its name on pages."""
    reason: str
    """Why the cluster does not have it, as a sentence."""
    effect: str
    """What Refloat does not show or do without it, as a sentence."""


class ClusterItem(Schema):
    """A cluster, without its uploaded TLS files."""

    id: str
    """Id of the cluster: part of paths, links and metrics."""
    name: str
    """Name of the cluster."""
    source: str
    """What its auths, proxies and agents run: `refloat`."""
    address_kind: str
    """What `auths` has: `static` (host:port), `dns` (host:port with all addresses of the host), `srv` (names of SRV
    records) or `file_sd` (paths of Prometheus file_sd files).
    """
    auths: list[str]
    """Where Refloat finds the first auths; these list all others."""
    has_fixed_addresses: bool
    """Whether the setting REFLOAT_AUTHS has the addresses, so that they cannot be changed here."""
    tls: str
    """Where the TLS files come from, in words."""
    tls_source: str
    """Where the TLS files come from: `settings`, `none`, `files`, `uploaded`, `identity` or `identity_upload`."""
    tls_files: dict[str, str]
    """Paths on the machines of the workers, by `authority`, `certificate` and `key`; of an identity file by
    `identity`.
    """
    tls_uploads: list[UploadedFile]
    """Uploaded files; empty also when they were encrypted with another REFLOAT_SECRET_KEY, which `tls` says."""
    tls_server_name: str
    """Expected name in the certificates of the instances; empty: that of their role."""
    diag_addresses: dict[str, str]
    """Addresses of `/readyz` and `/metrics`, host:port, by name or id of the instance."""
    edge_instances: dict[str, str]
    """Diag addresses of gateways and tunnel servers, host:port, by name."""
    identity: ClusterIdentity | None
    """Identity of Refloat, as the workers read it; null without a client certificate, and before they read it."""
    is_paused: bool
    """Whether Refloat polls nothing and opens no incidents until the cluster is resumed."""
    production: bool
    """Whether dangerous actions require typing the name of the cluster."""
    review_required: bool
    """Whether a second person must approve each change."""
    missing_capabilities: list[MissingCapability]
    """What Refloat cannot show or change there, because of its product, its version or the role of Refloat."""
    list_notice: str
    """That the lists of the cluster may be old, and what to do, as sentences; empty if they are not."""
    version: str
    """Version of the values: a change may name the version that it is based on."""


class CreateClusterRequest(RequestBody):
    """A new cluster."""

    id: Annotated[str, Field(max_length=64)]
    """Id of the cluster: lowercase letters, digits and hyphens. It never changes."""
    name: Annotated[str, Field(max_length=100)]
    """Name of the cluster."""
    source: _Source = "refloat"
    """What its auths, proxies and agents run."""
    address_kind: _AddressKind = AddressKind.STATIC.value
    """What `auths` has."""
    auths: _Entries
    """Where Refloat finds the first auths: one that responds is enough."""
    tls_source: _TLSSource = TLSSource.SETTINGS.value
    """Where the TLS files come from."""
    tls_files: Annotated[_Paths, Field(default_factory=dict)]
    """With `files`: paths on the machines of the workers, by `authority`, `certificate` and `key`. With `identity`: the
    path of an identity file of Teleport, by `identity`.
    """
    tls_uploads: Annotated[_Uploads, Field(default_factory=dict)]
    """With `uploaded`: PEM by the same names. With `identity_upload`: an identity file by `identity`. No response has
    them.
    """
    tls_server_name: Annotated[str, Field(max_length=253)] = ""
    """Expected name in the certificates of the instances; empty: that of their role."""
    diag_addresses: Annotated[_DiagAddresses, Field(default_factory=dict)]
    """Addresses of `/readyz` and `/metrics`, host:port, by name or id of the instance. Only for `teleport`."""
    edge_instances: Annotated[_EdgeInstances, Field(default_factory=dict)]
    """Diag addresses of gateways and tunnel servers, host:port, by name, which you choose."""
    production: bool = False
    """Whether dangerous actions require typing the name of the cluster."""
    review_required: bool = False
    """Whether a second person must approve each change."""


class ChangeClusterRequest(RequestBody):
    """New values of a cluster. What is left out or null does not change; the id never changes."""

    name: Annotated[str, Field(max_length=100)] | None = None
    """Name of the cluster."""
    source: _Source | None = None
    """What its auths, proxies and agents run."""
    address_kind: _AddressKind | None = None
    """What `auths` has."""
    auths: _Entries | None = None
    """Where Refloat finds the first auths."""
    tls_source: _TLSSource | None = None
    """Where the TLS files come from. Another source than `uploaded` deletes the uploaded files."""
    tls_files: _Paths | None = None
    """With `files` and `identity`: all paths."""
    tls_uploads: Annotated[_Uploads, Field(default_factory=dict)]
    """As in a new cluster. A file that is left out or null stays, an empty
    text removes it.
    """
    tls_server_name: Annotated[str, Field(max_length=253)] | None = None
    """Expected name in the certificates of the instances; empty: that of their role."""
    diag_addresses: _DiagAddresses | None = None
    """All addresses of `/readyz` and `/metrics`, host:port, by name or id of the instance."""
    edge_instances: _EdgeInstances | None = None
    """Diag addresses of all gateways and tunnel servers, host:port, by name."""
    production: bool | None = None
    """Whether dangerous actions require typing the name of the cluster."""
    review_required: bool | None = None
    """Whether a second person must approve each change."""
    version: Annotated[str, Field(max_length=64)] = ""
    """Version that the change is based on: 409 if somebody changed the cluster since. Empty: any."""


class DeleteClusterRequest(RequestBody):
    """The confirmation of a removal."""

    confirmation: Annotated[str, Field(max_length=100)]
    """Name of the cluster."""


class DeletedCluster(Schema):
    """A cluster that was removed."""

    id: str
    """Id that the cluster had."""
    name: str
    """Name of the cluster."""
    notified_channels: list[str]
    """Channels that know of an unresolved incident of it: they get no notification that it was resolved."""


@router.get(
    "/clusters",
    summary="List clusters",
    auth=_VIEW_ANY,
    response={200: ClustersResponse, **REFUSAL_RESPONSES},
)
def list_clusters(request: HttpRequest) -> Any:
    """List the clusters that you may see."""
    return ClustersResponse(clusters=list(visible_clusters_of(caller_of(request))))


@router.post(
    "/clusters", summary="Add a cluster", auth=_MANAGE_ALL, response={201: ClusterItem, **REFUSAL_RESPONSES}
)
def create_cluster(request: HttpRequest, body: CreateClusterRequest) -> Any:
    """Refloat polls the cluster from its next round on. Test the connection with `POST /clusters/{cluster}/test`."""
    _require_manager(request)
    values = ClusterValues(**body.model_dump(exclude={"id"}))
    return Status(201, _item_of(service.create_cluster(body.id, values, request_actor_of(request))))


@router.get(
    "/clusters/{cluster}",
    summary="Get a cluster",
    auth=_VIEW,
    response={200: ClusterItem, **REFUSAL_RESPONSES},
)
def get_cluster(request: HttpRequest, cluster: str) -> Any:
    """The response has the values of the cluster, without its uploaded TLS files."""
    return _item_of(require_row(cluster))


@router.post(
    "/clusters/{cluster}",
    summary="Change a cluster",
    auth=_MANAGE,
    response={200: ClusterItem, **REFUSAL_RESPONSES},
)
def change_cluster(request: HttpRequest, cluster: str, body: ChangeClusterRequest) -> Any:
    """Fields that are left out keep their values. The next round uses the new ones."""
    _require_manager(request)
    row = require_row(cluster)
    new_values = body.model_dump(exclude={"version"}, exclude_none=True) | {"tls_uploads": body.tls_uploads}
    values = replace(service.values_of(row), **new_values)
    return _item_of(service.update_cluster(row, values, request_actor_of(request), seen_version=body.version))


@router.post(
    "/clusters/{cluster}/pause",
    summary="Pause a cluster",
    auth=_MANAGE,
    response={200: ClusterItem, **REFUSAL_RESPONSES},
)
def pause_cluster(request: HttpRequest, cluster: str) -> Any:
    """Refloat polls nothing of a paused cluster, and opens no incidents. Other clusters are not affected."""
    return _set_paused(request, cluster, is_paused=True)


@router.post(
    "/clusters/{cluster}/resume",
    summary="Resume a cluster",
    auth=_MANAGE,
    response={200: ClusterItem, **REFUSAL_RESPONSES},
)
def resume_cluster(request: HttpRequest, cluster: str) -> Any:
    """Refloat polls the cluster again from its next round on."""
    return _set_paused(request, cluster, is_paused=False)


@router.post(
    "/clusters/{cluster}/delete",
    summary="Remove a cluster",
    auth=_MANAGE,
    response={200: DeletedCluster, **REFUSAL_RESPONSES},
)
def delete_cluster(request: HttpRequest, cluster: str, body: DeleteClusterRequest) -> Any:
    """Its history, incidents, changes and settings are deleted, too; the audit log stays.

    Nothing in the cluster itself changes. The cluster `default` can only be paused.
    """
    _require_manager(request)
    row = require_row(cluster)
    name, notified_channels = row.name, service.list_notified_channels(row.pk)
    service.remove_cluster(
        row, body.confirmation, request_actor_of(request), record_reader.delete_cluster_keys
    )
    return DeletedCluster(id=cluster, name=name, notified_channels=notified_channels)


def _set_paused(request: HttpRequest, cluster: str, *, is_paused: bool) -> ClusterItem:
    if sentence := find_write_refusal(caller_of(request), Permission.MANAGE_ACCESS, ""):
        raise HttpError(403, sentence)
    return _item_of(service.set_paused(require_row(cluster), is_paused, request_actor_of(request)))


def _require_manager(request: HttpRequest) -> None:
    """Require a user who is not limited to some clusters, and a recent proof of identity. Raises HttpError 403."""
    if sentence := find_write_refusal(caller_of(request), Permission.MANAGE_ACCESS, ""):
        raise HttpError(403, sentence)
    require_reauthentication(request)


def _item_of(row: Cluster) -> ClusterItem:
    try:
        uploads = read_upload_facts(row)
    except UnsealError:
        uploads = ()
    return ClusterItem(
        id=row.pk,
        name=row.name,
        source=row.source,
        address_kind=row.address_kind,
        auths=row.auths,
        has_fixed_addresses=has_fixed_addresses(row.pk),
        tls=service.describe_tls(row),
        tls_source=row.tls_source,
        tls_files=row.tls_files,
        tls_uploads=[
            UploadedFile(part=facts.part, common_name=facts.common_name, expires_at=facts.expires_at)
            for facts in uploads
        ],
        tls_server_name=row.tls_server_name,
        diag_addresses=row.diag_addresses,
        edge_instances=row.edge_instances,
        identity=_identity_of(row),
        is_paused=row.is_paused,
        production=row.production,
        review_required=row.review_required,
        missing_capabilities=[
            MissingCapability(
                capability=capability, label=capability.label, reason=reason, effect=capability.effect
            )
            for capability, reason in missing_capabilities_of(row.pk).items()
        ],
        list_notice=record_reader.reader().list_notice(row.pk),
        version=service.version_of(row),
    )


def _identity_of(row: Cluster) -> ClusterIdentity | None:
    identity = identity_rows.read_identity(row.pk, record_reader.current_time())
    if identity is None:
        return None
    return ClusterIdentity(
        common_name=identity.common_name,
        expires_at=identity.expires_at,
        is_expiring=identity.is_expiring,
        roles=list(identity.roles),
    )
