"""How messages leave: one module per kind of channel, each with `send(errand)`. docs/alerts.md, "Channels"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit


class SendError(Exception):
    """A message was not taken; the sentence says why. `permanent`: it never will be, so trying again is useless."""

    def __init__(self, sentence: str, *, permanent: bool = False) -> None:
        super().__init__(sentence)
        self.permanent = permanent


@dataclass(frozen=True, slots=True)
class Errand:
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
    earlier: frozenset[str] = frozenset()

    @property
    def kind(self) -> str:
        """The kind of message: `firing`, `resolved` ..."""
        return str(self.payload["kind"])

    @property
    def incident(self) -> Mapping[str, Any]:
        """What the message says of its incident."""
        found: Mapping[str, Any] = self.payload["incident"]
        return found


def origin(url: str) -> str:
    """`https://hooks.example.com` of an address that was checked: all of it that everybody may see."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def same_origin(one: str, other: str) -> bool:
    """Return whether two addresses have scheme, host and port in common; what cannot be read has nothing in common."""
    first, second = _origin_parts(one), _origin_parts(other)
    return first is not None and first == second


def _origin_parts(url: str) -> tuple[str, str, int | None] | None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if not parts.hostname:
        return None
    return parts.scheme, parts.hostname, port or {"http": 80, "https": 443}.get(parts.scheme)
