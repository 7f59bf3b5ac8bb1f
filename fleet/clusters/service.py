"""Add, edit, pause and remove clusters, for pages, API and commands. Each action writes an audit log entry.

docs/reference/clusters.md.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from typing import Any

from django.db import transaction
from django.db.models import Q

from fleet.audit import RequestActor, record_outcome
from fleet.clusters.cluster_values import (
    ClusterValues,
    complete_addresses,
    find_id_problem,
    find_problems,
    find_shared_addresses,
    values_of,
)
from fleet.clusters.tls_uploads import describe_tls
from fleet.models.alerting import AlertRule, Channel, Delivery, MaintenanceWindow, Route, Silence
from fleet.models.changes import Change
from fleet.models.clusters import DEFAULT_CLUSTER, Cluster, has_fixed_addresses
from fleet.models.sealed_secrets import UnsealError, seal, unseal
from fleet.monitoring.state import StateUnavailableError
from fleet.vocabulary.actions import AuditAction, RefusalError
from fleet.vocabulary.changes import LIVE_STATES
from fleet.vocabulary.clusters import PATH_SOURCES, UPLOAD_SOURCES
from fleet.vocabulary.incidents import IncidentState

__all__ = [
    "ClusterChangedError",
    "ClusterError",
    "ClusterValues",
    "audit_values_of",
    "create_cluster",
    "describe_tls",
    "has_fixed_addresses",
    "list_notified_channels",
    "remove_cluster",
    "set_paused",
    "update_cluster",
    "values_of",
    "version_of",
]

logger = logging.getLogger(__name__)

#: Objects that belong to one cluster, without a foreign key.
_OWNED_MODELS = (Route, Channel, AlertRule, MaintenanceWindow, Silence)


class ClusterError(RefusalError, ValueError):
    """Values of a cluster are not valid; `problems` has a sentence by field, such as `tls_uploads.key`."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__(" ".join(dict.fromkeys(problems.values())))
        self.problems = dict(problems)


class ClusterChangedError(RefusalError):
    """Somebody changed or removed the cluster since the user read it."""


def version_of(row: Cluster) -> str:
    """Return a text that differs when a value of a stored cluster differs."""
    columns = [
        f"{field.attname}={getattr(row, field.attname)}"
        for field in row._meta.concrete_fields  # noqa: SLF001 - Django documents it
    ]
    return hashlib.sha256("\0".join(columns).encode()).hexdigest()[:16]


def create_cluster(cluster_id: str, values: ClusterValues, actor: RequestActor) -> Cluster:
    """Add a cluster, which the next round polls. Raises ClusterError."""
    problems = {"cluster_id": sentence} if (sentence := find_id_problem(cluster_id)) else {}
    # An invalid id may be longer than the column of the audit log.
    attempt = actor.create_attempt(
        AuditAction.CLUSTER_CREATE, "" if problems else cluster_id, values.name or cluster_id
    )
    with record_outcome(attempt), transaction.atomic():
        row = Cluster(id=cluster_id)
        if not problems and Cluster.objects.filter(pk=cluster_id).exists():
            problems["cluster_id"] = f"A cluster with the id {cluster_id} already exists. Choose another id."
        _set_values(row, values, problems)
        row.save(force_insert=True)
        attempt.after = audit_values_of(row)
    return row


def update_cluster(
    row: Cluster, values: ClusterValues, actor: RequestActor, *, seen_version: str = ""
) -> Cluster:
    """Change the values of a cluster and return the stored row.

    `seen_version`: the version that the change is based on; empty: any. Raises ClusterError, ClusterChangedError.
    """
    attempt = actor.create_attempt(AuditAction.CLUSTER_UPDATE, row.pk, row.name)
    with record_outcome(attempt), transaction.atomic():
        stored_row = _lock(row)
        if seen_version and version_of(stored_row) != seen_version:
            raise ClusterChangedError("out of date: somebody changed this cluster")
        attempt.before, old_secrets = audit_values_of(stored_row), stored_row.tls_secrets
        _set_values(stored_row, values, {})
        stored_row.save()
        attempt.after = audit_values_of(stored_row)
        if stored_row.tls_secrets and stored_row.tls_secrets != old_secrets:
            attempt.after["uploaded_files"] = "replaced" if old_secrets else "uploaded"
    return stored_row


def set_paused(row: Cluster, is_paused: bool, actor: RequestActor) -> Cluster:
    """Pause or resume a cluster and return the stored row. Raises ClusterChangedError."""
    action = AuditAction.CLUSTER_PAUSE if is_paused else AuditAction.CLUSTER_RESUME
    with record_outcome(actor.create_attempt(action, row.pk, row.name)), transaction.atomic():
        stored_row = _lock(row)
        stored_row.is_paused = is_paused
        stored_row.save(update_fields=["is_paused"])
    return stored_row


def remove_cluster(
    row: Cluster, confirmation: str, actor: RequestActor, delete_keys: Callable[[str], object]
) -> None:
    """Remove a cluster with its record, history, incidents, changes and settings. The audit log stays.

    Limits of users to it stay, too: without them, those users would see every other cluster. `confirmation`: the name
    of the cluster. `delete_keys`: deletes the keys of a cluster id in Redis (`record_removal`). Raises ClusterError,
    ClusterChangedError; StateUnavailableError: nothing is removed.
    """
    # Of no cluster, so that the audit logs of the others show it.
    attempt = actor.create_attempt(AuditAction.CLUSTER_REMOVE, "", row.name, before=audit_values_of(row))
    with record_outcome(attempt), transaction.atomic():
        stored_row = _lock(row)
        _require_removable(stored_row, confirmation)
        _delete_rows(stored_row)
        delete_keys(row.pk)
    # A round that was running may have created its keys again.
    try:
        delete_keys(row.pk)
    except StateUnavailableError as error:
        logger.warning("cluster %s was removed, but keys in Redis may be left: %s", row.pk, error)


