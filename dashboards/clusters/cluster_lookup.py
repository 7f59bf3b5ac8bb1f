"""The row of the cluster that an API route names."""

from __future__ import annotations

from ninja.errors import HttpError

from fleet.models.clusters import DEFAULT_CLUSTER, Cluster, ensure_default_cluster


def require_row(cluster: str) -> Cluster:
    """Return the row of a cluster; that of `default` is created if there is none yet. Raises HttpError 404."""
    row = None if "\0" in cluster else Cluster.objects.filter(pk=cluster).first()
    if row is None and cluster == DEFAULT_CLUSTER:
        row = ensure_default_cluster()
    if row is None:
        raise HttpError(404, f"Cluster {cluster[:100]} was not found.")
    return row
