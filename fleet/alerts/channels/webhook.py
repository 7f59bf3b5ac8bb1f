"""A signed webhook: the payload as JSON, its key, and an HMAC of time and body. docs/alerts.md, "Webhooks"."""

from __future__ import annotations

import hashlib
import hmac
import json

from fleet.alerts.channels import Errand
from fleet.alerts.channels.http import post


def send(errand: Errand) -> None:
    """POST the message. Raises SendError."""
    body = json.dumps(errand.payload, separators=(",", ":"), sort_keys=True).encode()
    stamp = str(int(errand.at))
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "Refloat",
        "Refloat-Key": errand.key,
        "Refloat-Timestamp": stamp,
    }
    secret = errand.secrets.get("signing_key", "")
    if secret:
        headers["Refloat-Signature"] = f"v1={signature(secret, stamp, body)}"
    post(
        errand.secrets.get("url") or str(errand.config["url"]),
        body,
        headers,
        allow_private=errand.allow_private,
    )


def signature(secret: str, stamp: str, body: bytes) -> str:
    """HMAC-SHA256 over `<timestamp>.<body>`, in hex: what a receiver computes to compare."""
    return hmac.new(secret.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
