"""Database rows of a cluster with incidents, deliveries, a silence and seven days of history."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from fleet.alerts import incident_actions
from fleet.alerts.evidence.copies import save_evidence
from fleet.alerts.evidence.evidence import copy_evidence
from fleet.alerts.notifications import NotificationLinks, payload_of
from fleet.alerts.store import incident_of
from fleet.audit import CONSOLE_ACTOR
from fleet.models.alerting import AlertClock, Channel, Delivery, Route
from fleet.models.clusters import Cluster
from fleet.models.incidents import Incident, IncidentEvent, VersionChange
from fleet.models.inventory import Agent
from fleet.vocabulary.incidents import Notification, NotificationKind
from fleet.vocabulary.verdicts import Reason, Recovery, State, VerdictSentences
from tests.fakes.history_rows import create_agent_change
from tests.fakes.reader import FakeReader

#: Agents in the history, and those of them that were stranded for ten minutes.
_AGENTS, _STRANDED = 20, 8


def write(cluster_id: str) -> None:
    """Write all rows of a cluster. Channels and routes belong to the installation: only the first call writes them."""
    cluster, now = Cluster.objects.get(pk=cluster_id), time.time()
    firing = _write_incidents(cluster, now)
    for at, kind, text in (
        (-235, "firing", "207 agents stranded."),
        (-200, "notification", "Notification due (firing)."),
    ):
        IncidentEvent.objects.create(incident=firing, at=now + at, kind=kind, text=text)
    VersionChange.objects.create(
        cluster=cluster, instance_id="proxy-1-id", name="proxy-1", old="17.1.0", new="17.2.0", at=now - 600
    )
    _write_deliveries(firing, _write_channels(), now)
    incident_actions.create_silence(
        "cause=backend*",
        "upgrade of the database",
        "ada",
        now - 3000,
        now + 600,
        CONSOLE_ACTOR,
        cluster=cluster_id,
    )
    AlertClock.objects.create(cluster=cluster, evaluated_at=now - 1)
    _write_history(cluster)


def add_notification_event(cluster_id: str) -> None:
    """Add an event to the incident of proxy-1, so that browsers show it once more."""
    incident = Incident.objects.get(cluster=cluster_id, cause_name="proxy-1")
    IncidentEvent.objects.create(incident=incident, at=time.time(), kind="notification")


def mark_test_deliveries_sent() -> None:
    """Mark the test deliveries of all channels as sent."""
    Delivery.objects.filter(kind="test").update(sent_at=time.time(), attempted_at=time.time())


def _write_incidents(cluster: Cluster, now: float) -> Incident:
    """Write a firing incident, one that it inhibits and a resolved one, and return the first."""
    mark = [now - 240, 1.0, 2, 2, 207, "207 agents stranded.", True, False]
    firing = Incident.objects.create(
        cluster=cluster,
        key="proxy/proxy-1-id",
        cause_kind="proxy",
        cause_id="proxy-1-id",
        cause_name="proxy-1",
        generation=1,
        state="firing",
        severity=2,
        opened_at=now - 240,
        fired_at=now - 235,
        affected_count=3,
        peak_count=207,
        agent_names=["agent-1", "agent-3"],
        summary="207 agents stranded.",
        recovers_at=now + 600,
        notification_count=1,
        notified_at=now - 200,
        notified_severity=2,
        notified_affected_count=207,
        marks={"Agents stranded": mark},
        trend=[[now - 240, 40], [now - 220, 207], [now - 100, 150], [now - 30, 3]],
    )
    Incident.objects.create(
        cluster=cluster,
        key="agents/no-tunnel",
        cause_kind="agents",
        cause_id="no-tunnel",
        cause_name="agents without a common cause (no-tunnel)",
        generation=1,
        state="pending",
        severity=1,
        opened_at=now - 60,
        affected_count=2,
        peak_count=2,
        summary="2 agents stranded.",
        inhibited_by="proxy/proxy-1-id",
        marks={"Few agents stranded": mark},
    )
    resolved_incident = Incident.objects.create(
        cluster=cluster,
        key="backend/default",
        cause_kind="backend",
        cause_id="default",
        cause_name="auth backend of cluster default",
        generation=1,
        state="resolved",
        severity=2,
        opened_at=now - 9000,
        fired_at=now - 8990,
        resolved_at=now - 8000,
        recovering_since=now - 8300,
        peak_count=400,
        summary="All auths failed at the same time.",
        notification_count=2,
        trend=[[now - 9000, 400], [now - 8300, 0]],
    )
    write_copy(resolved_incident, now - 8800)
    return firing


def write_copy(incident: Incident, taken_at: float) -> None:
    """Write the evidence of an incident: 70 agents, two thirds of them stranded."""
    states = [State.STRANDED, State.STRANDED, State.AT_RISK] * 23 + [State.STRANDED]
    table = FakeReader(states, as_of=taken_at).table(incident.cluster_id, taken_at)
    table.verdicts["since"] = taken_at - 5
    sentences = VerdictSentences("No auth accepts the agent's heartbeats.")
    evidence = copy_evidence(table, np.arange(len(states)), lambda indices: [sentences for _ in indices])
    save_evidence([(incident, evidence)])


def _write_channels() -> Channel:
    """Write two channels and a route with an escalation and quiet hours, and return the channel of the root route."""
    if (existing_hook := Channel.objects.filter(name="ops", cluster="").first()) is not None:
        return existing_hook
    hook = Channel.objects.create(
        name="ops", kind="webhook", config={"url": "https://hooks.example.com/T0/secret"}
    )
    chief = Channel.objects.create(
        name="chief", kind="email", config={"to": "chief@example.com"}, digest="weekly"
    )
    root = Route.objects.get(parent=None)
    root.channels.add(hook)
    night = Route.objects.create(
        name="proxies at night",
        parent=root,
        matchers="kind=proxy agent_set=critical",
        escalate_after=900,
        quiet_from="22:00",
        quiet_until="07:00",
        quiet_zone="Europe/Berlin",
    )
    night.escalate_to.add(chief)
    return hook


def _write_deliveries(incident: Incident, channel: Channel, now: float) -> None:
    """Write a sent message, one that waits for its next attempt and a failed one."""
    links = NotificationLinks("https://console.example.com", "", incident.pk)
    text = payload_of(Notification(NotificationKind.FIRING, incident_of(incident), now - 200, 1), links)
    outcomes: tuple[dict[str, Any], ...] = (
        {"sent_at": now - 199, "attempts": 1},
        {
            "attempts": 4,
            "next_attempt_at": now + 300,
            "last_error": "the receiver responded with status 503",
            "delay_reason": "the last attempt failed",
        },
        {
            "attempts": 9,
            "failed_at": now - 50,
            "last_error": "the receiver responded with status 404: no such hook",
        },
    )
    for number, outcome in enumerate(outcomes):
        Delivery.objects.create(
            channel=channel,
            cluster=incident.cluster_id,
            incident=incident,
            key=f"k/{incident.pk}/{number}",
            kind="firing",
            payload=text,
            created_at=now - 200,
            **{"next_attempt_at": now - 200} | outcome,
        )


def _write_history(cluster: Cluster) -> None:
    """Write agents that were stranded once in seven days, for ten minutes."""
    Agent.objects.bulk_create(
        Agent(cluster=cluster, agent_id=f"a{n}", name=f"agent-{n}", position=n) for n in range(_AGENTS)
    )
    for minutes, old, new in (
        (20_000, State.UNKNOWN, State.HEALTHY),
        (600, State.HEALTHY, State.STRANDED),
        (590, State.STRANDED, State.HEALTHY),
    ):
        for number in range(_STRANDED):
            create_agent_change(
                f"a{number}",
                time.time() - minutes * 60,
                old,
                new,
                reason=Reason.PROXY_UNHEALTHY,
                recovery=Recovery.BY_ITSELF,
                cause="proxy-1-id",
                cluster=cluster.pk,
            )
