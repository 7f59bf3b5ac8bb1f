"""Alertmanager API v2: an alert with labels that stay, so that sending it again is the same alert."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from fleet.alerts.senders import Errand
from fleet.alerts.senders.http import post

#: An alert that we do not end ends by itself after this, seconds: longer than the longest repeat.
_LASTS = 26 * 3600.0


def send(errand: Errand) -> None:
    """POST one alert. Raises SendError."""
    url = f"{str(errand.config['url']).rstrip('/')}/api/v2/alerts"
    headers = {"Content-Type": "application/json", "User-Agent": "Refloat"}
    token = errand.secrets.get("token", "")
    if token:
        headers["Authorization"] = f"Bearer {token}"
    post(url, json.dumps([alert(errand)]).encode(), headers, allow_private=errand.allow_private)


def alert(errand: Errand) -> dict[str, Any]:
    """The alert: labels name the incident, annotations say how it is now."""
    incident, links = errand.incident, errand.payload["links"]
    over = incident["resolved_at"] if errand.kind == "resolved" else None
    lasts = 60.0 if errand.kind == "test" else _LASTS
    found: dict[str, Any] = {
        "labels": {
            "alertname": "RefloatTest" if errand.kind == "test" else "RefloatIncident",
            "incident": incident["id"],
            "cluster": incident["cluster"],
            "cause_kind": incident["cause"]["kind"],
            "cause": incident["cause"]["name"],
            # That of the first message would be another alert when it gets worse: it is said below.
            "source": "refloat",
        },
        "annotations": {
            "summary": errand.payload["subject"],
            "description": errand.payload["text"],
            "severity": incident["severity"],
            "affected": str(incident["affected"]),
            "peak": str(incident["peak"]),
            **({"runbook_url": links["Runbook"]} if "Runbook" in links else {}),
        },
        "startsAt": incident["opened_at"],
        "endsAt": over or datetime.fromtimestamp(errand.at + lasts, UTC).isoformat(),
    }
    if "Incident" in links:
        found["generatorURL"] = links["Incident"]
    return found
