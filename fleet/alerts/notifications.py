"""Texts of notifications: a subject short enough for an SMS, six lines, three links; and their payload. Pure.

docs/reference/alerts.md, "Notifications".
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from fleet.alerts.wording import words
from fleet.protocol.durations import format_readable
from fleet.vocabulary.incidents import (
    Cause,
    CauseKind,
    Incident,
    IncidentState,
    Notification,
    NotificationKind,
    Severity,
)
from fleet.vocabulary.runbooks import RunbookCause, runbook_path_of
from fleet.vocabulary.verdicts import AFFECTED_STATES, LOST_OR_AT_RISK_STATES, State

#: The outage of an instance, and that of its agents, are named apart if one is longer by so many seconds.
_MIN_NAMED_DIFFERENCE_SECONDS = 2
#: Kinds of causes that fail themselves.
_FAILING_CAUSE_KINDS = frozenset(
    {CauseKind.BACKEND, CauseKind.REGION, CauseKind.AUTH, CauseKind.GROUP, CauseKind.PROXY}
)
#: Labels of links in a text, where the name of the link could be mistaken for another line.
_LINK_LABELS = {"Agents": "Agent list"}


@dataclass(frozen=True, slots=True)
class NotificationLinks:
    """The targets of the links in a notification."""

    #: Base URL of the console without a trailing slash; empty if not configured.
    console_url: str = ""
    runbook_url: str = ""
    #: Number of the incident in URLs; None before it is stored.
    incident_number: int | None = None
    #: Actions that help the affected agents now: label, and path below the prefix of the cluster.
    actions: tuple[tuple[str, str], ...] = ()
    #: Page of the channel, for a test notification, which has no other links.
    channel_url: str = ""


def subject_of(notification: Notification) -> str:
    """Return one line: `CRIT default: 207 agents stranded (proxy-1) - agents recover by 03:21 UTC`."""
    incident = notification.incident
    cluster, name = incident.cluster, incident.cause.name
    if notification.kind is NotificationKind.RESOLVED:
        duration = format_readable(round(incident.duration_seconds(notification.at)))
        peak_text = f", peak {_format_agent_count(incident.peak_count)}" if incident.peak_count else ""
        moved_text = f" - {notification.moved_agents}" if notification.moved_agents else ""
        return f"RESOLVED {cluster}: {name} after {duration}{peak_text}{moved_text}"
    if notification.kind is NotificationKind.FLAPPING:
        return f"FLAPPING {cluster}: {name} - further state changes are not sent one by one"
    severity_word = incident.severity.look.subject_prefix
    if notification.kind is NotificationKind.SHORT_OUTAGE:
        return f"OVER {cluster}: {headline_of(incident)}{_format_outage_suffix(notification)}"
    lead = {
        NotificationKind.WORSE: f"{severity_word} (worse)",
        NotificationKind.REPEAT: f"{severity_word} (repeat)",
        NotificationKind.UPDATE: f"{severity_word} (more agents)",
        NotificationKind.ESCALATED: f"{severity_word} (not acknowledged)",
        NotificationKind.ACKNOWLEDGED: "ACKNOWLEDGED",
        NotificationKind.UNACKNOWLEDGED: "ACKNOWLEDGEMENT REMOVED",
        NotificationKind.SILENCED: "SILENCED",
        NotificationKind.UNSILENCED: "SILENCE ENDED",
        NotificationKind.SILENCE_ENDS: "SILENCE ENDS SOON",
    }.get(notification.kind, severity_word)
    suffix = (
        f" - {describe_silence(incident, notification.at)}"
        if notification.kind is NotificationKind.SILENCED
        else _format_recovery_suffix(notification)
    )
    return f"{lead} {cluster}: {headline_of(incident)}{suffix}"


def headline_of(incident: Incident) -> str:
    """Return the summary of an incident: `207 agents stranded since 10:14 UTC because proxy-1 is not responding`."""
    # Drop details in brackets: they are on the page of the instance. They are errors of others and may nest brackets.
    summary = re.sub(r" \(.*\)$", "", incident.summary.rstrip("."), flags=re.DOTALL)
    name = incident.cause.name
    has_cause = name in summary or " because " in summary or incident.cause.kind is CauseKind.FLEET
    return summary if has_cause else f"{summary} ({name})"


def _body_lines_of(notification: Notification, links: NotificationLinks) -> list[str]:
    """Return the lines of the body: summary, cause, affected agents, opening, recovery, names; then the links."""
    incident = notification.incident
    body_lines = [
        f"Summary: {headline_of(incident)}.",
        *(() if notification.kind is NotificationKind.TEST else _fact_lines_of(notification)),
    ]
    if notification.kind is NotificationKind.RESOLVED:
        if notification.moved_agents:
            body_lines.append(f"Recovery: {notification.moved_agents}.")
        elif incident.affected_until is not None:
            body_lines.append(f"Recovery: {_describe_past_recovery(incident)}.")
        body_lines.append(f"Resolved: {format_utc(incident.resolved_at or notification.at)}.")
    elif recovery_sentence := _describe_open_recovery(notification):
        body_lines.append(f"Recovery: {recovery_sentence}")
    if notification.kind is not NotificationKind.RESOLVED and incident.affected_count:
        body_lines += [
            f"Action: {label}{f': {url}' if url else ''}" for label, url in _actions_of(incident, links)
        ]
    if incident.agent_names:
        label = words.label_of_agents(
            affected_count=incident.affected_count, is_moved=bool(notification.moved_agents)
        )
        omitted_count = (incident.affected_count or incident.peak_count) - len(incident.agent_names)
        body_lines.append(
            f"{label}: {', '.join(incident.agent_names)}{f' and {omitted_count} more' if omitted_count > 0 else ''}."
        )
    body_lines += [
        f"{_LINK_LABELS.get(link_label, link_label)}: {url}"
        for link_label, url in _link_urls_of(incident, links).items()
    ]
    return body_lines


def _fact_lines_of(notification: Notification) -> list[str]:
    """Return cause, affected agents and opening of an incident."""
    incident = notification.incident
    duration = format_readable(round(incident.duration_seconds(notification.at)))
    return [
        f"Cause: {incident.cause.label}.",
        f"Affected: {_format_agent_count(incident.affected_count)} now, peak {incident.peak_count}.",
        f"Opened: {format_utc(incident.opened_at)}, for {duration}.",
    ]


def text_of(notification: Notification, links: NotificationLinks) -> str:
    """Return the body of a notification as one text."""
    return "\n".join(_body_lines_of(notification, links)) + "\n"


def _actions_of(incident: Incident, links: NotificationLinks) -> list[tuple[str, str]]:
    """Return label and URL of each action; an empty URL without a public URL of the console."""
    prefix = links.console_url and cluster_base_url(links.console_url, incident.cluster)
    return [(label, f"{prefix}{path}" if prefix else "") for label, path in links.actions]


def _link_urls_of(incident: Incident, links: NotificationLinks) -> dict[str, str]:
    """Return the links of a notification by label."""
    if links.channel_url:
        return {"Channel": links.channel_url}
    url_by_label: dict[str, str] = {}
    if links.console_url:
        prefix = cluster_base_url(links.console_url, incident.cluster)
        if links.incident_number is not None:
            url_by_label["Incident"] = f"{prefix}/incidents/{links.incident_number}/"
        url_by_label["Agents"] = f"{prefix}{agents_path(incident.cause, _past_moment_of(incident))}"
    if links.runbook_url:
        url_by_label["Runbook"] = links.runbook_url
    return url_by_label


def runbook_url(console_url: str, cluster: str, runbook: RunbookCause, incident_number: int) -> str:
    """Return the URL of a runbook about an incident; empty without a base URL."""
    path = runbook_path_of(runbook, incident_number=incident_number)
    return f"{cluster_base_url(console_url, cluster)}{path}" if console_url else ""


def cluster_base_url(console_url: str, cluster: str) -> str:
    """Return the base URL of the pages of a cluster."""
    return console_url + ("" if cluster == "default" else f"/c/{quote(cluster)}")


#: States of the agents that rules of the whole fleet count, by rule kind.
_STATES_BY_RULE_KIND = {"rate": LOST_OR_AT_RISK_STATES, "excess": (State.EXCESS,)}


def peak_time_of(incident: Incident) -> float:
    """Return when most agents were affected, as far as the trend of the incident tells."""
    if incident.trend:
        return max(incident.trend, key=lambda point: point[1])[0]
    return incident.fired_at or incident.opened_at


def _past_moment_of(incident: Incident) -> float | None:
    """Return the moment that has the agents of an incident; None: the present."""
    return peak_time_of(incident) if incident.peak_count and not incident.affected_count else None


def agents_path(cause: Cause, past_at: float | None = None) -> str:
    """Return the path of the list of agents, filtered by a cause where a filter exists; at a past moment if given."""
    if cause.kind is CauseKind.FLEET:
        query = [("state", state.slug) for state in _STATES_BY_RULE_KIND.get(cause.id, ())]
    elif cause.kind is CauseKind.CLUSTER:
        query = []
    else:
        query = [("state", state.slug) for state in AFFECTED_STATES]
    if cause.kind in (CauseKind.PROXY, CauseKind.AUTH):
        query.append((cause.kind.value, cause.name))
    if past_at is not None:
        # Rounded up: the state at a moment is that of the last round up to it.
        query.append(("at", f"{datetime.fromtimestamp(math.ceil(past_at), UTC):%Y-%m-%dT%H:%M:%SZ}"))
    return f"/agents/?{urlencode(query)}" if query else "/agents/"


def payload_of(notification: Notification, links: NotificationLinks) -> dict[str, Any]:
    """Return the notification as data: the body of webhooks, and the input of all other senders."""
    incident = notification.incident
    return {
        "version": 1,
        "key": notification.key,
        "kind": notification.kind.value,
        "at": format_iso(notification.at),
        "subject": subject_of(notification),
        "text": text_of(notification, links),
        "incident": {
            "id": incident.id,
            "cluster": incident.cluster,
            "cause": {
                "kind": incident.cause.kind.value,
                "id": incident.cause.id,
                "name": incident.cause.name,
                "label": incident.cause.label,
            },
            "state": incident.state.value,
            "severity": incident.severity.slug,
            "summary": headline_of(incident),
            "rules": list(incident.shown_rule_names),
            "affected_count": incident.affected_count,
            "peak_count": incident.peak_count,
            "agent_names": list(incident.agent_names),
            "moved_agents": notification.moved_agents,
            "opened_at": format_iso(incident.opened_at),
            "resolved_at": format_iso(incident.resolved_at),
            "duration_seconds": round(incident.duration_seconds(notification.at), 1),
            "recovers_at": format_iso(incident.recovers_at),
            "recovery": _describe_open_recovery(notification),
            "is_flapping": incident.flapping_since is not None,
            "acknowledged_by": incident.acknowledged_by,
            "silenced_by": incident.silenced_by,
            "silenced_until": format_iso(incident.silenced_until),
            "silence": describe_silence(incident, notification.at),
        },
        "actions": [{"label": label, "url": url} for label, url in _actions_of(incident, links)],
        "links": _link_urls_of(incident, links),
    }


def make_test_notification(channel: str, now: float) -> Notification:
    """Return a test notification for a channel."""
    incident = Incident(
        cluster="test",
        cause=Cause(CauseKind.CONSOLE, f"test-{int(now * 1000)}", f"test of channel {channel}"),
        generation=1,
        state=IncidentState.FIRING,
        opened_at=now,
        severity=Severity.INFO,
        summary=f"This is a test of channel {channel}.",
    )
    return Notification(NotificationKind.TEST, incident, now, 1)


def describe_recovery(incident: Incident, now: float) -> str:
    """Return whether the affected agents recover automatically, and by when, as one sentence."""
    return words.describe_recovery(
        incident.cause,
        incident.recovers_at,
        now,
        is_stuck=incident.is_stuck,
        is_recovering=incident.is_cause_recovering,
    )


def describe_silence(incident: Incident, now: float) -> str:
    """Return `silenced until 14:30 UTC by alice: new disks`; empty if nothing silences the incident."""
    if not incident.silenced_by:
        return ""
    creator, reason = incident.silence_creator, incident.silenced_by
    reason = reason.removesuffix(f" ({creator})") if creator else reason
    until = (
        ""
        if incident.silenced_until is None
        else f" until {words.format_since(incident.silenced_until, now)}"
    )
    return f"silenced{until}{f' by {creator}' if creator else ''}: {reason}"


def _describe_open_recovery(notification: Notification) -> str:
    """Return the recovery of the agents that are affected now, or what else strands them; empty if none ever was.

    Empty also if the incident is resolved and its agents have recovered.
    """
    incident = notification.incident
    if notification.kind is NotificationKind.RESOLVED:
        return f"{notification.moved_agents}." if notification.moved_agents else ""
    if incident.affected_count:
        return describe_recovery(incident, notification.at)
    if notification.moved_agents:
        return f"{notification.moved_agents}."
    if notification.kind is NotificationKind.SHORT_OUTAGE and incident.recovering_since is not None:
        return f"{_describe_past_recovery(incident)}."
    return "no agents are affected now." if incident.peak_count else ""


def format_utc(at: float | None) -> str:
    """Return a time in UTC to the second: `2026-11-23 10:14:05 UTC`."""
    return "never" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"


def format_iso(at: float | None) -> str | None:
    """Return a time in ISO 8601."""
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def _format_agent_count(count: int) -> str:
    return f"{count} agent{'s' if count != 1 else ''}"


def _describe_past_recovery(incident: Incident) -> str:
    """Return `all agents recovered at 03:05:21 UTC, after 5 s`; without affected agents the same of the cause."""
    subject, recovered_at = "all agents", incident.affected_until
    if recovered_at is None:
        subject, recovered_at = incident.cause.name, incident.recovering_since or incident.opened_at
    duration = format_readable(round(recovered_at - incident.opened_at))
    return (
        f"{subject} recovered at {datetime.fromtimestamp(recovered_at, UTC):%H:%M:%S} UTC, after {duration}"
    )


def _format_outage_suffix(notification: Notification) -> str:
    """Return how long the outage lasted, and the agents if theirs was shorter."""
    incident = notification.incident
    duration = round(incident.duration_seconds(notification.at))
    over_text = f"over after {format_readable(duration)}"
    if notification.moved_agents:
        return f" - {over_text}, {notification.moved_agents}"
    agents_until = (
        duration if incident.affected_until is None else incident.affected_until - incident.opened_at
    )
    if duration - agents_until < _MIN_NAMED_DIFFERENCE_SECONDS:
        return f" - {over_text}"
    return f" - agents recovered after {format_readable(round(agents_until))}, {over_text}"


def _format_recovery_suffix(notification: Notification) -> str:
    incident = notification.incident
    if incident.peak_count and not incident.affected_count:
        is_failing = incident.state is IncidentState.FIRING and incident.cause.kind in _FAILING_CAUSE_KINDS
        failure_text = f"{incident.cause.name} still failing" if is_failing else ""
        if notification.moved_agents:
            return f" - {f'{failure_text}, ' if failure_text else ''}{notification.moved_agents}"
        return f" - no agents affected now{f', {failure_text}' if failure_text else ''}"
    if incident.is_stuck and incident.is_cause_recovering and incident.recovers_at is None:
        return f" - agents recover with {incident.cause.name}"
    if incident.is_stuck:
        return " - no automatic recovery" + (" of some agents" if incident.recovers_at is not None else "")
    if incident.recovers_at is None:
        return ""
    return f" - agents recover by {words.format_by(incident.recovers_at, notification.at)}"
