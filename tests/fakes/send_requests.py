"""Send requests for tests of the notification channels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from fleet.alerts.channels import SendRequest
from fleet.alerts.notifications import NotificationLinks, payload_of
from fleet.vocabulary.incidents import Notification, NotificationKind
from tests.fakes.alerting import AlertSimulation, healthy_facts, stranded_facts

LINKS = NotificationLinks("https://console.example.com", "https://wiki.example.com/proxy", 7)


def make_send_request(
    kind: NotificationKind = NotificationKind.FIRING,
    *,
    links: NotificationLinks = LINKS,
    incident_fields: Mapping[str, Any] = MappingProxyType({}),
    **fields: Any,
) -> SendRequest:
    """Return a request to send a notification of this kind about a proxy that strands 207 agents.

    `incident_fields`: what differs in the incident.
    """
    simulation = AlertSimulation(now=1_790_000_000.0)
    simulation.run(90, stranded_facts(207))
    simulation.run(400, healthy_facts(), step=5)
    firing_notification, resolved_notification = (
        notification for _, notification in simulation.notifications
    )
    notification: Notification = (
        resolved_notification
        if kind is NotificationKind.RESOLVED
        else replace(firing_notification, kind=kind)
    )
    notification = replace(notification, incident=replace(notification.incident, **incident_fields))
    return SendRequest(
        payload_of(notification, links), notification.key, simulation.now, allow_private=True, **fields
    )
