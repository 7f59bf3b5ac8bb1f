"""Objects of two clusters and of the installation, each marked with its owner: for the walk with limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import time as time_of_day
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Model, QuerySet
from django.utils import timezone

from fleet.audit import Attempt, write_entry
from fleet.models.access import Permission
from fleet.models.actions import DesiredPolicy
from fleet.models.alerting import (
    AgentSet,
    AlertRule,
    Channel,
    Delivery,
    MaintenanceWindow,
    Route,
    Silence,
)
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import Cluster
from fleet.models.drains import Drain
from fleet.models.incidents import Incident, IncidentEvent, VersionChange
from fleet.models.inventory import Agent
from fleet.models.networking import NetworkingRevision
from fleet.models.runbooks import RunbookText
from fleet.models.saved_views import SavedView
from fleet.models.tokens import create_token
from fleet.vocabulary.changes import SYSTEM_ACTOR, ChangeKind

#: The cluster that limited visitors see, and another one. The installation is the owner with the empty name.
OWN, FOREIGN, INSTALLATION = "other", "default", ""
OWNERS = (OWN, FOREIGN, INSTALLATION)
#: What no page may show to a visitor limited to `OWN`: text of the other cluster, addresses of the installation.
HIDDEN = ("of-default-only", "installation-address")

Ids = Mapping[str, int]


def create_objects() -> dict[str, dict[str, int]]:
    """Write everything, and return the ids by owner and kind of object."""
    for cluster in (OWN, FOREIGN):
        Cluster.objects.get_or_create(id=cluster, defaults={"name": cluster})
    ids = {owner: _alerting_objects(owner) for owner in OWNERS}
    for cluster in (OWN, FOREIGN):
        ids[cluster] |= _of_cluster(cluster, ids[cluster], ids[INSTALLATION])
    ids[INSTALLATION] |= _of_installation(ids[INSTALLATION])
    return ids


def foreign_rows() -> list[tuple[Any, ...]]:
    """Return every row that a visitor limited to `OWN` may not change."""
    return [tuple(sorted(row.items())) for rows in _foreign() for row in rows.values()]


def _text(owner: str) -> str:
    return f"of-{owner}-only" if owner else "of-all"


def _alerting_objects(owner: str) -> dict[str, int]:
    """Write what has an owner: a channel, a route to it, a rule, a silence, a window and the text of a runbook."""
    now, text = timezone.now().timestamp(), _text(owner)
    address = "installation-address" if not owner else f"address-{text}"
    channel = Channel.objects.create(
        name=f"channel-{text}", kind="email", cluster=owner, config={"to": f"{address}@example.com"}
    )
    route = Route.objects.create(name=f"route-{text}", cluster=owner, position=9)
    route.channels.add(channel)
    rule = AlertRule.objects.create(name=f"rule-{text}", cluster=owner, kind="stranded", severity=1)
    silence = Silence.objects.create(
        cluster=owner, matchers="cause=nothing", reason=text, creator="ada", starts_at=now, ends_at=now + 3600
    )
    window = MaintenanceWindow.objects.create(
        name=f"window-{text}", cluster=owner, matchers="cause=nothing", rule="FREQ=DAILY", creator="ada",
        start_time=time_of_day(2, 0), length=timedelta(hours=1), reason=text,
    )  # fmt: skip
    RunbookText.objects.create(cluster=owner, cause="auth", text=text, updated_at=now, updated_by=text)
    return {
        "channel": channel.pk, "route": route.pk, "rule": rule.pk, "silence": silence.pk, "window": window.pk,
    }  # fmt: skip


def _delivery(
    channel: int, owner: str, subject: str, error: str, incident: Incident | None = None
) -> Delivery:
    return Delivery.objects.create(
        channel_id=channel, cluster=owner, incident=incident, key=f"key-{owner}-{channel}", kind="firing",
        payload={"subject": subject}, created_at=1.0, next_attempt_at=1.0, attempts=1, failed_at=2.0,
        attempted_at=2.0, last_error=error,
    )  # fmt: skip


def _of_cluster(cluster: str, own: Ids, installation_ids: Ids) -> dict[str, int]:
    """Write the rows of one cluster: an incident with its timeline, messages about it, a change and so on."""
    now, text = timezone.now(), _text(cluster)
    at = now.timestamp()
    incident = Incident.objects.create(
        cluster_id=cluster, key=f"proxy/{text}", cause_kind="proxy", cause_id=f"proxy-{text}", cause_name=text,
        generation=1, state="firing", severity=2, opened_at=at, fired_at=at, notification_count=1, notified_at=at,
        affected_count=3, peak_count=3, summary=f"{text} does not answer.",
    )  # fmt: skip
    IncidentEvent.objects.create(incident=incident, at=at, kind="note", text=text)
    VersionChange.objects.create(cluster_id=cluster, instance_id=text, name=text, old="1", new="2", at=at - 9)
    delivery = _delivery(own["channel"], cluster, text, text, incident)
    _delivery(installation_ids["channel"], cluster, text, "installation-address refused it", incident)
    agent_set = AgentSet.objects.create(cluster_id=cluster, pattern=text, name="critical")
    change = Change.objects.create(
        cluster_id=cluster,
        kind=ChangeKind.RECONNECT.value,
        title=text,
        actor_name=text,
        actor_kind="person",
        parameters={"settings": {}},
    )
    NetworkingRevision.objects.create(cluster_id=cluster, revision=text, document={}, at=now)
    DesiredPolicy.objects.create(cluster_id=cluster, target=text, name="NAME", value=text)
    Drain.objects.create(cluster_id=cluster, instance=text, name=text, is_drained=True, actor_name=text)
    Agent.objects.create(cluster_id=cluster, agent_id=text, name=text, position=0)
    view_owner = User.objects.create_user(f"owner-{text}")
    view = SavedView.objects.create(cluster_id=cluster, owner=view_owner, name=text, is_shared=True)
    write_entry(Attempt(SYSTEM_ACTOR, "x.done", cluster, text), "succeeded", now)
    return {
        "incident": incident.pk, "delivery": delivery.pk, "agent_set": agent_set.pk, "change": change.pk,
        "entry": AuditEntry.objects.latest("pk").pk, "view": view.pk,
    }  # fmt: skip


def _of_installation(own: Ids) -> dict[str, int]:
    """Write what concerns no cluster: the test of a channel, an audit row and somebody's token."""
    now = timezone.now()
    test = _delivery(own["channel"], INSTALLATION, "installation-address", "installation-address")
    write_entry(Attempt(SYSTEM_ACTOR, "token.create", subject="installation-address"), "succeeded", now)
    entry = AuditEntry.objects.latest("pk")
    owner = User.objects.create_user("installation-address")
    token, _ = create_token(owner, "installation-address", [Permission.VIEW_FLEET], lifetime=None, now=now)
    return {
        "delivery": test.pk, "token": token.pk, "incident": 0, "agent_set": 0, "change": 0, "entry": entry.pk,
        "view": 0,
    }  # fmt: skip


def _foreign() -> Iterator[QuerySet[Any]]:
    of_owner: tuple[type[Model], ...] = (
        Channel,
        Route,
        AlertRule,
        Silence,
        MaintenanceWindow,
        Delivery,
        RunbookText,
    )
    of_cluster: tuple[type[Model], ...] = (
        AgentSet, Incident, Change, NetworkingRevision, DesiredPolicy, Drain, Agent, SavedView,
    )  # fmt: skip
    for model in (*of_owner, *of_cluster):
        yield model._default_manager.exclude(cluster=OWN).order_by("pk")
    for links in (Route.channels.through, Route.escalate_to.through):
        yield links._default_manager.exclude(route__cluster=OWN).order_by("pk")
    yield IncidentEvent.objects.exclude(incident__cluster=OWN).order_by("pk")
    yield User.objects.get(username="installation-address").api_tokens.order_by("pk")
