"""A signed webhook: the payload as JSON, its key, and an HMAC of time and body.

docs/reference/alerts.md, "Webhooks".
"""

from __future__ import annotations

import hashlib
import hmac
import json

from fleet.alerts.channels import Receipt, SendRequest, response_receipt_of
from fleet.alerts.channels.http import check_channel_url, post
from fleet.alerts.channels.kind import (
    ADDRESS_INPUT,
    SECRET_INPUT,
    ChannelField,
    ChannelKind,
    normalized_origin_of,
)


def send(request: SendRequest) -> Receipt | None:
    """POST the payload of a notification. Raises SendError."""
    body = json.dumps(request.payload, separators=(",", ":"), sort_keys=True).encode()
    stamp = str(int(request.at))
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "Refloat",
        "Refloat-Key": request.key,
        "Refloat-Timestamp": stamp,
    }
    secret = request.secrets.get("signing_key", "")
    if secret:
        headers["Refloat-Signature"] = f"v1={signature(secret, stamp, body)}"
    response_text = post(
        request.secrets.get("url") or str(request.config["url"]),
        body,
        headers,
        allow_private=request.allow_private,
    )
    return response_receipt_of(response_text)


def signature(secret: str, stamp: str, body: bytes) -> str:
    """Return the HMAC-SHA256 over `<timestamp>.<body>` in hex, which the receiver compares."""
    return hmac.new(secret.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()


KIND = ChannelKind(
    slug="webhook",
    label="Webhook",
    summary="A signed JSON request for each notification.",
    fields=(
        # The path of the URL often is a secret.
        ChannelField(
            ADDRESS_INPUT,
            "url",
            "URL that accepts POST",
            is_required=True,
            is_secret=True,
            shows_origin=True,
            check=check_channel_url,
        ),
        ChannelField(
            SECRET_INPUT,
            "signing_key",
            "any text that the receiver knows too: it can then verify the sender",
            is_secret=True,
            label="Signing key",
        ),
    ),
    send=send,
    origin_of=normalized_origin_of,
    is_read_by_people=True,
    accepts_acknowledgements=True,
)
