"""A message in words: a subject that works as an SMS, six lines, three links; and as data. Pure.

docs/alerts.md, "Messages".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from fleet.vocabulary.incidents import Cause, CauseKind, Incident, IncidentState, Notification, NotificationKind, Severity
from fleet.vocabulary.verdicts import AFFECTED_STATES, LOST_OR_AT_RISK_STATES, State

#: Labels of links in a text, where the name of the link alone would read as another line of it.
_LINK_LABELS = {"Agents": "List of agents"}


@dataclass(frozen=True, slots=True)
class Links:
    """Where people go from a message."""

    #: Address of the console, without a slash at its end; empty when nobody said it.
    console: str = ""
    runbook: str = ""
    #: What the console calls this one incident; None before it is kept.
    number: int | None = None


def subject(notification: Notification) -> str:
    """One line: `CRIT default: 207 agents stranded, proxy-1 does not answer - self-heals by 03:21 UTC`."""
    incident = notification.incident
    cluster, name = incident.cluster, incident.cause.name
    if notification.kind is NotificationKind.RESOLVED:
        duration = format_duration(incident.duration(notification.at))
        peak_text = f", {incident.peak} agents at most" if incident.peak else ""
        return f"RESOLVED {cluster}: {name} after {duration}{peak_text}"
    if notification.kind is NotificationKind.FLAPPING:
        return f"FLAPPING {cluster}: {name} comes and goes; further turns are not told"
    severity_word = incident.severity.look.short
    lead = {
        NotificationKind.WORSE: f"{severity_word} (worse)",
        NotificationKind.REPEAT: f"{severity_word} (still)",
        NotificationKind.UPDATE: f"{severity_word} (more)",
        NotificationKind.ESCALATED: f"{severity_word} (nobody acknowledged)",
        NotificationKind.ACKNOWLEDGED: "ACKNOWLEDGED",
        NotificationKind.SILENCE_ENDS: "SILENCE ENDS SOON",
    }.get(notification.kind, severity_word)
    return f"{lead} {cluster}: {headline(incident)}{_recovery_suffix(incident)}"


def headline(incident: Incident) -> str:
    """What is wrong, without the time: `207 agents stranded, proxy-1`."""
    # Details in brackets are for the page of the instance. They are errors of others, with brackets of their own.
    summary = re.sub(r" \(.*\)$", "", incident.sentence.rstrip("."), flags=re.DOTALL)
    name = incident.cause.name
    return summary if name in summary or incident.cause.kind is CauseKind.FLEET else f"{summary}, {name}"


def lines(notification: Notification, links: Links) -> list[str]:
    """The body: what, how many, since when, why, whether it heals by itself, who; then the links."""
    incident = notification.incident
    body_lines = [
        f"What: {headline(incident)}.",
        f"Cause: {incident.cause.label}.",
        f"Affected: {_format_agent_count(incident.affected)} now, {incident.peak} at most.",
        f"Since: {format_utc(incident.opened_at)}, for {format_duration(incident.duration(notification.at))}.",
    ]
    if notification.kind is NotificationKind.RESOLVED:
        body_lines.append(f"Resolved: {format_utc(incident.resolved_at or notification.at)}.")
    elif incident.affected:
        body_lines.append(f"Recovery: {describe_recovery(incident)}.")
    elif incident.peak:
        body_lines.append("Recovery: no agent is affected any more.")
    if incident.names:
        label = "Affected agents" if incident.affected else "Agents affected before"
        more = (incident.affected or incident.peak) - len(incident.names)
        body_lines.append(f"{label}: {', '.join(incident.names)}{f' and {more} more' if more > 0 else ''}.")
    body_lines += [f"{_LINK_LABELS.get(link_name, link_name)}: {url}" for link_name, url in urls(incident, links).items()]
    return body_lines


def text(notification: Notification, links: Links) -> str:
    """The body as one text."""
    return "\n".join(lines(notification, links)) + "\n"


def urls(incident: Incident, links: Links) -> dict[str, str]:
    """The links of a message, by what they are called."""
    url_by_name: dict[str, str] = {}
    if links.console:
        prefix = prefix_url(links.console, incident.cluster)
        if links.number is not None:
            url_by_name["Incident"] = f"{prefix}/incidents/{links.number}/"
        url_by_name["Agents"] = f"{prefix}{agents_path(incident.cause)}"
    if links.runbook:
        url_by_name["Runbook"] = links.runbook
    return url_by_name


def runbook_url(console: str, cluster: str, kind: str) -> str:
    """The console's own runbook for a kind of rule; empty when nobody said where the console is."""
    return f"{prefix_url(console, cluster)}/alerts/runbooks/{kind}/" if console else ""


