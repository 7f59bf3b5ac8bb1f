"""What must outlive Redis."""

from __future__ import annotations

from fleet.models.access import Access, ClusterLimit
from fleet.models.changes import AuditEntry, Change, ClusterLease
from fleet.models.clusters import Cluster, ensure_default_cluster
from fleet.models.drains import Drain
from fleet.models.networking import NetworkingReading, NetworkingRevision
from fleet.models.remembered import Agent, Instance
from fleet.models.tokens import ApiToken
from fleet.models.transitions import Transition

__all__ = [
    "Access",
    "Agent",
    "ApiToken",
    "AuditEntry",
    "Change",
    "Cluster",
    "ClusterLease",
    "ClusterLimit",
    "Drain",
    "Instance",
    "NetworkingReading",
    "NetworkingRevision",
    "Transition",
    "ensure_default_cluster",
]
