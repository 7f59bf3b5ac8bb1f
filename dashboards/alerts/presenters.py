"""What the pages of alerts are given: incidents, silences, windows and messages in words, dates and ages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from operator import or_
from shlex import quote
from typing import Any
from urllib.parse import urlencode

import numpy as np
import numpy.typing as npt
from django.db.models import Q

from dashboards.changes.audit_words import OF_THE_FLEET, action_words
from dashboards.fleet import agent_query
from dashboards.shared.presenters import age_ms, moment
from fleet.alerts import store
from fleet.alerts.lifecycle import Look, plan
from fleet.alerts.notifications import agents_path, clock, duration_words, headline, recovery_words, subject
from fleet.alerts.routes import Route, escalates_at, leaves, receivers
from fleet.alerts.rules import Rule
from fleet.alerts.silences import Silence, active, silencing
from fleet.models.access import shown_clusters
from fleet.models.alerting import Channel, Delivery
from fleet.models.changes import AuditEntry, Change
from fleet.models.incidents import Incident, IncidentEvent, VersionChange
from fleet.models.moments import to_moment
from fleet.models.networking import NetworkingRevision
from fleet.monitoring.columns import NO_INSTANCE, REASON_BITS
from fleet.monitoring.evidence import Mode
from fleet.monitoring.views import FleetTable
from fleet.vocabulary import incidents as values
from fleet.vocabulary.campaigns import Connection
from fleet.vocabulary.changes import OCCUPYING
from fleet.vocabulary.incidents import CauseKind, IncidentState, Notice, NoticeKind, is_of_console
from fleet.vocabulary.instances import CUT_OFF, InstanceKind, InstanceState
from fleet.vocabulary.naming import natural
from fleet.vocabulary.verdicts import Reason

Indices = npt.NDArray[np.intp]

#: What changed in so many seconds before an incident may be its cause.
_BEFORE = 1800.0
_LISTED = 20
#: Stands for an address, or an error that may name one, of a channel of the installation.
HIDDEN = "hidden: it belongs to the whole installation"
#: Causes whose agents might be better off elsewhere.
_MOVABLE = frozenset({CauseKind.PROXY.value, CauseKind.AUTH.value})
#: The box of a trend: width and height.
_WIDTH, _HEIGHT = 120.0, 28.0


@dataclass(frozen=True, slots=True)
class IncidentView:
    """One incident as pages and the API show it: what is computed of it, and its other fields as they are."""

    value: values.Incident
    #: Its key in addresses; `id` is its name for ever.
    number: int
    severity: str
    summary: str
    cause_kind: str
    cause: str
    agents: list[str]
    opened_ms: int | None
    resolved_ms: int | None
    duration_seconds: float
    lasted: str
    flapping: bool
    acknowledged_by: str
    #: What explains it or holds it, in words; empty when nothing does.
    explained: str
    #: Whether it heals by itself, in words; empty when nothing is harmed.
    heals: str
    #: Points of the trend's line, and of the area below it.
    trend: str
    agents_url: str
    #: As `next_message` has it, where that is asked for.
    next_message: Mapping[str, Any] | None

    def __getattr__(self, name: str) -> Any:
        """Return a field of the incident, a moment as a date."""
        field = getattr(self.value, name)
        return moment(field) if name.endswith("_at") else field


def quiet_in(cluster: str, now: float) -> list[Silence]:
    """Return the silences and maintenance windows that hold in a cluster now."""
    return active(store.silences(now), store.windows(), cluster, now)


def silenced(row: Incident, quiet: Sequence[Silence]) -> values.Incident:
    """Return an incident with the silence that covers it now; its row says so after the next look only."""
    value = store.value_of(row)
    over = value.state is IncidentState.RESOLVED
    return value if over else replace(value, silenced_by=silencing(value, quiet))


def incident_view(
    row: Incident,
    now: float,
    prefix: str = "",
    names: Mapping[str, str] | None = None,
    *,
    quiet: Sequence[Silence],
    coming: Mapping[str, Any] | None = None,
) -> IncidentView:
    """Present one incident. `names`: of causes by key, for what explains it; `quiet`: of `quiet_in`."""
    value = silenced(row, quiet)
    cause, lasted = value.cause, value.duration(now)
    over = value.state is IncidentState.RESOLVED
    return IncidentView(
        value=value,
        number=row.pk,
        severity=value.severity.slug,
        summary=headline(value),
        cause_kind=cause.kind.value,
        cause=cause.name,
        agents=list(value.names),
        opened_ms=age_ms(value.opened_at, now),
        resolved_ms=age_ms(value.resolved_at, now),
        duration_seconds=round(lasted, 1),
        lasted=duration_words(lasted),
        flapping=value.flapping_since is not None,
        acknowledged_by=row.acked_by,
        explained=_inhibited_words(value.inhibited_by, names or {}),
        # A rule of the whole fleet knows no cause, and so no recovery of its agents.
        heals=recovery_words(value) if value.affected and cause.kind is not CauseKind.FLEET else "",
        trend=trend_points(value.trend, value.resolved_at or now if over else now),
        agents_url=f"{prefix}{agents_path(cause)}",
        next_message=coming,
    )


def _inhibited_words(key: str, names: Mapping[str, str]) -> str:
    """Say what explains an incident. A console that sees nothing explains none: it holds them as they are."""
    if is_of_console(key):
        return "on hold: the console cannot see the fleet"
    return f"explained by {names.get(key, key)}" if key else ""


def trend_points(trend: Sequence[tuple[float, int]], until: float) -> str:
    """A stepped line through the counts, for an SVG polyline; empty when there is nothing to draw."""
    if not trend:
        return ""
    began = trend[0][0]
    span = max(until - began, 1.0)
    most = max((count for _, count in trend), default=1) or 1
    points, last = [], None
    for at, count in trend:
        x = (at - began) / span * _WIDTH
        y = _HEIGHT - 1 - count / most * (_HEIGHT - 3)
        if last is not None:
            points.append(f"{x:.1f},{last:.1f}")
        points.append(f"{x:.1f},{y:.1f}")
        last = y
    return " ".join([*points, f"{_WIDTH:.1f},{last:.1f}"])


def names_of(rows: Iterable[Incident]) -> dict[str, str]:
    """What causes are called, by key."""
    return {row.key: store.value_of(row).cause.words for row in rows}


def next_message(
    row: Incident, rules: Iterable[Rule], now: float, tree: Sequence[Route], quiet: Sequence[Silence]
) -> dict[str, Any]:
    """`at` and `because` of the next message, and `to`: names of the channels it goes to.

    `tree`: the routes of its cluster; `quiet`: of `quiet_in`.
    """
    value = silenced(row, quiet)
    planned = plan(value, Look(now, 0.0, {rule.name: rule for rule in rules}))
    if value.state is IncidentState.RESOLVED:
        return {"at": None, "because": "it is over", "to": [], "path": []}
    found = leaves(tree, value)
    at, because = planned.at, planned.because
    if value.inhibited_by:
        by = Incident.objects.filter(cluster=row.cluster_id, key=value.inhibited_by).order_by("-generation")
        because = because.replace(
            value.inhibited_by, names_of(by[:1]).get(value.inhibited_by, value.inhibited_by)
        )
    second = escalates_at(found, value)
    kind = planned.kind or NoticeKind.FIRING
    if second is not None and (at is None or second < at):
        at, because, kind = second, "nobody has acknowledged it by then", NoticeKind.ESCALATED
    told = receivers(found, value, kind, at or now)
    if kind is NoticeKind.RESOLVED:
        told = store.end_receivers(row, told, at or now)
    held = [(when, why) for when, why in told.values() if why]
    if at is not None and told and len(held) == len(told):
        at, why = min(held)
        because = f"{because}, but not before the end of the {why}"
    if at is None and (heard := _names(store.end_receivers(row, {}, now))):
        because = f"{because}; only its end will be sent, to {', '.join(heard)}"
    return {
        "at": moment(at),
        "ms": age_ms(at, now),
        "because": because,
        "to": _names(told) if at is not None else [],
        "path": [" / ".join(leaf.path) for leaf in found],
    }


def _names(channels: Iterable[int]) -> list[str]:
    return list(Channel.objects.filter(pk__in=list(channels)).values_list("name", flat=True))


@dataclass(frozen=True, slots=True)
class Before:
    """Something that was changed shortly before an incident."""

    at: datetime
    who: str
    what: str
    why: str = ""
    #: The page of it below the cluster's prefix; empty: it has none.
    path: str = ""


def changed_before(cluster: str, opened_at: float, *, limited: bool) -> list[Before]:
    """What changed in the half hour before, newest first: changes, acts on the fleet, configs of others, versions.

    `limited`: the reader is limited to some clusters, and sees no act that concerns the whole installation.
    """
    since, until = to_moment(opened_at - _BEFORE), to_moment(opened_at)
    ran = Change.objects.filter(cluster=cluster, started_at__lte=until).filter(
        Q(ended_at=None, state__in=[state.value for state in OCCUPYING]) | Q(ended_at__gte=since)
    )
    acts = AuditEntry.objects.filter(
        reduce(or_, (Q(action__startswith=f"{first}.") for first in OF_THE_FLEET)),
        cluster__in=shown_clusters(cluster, limited=limited),
        outcome="done", change_id=None, at__gte=since, at__lte=until,
    ).order_by("-at")  # fmt: skip
    configs = NetworkingRevision.objects.filter(
        cluster=cluster, change=None, at__gte=since, at__lte=until
    ).exclude(previous=None)
    versions = VersionChange.objects.filter(
        cluster=cluster, at__gte=opened_at - _BEFORE, at__lte=opened_at
    ).order_by("-at")
    found = [
        *(
            Before(one.started_at or until, one.who, f"{one.title} ({one.state})", one.reason, f"/changes/{one.pk}/")
            for one in ran[:_LISTED]
        ),
        *(Before(one.at, one.who, f"{action_words(one.action)}: {one.subject}", one.reason) for one in acts[:_LISTED]),
        *(
            Before(one.at, one.who or "not through this console", f"networking config {one.revision}", one.reason)
            for one in configs[:_LISTED]
        ),
        *_versions(versions),
    ]  # fmt: skip
    return sorted(found, key=lambda one: one.at, reverse=True)[:_LISTED]


def _versions(rows: Iterable[VersionChange]) -> Iterator[Before]:
    """One line for all instances that went from one version to another."""
    groups: dict[tuple[str, str], list[VersionChange]] = {}
    for row in rows:
        groups.setdefault((row.old, row.new), []).append(row)
    for (old, new), some in groups.items():
        called = sorted((row.name for row in some), key=natural)
        names = ", ".join(called[:5]) + (f" and {len(some) - 5} more" if len(some) > 5 else "")
        what = f"version {old} became {new}" if old else f"seen for the first time, version {new}"
        yield Before(to_moment(some[0].at), names, what)


def in_common(table: FleetTable, indices: Indices) -> list[dict[str, Any]]:
    """What the agents of an incident have in common: by reason, home proxy and auth, most first."""
    if not len(indices):
        return []
    total = len(indices)

    def name(index: int) -> str:
        view = table.instances.get(index)
        return "none" if index == NO_INSTANCE or view is None else view.facts.name

    reasons = (table.verdicts["packed"][indices] & REASON_BITS).tolist()
    counted: dict[str, Counter[str]] = {
        "Reason": Counter(Reason(reason).slug for reason in reasons),
        "Home proxy": Counter(name(index) for index in table.memory["home"][indices].tolist()),
        "Auth": Counter(name(index) for index in table.memory["last_auth"][indices].tolist()),
        "Reconnect mode": Counter(Mode(mode).slug for mode in table.heartbeats["mode"][indices].tolist()),
    }
    return [
        {
            "title": title,
            "parts": [
                {"name": value, "count": count, "share": round(100 * count / total)}
                for value, count in counts.most_common(5)
            ],
            "more": max(0, len(counts) - 5),
        }
        for title, counts in counted.items()
    ]


def told_line(event: IncidentEvent | None) -> dict[str, Any]:
    """What a browser says of the newest message: `event` tells it from those before; 0: there was none."""
    if event is None:
        return {"event": 0}
    row = event.incident
    value = store.value_of(row)
    over = value.state is IncidentState.RESOLVED
    notice = Notice(
        NoticeKind.RESOLVED if over else NoticeKind.FIRING, value, value.resolved_at or event.at, 0
    )
    severity = "resolved" if over else value.severity.slug
    return {"event": event.pk, "text": subject(notice), "severity": severity, "number": row.pk}


def reconnect_query(row: Incident, cause: InstanceState | None, table: FleetTable) -> tuple[str, str]:
    """The query of the page that plans a reconnect of the agents of an incident, or why there is none.

    Agents are asked through their tunnels: who has none, or only through a proxy that does not answer, hears nothing.
    An agent that is stranded by its auth has its tunnels still: it is who needs it most.
    """
    if row.state == IncidentState.RESOLVED.value or row.cause_kind not in _MOVABLE:
        return "", ""
    if row.cause_kind == CauseKind.PROXY.value:
        if cause is InstanceState.SILENT:
            return (
                "",
                f"{row.cause_name} does not answer, so its agents cannot be asked to reconnect elsewhere.",
            )
        return urlencode({"proxy": row.cause_name}), ""
    text = quote(f"auth:{row.cause_name}")
    connected = agent_query.select(table, agent_query.parse(text))
    if not len(connected):
        return "", ""
    if not _have_reachable_tunnels(table, connected):
        return "", f"No agent of {row.cause_name} has a tunnel through which it can be asked to reconnect."
    return urlencode({"connection": Connection.AUTH.value, "auth": row.cause_name}), ""


def _have_reachable_tunnels(table: FleetTable, indices: Indices) -> bool:
    """Return whether any of these agents has a tunnel to a proxy that is not cut off."""
    proxies = [
        index
        for index, view in table.instances.items()
        if view.facts.kind is InstanceKind.PROXY and view.state not in CUT_OFF
    ]
    reachable = table.tunnel_agents[np.isin(table.tunnel_proxies, proxies)]
    return bool(np.isin(indices, reachable).any())


def delivery_row(row: Delivery, now: float, *, limited: bool) -> dict[str, Any]:
    """One message in the log: what, where, how it stands, and what comes next.

    `limited`: the reader is limited to some clusters; an error of a channel of the installation may name its address.
    """
    channel, error = row.channel, row.last_error
    if error and limited and (channel is None or not channel.cluster):
        error = HIDDEN
    if row.sent_at is not None:
        state, at = "sent", row.sent_at
    elif row.failed_at is not None:
        state, at = "failed", row.failed_at
    elif (row.leased_until or 0.0) > now:
        state, at = "sending", row.next_attempt_at
    else:
        state, at = "waiting", row.next_attempt_at
    return {
        "id": row.pk,
        "kind": row.kind,
        "subject": row.payload.get("subject", ""),
        "channel": f"{row.channel_name} (deleted)" if channel is None else channel.name,
        "state": state,
        "at": moment(at),
        "at_ms": age_ms(at, now),
        "attempts": row.attempts,
        "error": error,
        "why": row.waits_for,
        "key": row.key,
    }


def span_words(starts_at: float, ends_at: float) -> str:
    """When something is, in UTC."""
    return f"{clock(starts_at)[:16]} to {clock(ends_at)[:16]} UTC"
