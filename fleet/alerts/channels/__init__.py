"""Notification channels: one module per kind, listed in `registry`.

docs/reference/alerts.md, "Notification channels".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Address of an accepted message at its receiver, in JSON values. It is stored with the delivery.
Receipt = Mapping[str, Any]


def response_receipt_of(response_text: str) -> Receipt | None:
    """Return a receipt with the text of a response, for the card of the channel; None without a text."""
    return {"response": response_text} if response_text else None


class SendError(Exception):
    """A notification was not accepted; the message says why.

    `permanent`: a retry is useless. `retry_after_seconds`: the receiver accepts nothing earlier.
    """

    def __init__(
        self, sentence: str, *, permanent: bool = False, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(sentence)
        self.permanent = permanent
        self.retry_after_seconds = retry_after_seconds


@dataclass(frozen=True, slots=True)
class SendRequest:
    """One attempt to send a notification to a channel."""

    #: Result of `notifications.payload_of`.
    payload: Mapping[str, Any]
    #: Deduplication key, the same for every attempt.
    key: str
    #: Time of this attempt, seconds since the epoch.
    at: float
    config: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    #: Private and loopback addresses are allowed.
    allow_private: bool = False
    #: Severities of earlier notifications of the same incident that the channel accepted.
    earlier_severities: frozenset[str] = frozenset()
    #: Receipt of the newest notification of the same incident that the channel accepted; None if there is none.
    earlier_receipt: Receipt | None = None
    #: The channel has accepted a newer notification of the same incident: somebody retried an old one.
    is_outdated: bool = False

    @property
    def kind(self) -> str:
        """Kind of the notification: `firing`, `resolved` ..."""
        return str(self.payload["kind"])

    @property
    def incident(self) -> Mapping[str, Any]:
        """The incident in the payload."""
        incident: Mapping[str, Any] = self.payload["incident"]
        return incident
