from __future__ import annotations

import hashlib
import hmac

from fleet.alerts.channels import webhook
from tests.fakes.errands import send_request
from tests.fakes.receivers import receiving


def test_webhook_is_signed_over_time_and_body() -> None:
    """A receiver computes the same from the key, the timestamp and what came."""
    with receiving() as receiver:
        sent = send_request(config={"url": receiver.url}, secrets={"signing_key": "secret"})
        webhook.send(sent)
        webhook.send(sent)
    (_, headers, body), again = receiver.requests
    stamp = headers["Refloat-Timestamp"]
    expected = hmac.new(b"secret", f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
    assert headers["Refloat-Signature"] == f"v1={expected}"
    assert headers["Refloat-Key"] == again[1]["Refloat-Key"] == sent.key
    assert receiver.bodies[0]["incident"]["affected"] == 207


def test_webhook_without_a_key_is_not_signed() -> None:
    """And its address may be the secret."""
    with receiving() as receiver:
        webhook.send(send_request(secrets={"url": receiver.url}))
    assert "Refloat-Signature" not in receiver.requests[0][1]
