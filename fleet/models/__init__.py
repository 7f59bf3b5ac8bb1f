"""Database models: data that must outlive Redis."""

from __future__ import annotations

from fleet.models.access import Access, ClusterLimit
from fleet.models.actions import CampaignAgent, DesiredPolicy, RolloutStep
from fleet.models.alerting import (
    AgentLabel,
    AlertClock,
    AlertRule,
    Channel,
    Delivery,
    MaintenanceWindow,
    Route,
    Silence,
)
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import Cluster, ClusterLease, ensure_default_cluster
from fleet.models.drains import Drain
from fleet.models.incidents import Incident, IncidentEvent
from fleet.models.inventory import Agent, Instance
from fleet.models.networking import NetworkingReading, NetworkingRevision
from fleet.models.tokens import ApiToken
from fleet.models.transitions import InstanceTransition, Transition

__all__ = [
    "Access",
    "Agent",
    "AgentLabel",
    "AlertClock",
    "AlertRule",
    "ApiToken",
    "AuditEntry",
    "CampaignAgent",
    "Change",
    "Channel",
    "Cluster",
    "ClusterLease",
    "ClusterLimit",
    "Delivery",
    "DesiredPolicy",
    "Drain",
    "Incident",
    "IncidentEvent",
    "Instance",
    "InstanceTransition",
    "MaintenanceWindow",
    "NetworkingReading",
    "NetworkingRevision",
    "RolloutStep",
    "Route",
    "Silence",
    "Transition",
    "ensure_default_cluster",
]
