"""How notifications leave: one module for each kind of channel, listed in `registry`. docs/alerts.md, "Channels"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class SendError(Exception):
    """A message was not taken; the sentence says why. `permanent`: it never will be, so trying again is useless."""

    def __init__(self, sentence: str, *, permanent: bool = False) -> None:
        super().__init__(sentence)
        self.permanent = permanent


@dataclass(frozen=True, slots=True)
class SendRequest:
    """One message on its way to one channel."""

    #: As `messages.payload` made it.
    payload: Mapping[str, Any]
    #: The same for every attempt.
    key: str
    #: When this attempt is made, seconds since the epoch.
    at: float
    config: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    #: Private and loopback targets are allowed.
    allow_private: bool = False
    #: Severities of the messages about the same incident that the channel took before.
    earlier_severities: frozenset[str] = frozenset()

    @property
    def kind(self) -> str:
        """The kind of message: `firing`, `resolved` ..."""
        return str(self.payload["kind"])

    @property
    def incident(self) -> Mapping[str, Any]:
        """What the message says of its incident."""
        incident: Mapping[str, Any] = self.payload["incident"]
        return incident
