"""Alertmanager API v2: alerts that are posted again and again while their incident is open.

Alertmanager keeps a list in memory and forgets an alert at its `endsAt`. So whoever lists alerts there posts each
again long before that, as Prometheus does; `fleet.alerts.repost` is who does here. docs/alerts.md, "Alertmanager".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from fleet.alerts.channels import Errand
from fleet.alerts.channels.http import check_address, post
from fleet.alerts.channels.kind import ADDRESS, SECRET, ChannelKind, Field, url_origin

#: An alert that is not posted again ends after this, seconds: three posts of `reposting` may be lost.
_LIFETIME = 4 * 60.0
_LIFETIME_OF_A_TEST = 60.0
#: Alerts in one request.
_BATCH = 500


def send(errand: Errand) -> None:
    """POST the alert of one message. Raises SendError."""
    post_alerts(errand, [*ended_alerts(errand), alert(errand)])


def repost(errands: Sequence[Errand]) -> None:
    """POST the alerts of several messages to one channel. Raises SendError."""
    post_alerts(errands[0], [alert(errand) for errand in errands])


def post_alerts(errand: Errand, alerts: Sequence[Mapping[str, Any]]) -> None:
    """POST alerts to the Alertmanager of the channel of a message. Raises SendError."""
    url = f"{str(errand.config['url']).rstrip('/')}/api/v2/alerts"
    headers = {"Content-Type": "application/json", "User-Agent": "Refloat"}
    token = errand.secrets.get("token", "")
    if token:
        headers["Authorization"] = f"Bearer {token}"
    for start in range(0, len(alerts), _BATCH):
        batch = alerts[start : start + _BATCH]
        post(url, json.dumps(batch).encode(), headers, allow_private=errand.allow_private)


def alert(errand: Errand) -> dict[str, Any]:
    """Return the alert of a message: labels name the incident and its severity, annotations say how it is now."""
    incident, links = errand.incident, errand.payload["links"]
    resolved_at = incident["resolved_at"] if errand.kind == "resolved" else None
    lifetime = _LIFETIME_OF_A_TEST if errand.kind == "test" else _LIFETIME
    made: dict[str, Any] = {
        "labels": {
            "alertname": "RefloatTest" if errand.kind == "test" else "RefloatIncident",
            # The identity: the same for all alerts of one incident, whatever becomes of its severity.
            "incident": incident["id"],
            "cluster": incident["cluster"],
            "cause_kind": incident["cause"]["kind"],
            "cause": incident["cause"]["name"],
            "severity": incident["severity"],
            "source": "refloat",
        },
        "annotations": {
            "summary": errand.payload["subject"],
            "description": errand.payload["text"],
            "state": incident["state"],
            "affected": str(incident["affected"]),
            "peak": str(incident["peak"]),
            **({"runbook_url": links["Runbook"]} if "Runbook" in links else {}),
        },
        "startsAt": incident["opened_at"],
        "endsAt": resolved_at or _iso(errand.at + lifetime),
    }
    if "Incident" in links:
        made["generatorURL"] = links["Incident"]
    return made


def ended_alerts(errand: Errand) -> list[dict[str, Any]]:
    """Return the alerts that end because the severity is a label: those of the severities the incident had before."""
    current = alert(errand)
    severity = errand.incident["severity"]
    end = errand.incident["resolved_at"] or _iso(errand.at)
    return [
        {**current, "labels": {**current["labels"], "severity": earlier}, "endsAt": end}
        for earlier in sorted(errand.earlier - {severity})
    ]


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


KIND = ChannelKind(
    slug="alertmanager",
    fields=(
        Field(ADDRESS, "url", "its base URL", is_required=True, check=check_address),
        Field(SECRET, "token", "its bearer token, if it needs one", is_secret=True),
    ),
    send=send,
    origin=url_origin,
    repost=repost,
)
