"""An outbox with a simulated clock, and a receiver that fails as a test says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fleet.alerts.channels import SendError, SendRequest
from fleet.alerts.notifications import NotificationLinks, make_test_notification, payload_of
from fleet.alerts.outbox import Outbox
from fleet.models import Cluster
from fleet.models.alerting import Channel, Delivery
from fleet.models.incidents import Incident


class ProcessKilledError(BaseException):
    """The process is killed here."""


class OutboxScenario:
    """An outbox with a simulated clock and a receiver that records keys."""

    def __init__(self) -> None:
        Cluster.objects.get_or_create(id="default", defaults={"name": "Default"})
        self.channel = Channel.objects.create(
            name="ops", kind="webhook", config={"url": "https://example.com"}
        )
        self.now = 1_000_000.0
        self.attempted_keys: list[str] = []
        self.is_receiver_down = False
        self.die_after_sending = False
        self.outbox = self.make_outbox("one")

    def make_outbox(
        self, holder: str, senders: dict[str, Callable[[SendRequest], None]] | None = None
    ) -> Outbox:
        """Return the outbox of another sender process."""
        return Outbox(holder, lambda: self.now, lambda: 0.5, senders or {"webhook": self.send})

    def send(self, request: SendRequest) -> None:
        """Receive a notification, or fail."""
        if self.is_receiver_down:
            raise SendError("connection refused")
        self.attempted_keys.append(request.key)
        if self.die_after_sending:
            raise ProcessKilledError

    def add_delivery(self, key: str, incident: Incident | None = None, **fields: Any) -> Delivery:
        """Add a pending delivery."""
        return Delivery.objects.create(
            channel=self.channel, incident=incident, key=key, kind="firing",
            payload=payload_of(make_test_notification("ops", self.now), NotificationLinks()),
            created_at=self.now, next_attempt_at=fields.pop("at", self.now), **fields,
        )  # fmt: skip

    def advance_time(self, seconds: float, step: float = 5.0) -> None:
        """Advance the clock while the outbox sends."""
        for _ in range(int(seconds / step)):
            self.now += step
            while self.outbox.send_next():
                pass

    def create_incident(self, number: int = 1) -> Incident:
        """Create a firing incident."""
        return Incident.objects.create(
            cluster_id="default", key=f"proxy/{number}", cause_kind="proxy", cause_id="p", generation=1,
            state="firing", severity=2, opened_at=self.now,
        )  # fmt: skip
