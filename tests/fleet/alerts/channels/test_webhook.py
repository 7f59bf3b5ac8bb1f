from __future__ import annotations

import hashlib
import hmac

from fleet.alerts.channels import webhook
from tests.fakes.receivers import run_receiver
from tests.fakes.send_requests import make_send_request


def test_webhook_is_signed_over_time_and_body() -> None:
    """A receiver computes the same signature from the key, the timestamp and the body."""
    with run_receiver() as receiver:
        request = make_send_request(config={"url": receiver.url}, secrets={"signing_key": "secret"})
        webhook.send(request)
        webhook.send(request)
    (_, headers, body), repeated_request = receiver.requests
    timestamp = headers["Refloat-Timestamp"]
    expected = hmac.new(b"secret", f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    assert headers["Refloat-Signature"] == f"v1={expected}"
    assert headers["Refloat-Key"] == repeated_request[1]["Refloat-Key"] == request.key
    assert receiver.bodies[0]["incident"]["affected_count"] == 207


def test_webhook_without_a_key_is_not_signed() -> None:
    """The address may be the secret instead."""
    with run_receiver() as receiver:
        webhook.send(make_send_request(secrets={"url": receiver.url}))
    assert "Refloat-Signature" not in receiver.requests[0][1]
