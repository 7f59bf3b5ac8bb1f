"""Alertmanager API v2: alerts that are reposted while their incident is open.

Alertmanager keeps alerts in memory and drops an alert at its `endsAt`. So `fleet.alerts.repost` posts each alert again
long before that, as Prometheus does. docs/reference/alerts.md, "Alertmanager".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from fleet.alerts.channels import SendRequest
from fleet.alerts.channels.http import check_channel_url, post
from fleet.alerts.channels.kind import (
    ADDRESS_INPUT,
    SECRET_INPUT,
    ChannelField,
    ChannelKind,
    normalized_origin_of,
)

#: Seconds after which an alert that is not reposted ends: three reposts may be lost.
_ALERT_LIFETIME_SECONDS = 4 * 60.0
_TEST_ALERT_LIFETIME_SECONDS = 60.0
#: Maximum number of alerts per request.
_BATCH_SIZE = 500


def send(request: SendRequest) -> None:
    """POST the alert of one notification. Raises SendError."""
    post_alerts(request, [*ended_alerts_of(request), alert_of(request)])


def repost(requests: Sequence[SendRequest]) -> None:
    """POST the alerts of several incidents to one channel. Raises SendError."""
    post_alerts(requests[0], [alert_of(request) for request in requests])


def post_alerts(request: SendRequest, alerts: Sequence[Mapping[str, Any]]) -> None:
    """POST alerts to the Alertmanager of a channel. Raises SendError."""
    url = f"{str(request.config['url']).rstrip('/')}/api/v2/alerts"
    headers = {"Content-Type": "application/json", "User-Agent": "Refloat"}
    token = request.secrets.get("token", "")
    if token:
        headers["Authorization"] = f"Bearer {token}"
    for start in range(0, len(alerts), _BATCH_SIZE):
        batch = alerts[start : start + _BATCH_SIZE]
        post(url, json.dumps(batch).encode(), headers, allow_private=request.allow_private)


def alert_of(request: SendRequest) -> dict[str, Any]:
    """Return the alert of a notification: labels identify the incident and its severity, annotations hold its state."""
    incident, links = request.incident, request.payload["links"]
    resolved_at = incident["resolved_at"] if request.kind == "resolved" else None
    lifetime_seconds = _TEST_ALERT_LIFETIME_SECONDS if request.kind == "test" else _ALERT_LIFETIME_SECONDS
    alert_document: dict[str, Any] = {
        "labels": {
            "alertname": "RefloatTest" if request.kind == "test" else "RefloatIncident",
            # Identifies the incident: the same for all its alerts, whatever their severity.
            "incident": incident["id"],
            "cluster": incident["cluster"],
            "cause_kind": incident["cause"]["kind"],
            "cause": incident["cause"]["name"],
            "severity": incident["severity"],
            "source": "refloat",
        },
        "annotations": {
            "summary": request.payload["subject"],
            "description": request.payload["text"],
            "state": incident["state"],
            "affected_count": str(incident["affected_count"]),
            "peak_count": str(incident["peak_count"]),
            **({"runbook_url": links["Runbook"]} if "Runbook" in links else {}),
        },
        "startsAt": incident["opened_at"],
        "endsAt": resolved_at or _format_iso(request.at + lifetime_seconds),
    }
    if "Incident" in links:
        alert_document["generatorURL"] = links["Incident"]
    return alert_document


def ended_alerts_of(request: SendRequest) -> list[dict[str, Any]]:
    """Return the ended alerts of the severities that the incident had before, because the severity is a label."""
    current = alert_of(request)
    severity = request.incident["severity"]
    ended_at = request.incident["resolved_at"] or _format_iso(request.at)
    return [
        {**current, "labels": {**current["labels"], "severity": earlier_severity}, "endsAt": ended_at}
        for earlier_severity in sorted(request.earlier_severities - {severity})
    ]


def _format_iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


KIND = ChannelKind(
    slug="alertmanager",
    label="Alertmanager",
    summary="One alert per incident, posted again every minute while it is open.",
    setup_url="https://prometheus.io/docs/alerting/latest/alertmanager/",
    fields=(
        ChannelField(
            ADDRESS_INPUT,
            "url",
            "base URL, such as https://alertmanager.example.com",
            is_required=True,
            check=check_channel_url,
        ),
        ChannelField(
            SECRET_INPUT,
            "token",
            "only if Alertmanager needs one",
            is_secret=True,
            label="Bearer token",
        ),
    ),
    send=send,
    origin_of=normalized_origin_of,
    keeps_alerts=True,
    repost=repost,
)
