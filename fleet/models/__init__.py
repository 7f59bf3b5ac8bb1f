"""Database models: data that must outlive Redis."""

from __future__ import annotations

from fleet.models.access import Access, ClusterLimit
from fleet.models.actions import CampaignAgent, DesiredPolicy, RolloutStep
from fleet.models.alerting import (
    AgentSet,
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
from fleet.models.history import AgentChange, FleetMinute, InstanceChange, Keyframe
from fleet.models.incidents import Incident, IncidentEvent, IncidentEvidence
from fleet.models.inventory import Agent, Instance
from fleet.models.networking import NetworkingReading, NetworkingRevision
from fleet.models.runbooks import RunbookText
from fleet.models.saved_views import SavedView
from fleet.models.tokens import ApiToken

__all__ = [
    "Access",
    "Agent",
    "AgentChange",
    "AgentSet",
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
    "FleetMinute",
    "Incident",
    "IncidentEvent",
    "IncidentEvidence",
    "Instance",
    "InstanceChange",
    "Keyframe",
    "MaintenanceWindow",
    "NetworkingReading",
    "NetworkingRevision",
    "RolloutStep",
    "Route",
    "RunbookText",
    "SavedView",
    "Silence",
    "ensure_default_cluster",
]