def prefix_url(console: str, cluster: str) -> str:
    """Where the pages of a cluster begin."""
    return console + ("" if cluster == "default" else f"/c/{quote(cluster)}")


#: States of the agents that rules of the whole fleet count, by the kind of the rule.
_FLEET_STATES = {"rate": LOST_OR_AT_RISK_STATES, "excess": (State.EXCESS,)}


def agents_path(cause: Cause) -> str:
    """Return the path of the page that lists the agents of a cause; all agents where no filter fits."""
    if cause.kind is CauseKind.FLEET:
        query = [("state", state.slug) for state in _FLEET_STATES.get(cause.id, ())]
    elif cause.kind is CauseKind.CLUSTER:
        query = []
    else:
        query = [("state", state.slug) for state in AFFECTED_STATES]
    if cause.kind in (CauseKind.PROXY, CauseKind.AUTH):
        query.append((cause.kind.value, cause.name))
    return f"/agents/?{urlencode(query)}" if query else "/agents/"


def payload(notification: Notification, links: Links) -> dict[str, Any]:
    """The message as data: what webhooks get, and what every other sender is made from."""
    incident = notification.incident
    return {
        "version": 1,
        "key": notification.key,
        "kind": notification.kind.value,
        "at": format_iso(notification.at),
        "subject": subject(notification),
        "text": text(notification, links),
        "incident": {
            "id": incident.id,
            "cluster": incident.cluster,
            "cause": {
                "kind": incident.cause.kind.value,
                "id": incident.cause.id,
                "name": incident.cause.name,
            },
            "state": incident.state.value,
            "severity": incident.severity.slug,
            "summary": headline(incident),
            "rules": sorted(incident.marks),
            "affected": incident.affected,
            "peak": incident.peak,
            "agents": list(incident.names),
            "opened_at": format_iso(incident.opened_at),
            "resolved_at": format_iso(incident.resolved_at),
            "duration_seconds": round(incident.duration(notification.at), 1),
            "heals_at": format_iso(incident.heals_at),
            "flapping": incident.flapping_since is not None,
        },
        "links": urls(incident, links),
    }


def make_test_notification(channel: str, now: float) -> Notification:
    """A message that tries a channel out."""
    incident = Incident(
        cluster="test",
        cause=Cause(CauseKind.CONSOLE, f"test-{int(now * 1000)}", f"a test of the channel {channel}"),
        generation=1,
        state=IncidentState.FIRING,
        opened_at=now,
        severity=Severity.INFO,
        sentence=f"This is a test of the channel {channel}.",
    )
    return Notification(NotificationKind.TEST, incident, now, 1)


def describe_recovery(incident: Incident) -> str:
    """Whether it heals by itself, and by when."""
    if incident.stuck:
        has_no_instance = incident.cause.kind is CauseKind.AGENTS
        return "not by itself" if has_no_instance else f"not by itself, only if {incident.cause.name} recovers"
    if incident.heals_at is None:
        return "cannot be told yet"
    return f"by itself, by {format_utc(incident.heals_at)}"


def format_duration(seconds: float) -> str:
    """A duration as people read it: `45 s`, `12 min`, `3 h 5 min`."""
    if seconds < 120:
        return f"{round(seconds)} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def format_utc(at: float | None) -> str:
    """A moment in UTC, to the second."""
    return "never" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"


def format_iso(at: float | None) -> str | None:
    """A moment as ISO 8601."""
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def _format_agent_count(count: int) -> str:
    return f"{count} agent{'s' if count != 1 else ''}"


def _recovery_suffix(incident: Incident) -> str:
    if incident.peak and not incident.affected:
        return " - no agent is affected now"
    if incident.stuck:
        return " - does not heal by itself"
    if incident.heals_at is None:
        return ""
    return f" - self-heals by {datetime.fromtimestamp(incident.heals_at, UTC):%H:%M} UTC"