def list_notified_channels(cluster: str) -> list[str]:
    """Return the channels that know of an unresolved incident of a cluster.

    A removal deletes the incidents, so these channels get no notification that they were resolved.
    """
    is_open = ~Q(incident__state=IncidentState.RESOLVED.value)
    deliveries = Delivery.objects.filter(is_open, incident__cluster=cluster, channel__send_resolved=True)
    names = deliveries.exclude(sent_at=None).values_list("channel__name", flat=True)
    return sorted(set(names))


def audit_values_of(row: Cluster) -> dict[str, Any]:
    """Return the values of a cluster for the diff in the audit log, without its uploaded files."""
    return {
        "name": row.name,
        "source": row.source,
        "address_kind": row.address_kind,
        "auths": list(row.auths),
        "tls_source": row.tls_source,
        "tls_files": dict(row.tls_files),
        "tls_server_name": row.tls_server_name,
        "diag_addresses": dict(row.diag_addresses),
        "edge_instances": dict(row.edge_instances),
        "is_paused": row.is_paused,
        "production": row.production,
        "review_required": row.review_required,
    }


def _lock(row: Cluster) -> Cluster:
    stored_row = Cluster.objects.select_for_update().filter(pk=row.pk).first()
    if stored_row is None:
        raise ClusterChangedError("somebody removed this cluster")
    return stored_row


def _set_values(row: Cluster, values: ClusterValues, problems: dict[str, str]) -> None:
    """Write values to the columns of a row. Raises ClusterError with `problems` and those of the values."""
    values = complete_addresses(values)
    contents = _combine_uploads(row, values, problems)
    problems = find_problems(values, contents) | problems
    _find_conflicts(row, values, problems)
    if problems:
        raise ClusterError(problems)
    row.name, row.source, row.address_kind = values.name.strip(), values.source, values.address_kind
    row.auths, row.tls_source, row.tls_server_name = (
        list(values.auths),
        values.tls_source,
        values.tls_server_name,
    )
    row.tls_files = (
        {part: path for part, path in values.tls_files.items() if path}
        if values.tls_source in PATH_SOURCES
        else {}
    )
    if values.tls_source not in UPLOAD_SOURCES:
        row.tls_secrets = ""
    elif any(pem is not None for pem in values.tls_uploads.values()):
        row.tls_secrets = seal(contents)
    row.diag_addresses = dict(values.diag_addresses)
    row.edge_instances = dict(values.edge_instances)
    row.production, row.review_required = values.production, values.review_required


def _combine_uploads(row: Cluster, values: ClusterValues, problems: dict[str, str]) -> dict[str, str]:
    """Return the uploaded files as they are to be stored: new ones, and stored ones that are kept."""
    if values.tls_source not in UPLOAD_SOURCES:
        return {}
    is_same_source = row.tls_source == values.tls_source
    try:
        contents = unseal(row.tls_secrets) if is_same_source else {}
    except UnsealError:
        contents = {}
        problems["tls_uploads"] = (
            "The stored files were encrypted with another REFLOAT_SECRET_KEY. Upload all files again."
        )
    contents |= {part: pem for part, pem in values.tls_uploads.items() if pem is not None}
    if contents:
        problems.pop("tls_uploads", None)
    return {part: pem for part, pem in contents.items() if pem}


def _find_conflicts(row: Cluster, values: ClusterValues, problems: dict[str, str]) -> None:
    """Add what is wrong with values beside those of other clusters and the settings of the console."""
    is_moved = (row.address_kind, list(row.auths)) != (values.address_kind, list(values.auths))
    if has_fixed_addresses(row.pk) and is_moved:
        problems["auths"] = (
            "The setting REFLOAT_AUTHS has the addresses of this cluster. Change the setting, or remove it to edit "
            "the addresses here."
        )
    elif not values.auths and row.pk != DEFAULT_CLUSTER:
        problems.setdefault("auths", "Enter at least one address. To stop polling a cluster, pause it.")
    for other_row in Cluster.objects.exclude(pk=row.pk):
        if other_row.name.casefold() == values.name.strip().casefold():
            problems.setdefault(
                "name", f"The cluster {other_row.pk} already has this name. Choose another name."
            )
        if is_moved and (entries := find_shared_addresses(values, other_row)):
            problems.setdefault(
                "auths",
                f"{entries[0]} already belongs to the cluster {other_row.name}. Remove it there first, or enter "
                "another address.",
            )


def _require_removable(row: Cluster, confirmation: str) -> None:
    if row.pk == DEFAULT_CLUSTER:
        raise ClusterError(
            {"confirmation": "The cluster default cannot be removed. Pause it, or remove its addresses."}
        )
    if confirmation.strip() != row.name:
        raise ClusterError({"confirmation": f"Enter the name of the cluster, {row.name}, to remove it."})
    change = Change.objects.filter(cluster=row, state__in=LIVE_STATES).first()
    if change is not None:
        raise ClusterError(
            {
                "confirmation": f"Change {change.pk} ({change.title}) has not ended. Wait for it, or abort it, and "
                "remove the cluster then."
            }
        )


def _delete_rows(row: Cluster) -> None:
    """Delete a cluster and all that belongs to it, also its part of the delivery log."""
    Delivery.objects.filter(cluster=row.pk).delete()
    for model in _OWNED_MODELS:
        model._default_manager.filter(cluster=row.pk).delete()  # noqa: SLF001 - Django documents it
    row.delete()
