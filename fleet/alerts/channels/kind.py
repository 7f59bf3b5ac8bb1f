"""What a kind of notification channel declares: its form fields, its origin, its abilities, and how it sends.

Forms, pages, the outbox and reposting read these declarations only. docs/howto/add-a-channel.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from fleet.alerts.channels import SendRequest

#: The key in `Channel.config` of the origin of an address that is sealed.
_HOST = "host"
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Input:
    """An input of the channel form. Kinds that ask for the same sort of value share one."""

    name: str
    label: str
    #: The browser shows dots for what is typed.
    is_hidden: bool = False


ADDRESS, SECRET = Input("url", "Address"), Input("secret", "Secret", is_hidden=True)


@dataclass(frozen=True, slots=True)
class Field:
    """A value that a kind stores with each channel."""

    input: Input
    #: The key of the value in `Channel.config`, or in `Channel.secrets` if it is a secret.
    key: str
    help: str
    is_required: bool = False
    #: The value is sealed and never shown again; but for the origin of an address, if `shows_origin`.
    is_secret: bool = False
    shows_origin: bool = False
    #: Raises SendError for a value with which no notification can be sent.
    check: Callable[[str], object] = str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelKind:
    """A kind of channel. `values` are what a channel stores, by key: open and secret values alike."""

    #: The name in the database, on pages and in docs.
    slug: str
    fields: tuple[Field, ...]
    #: Sends a notification. Raises SendError.
    send: Callable[[SendRequest], None]
    #: Secrets and the permission for private addresses hold for this; empty: the kind has no address of its own.
    origin: Callable[[Mapping[str, str]], str]
    #: People read the notifications. Other receivers open an alert for each, and for some nobody would end it.
    is_read: bool = False
    #: The receiver can take the acknowledgement of an incident.
    takes_acknowledgements: bool = False
    #: Posts the newest state of incidents again. The receiver lists an alert by its labels, of which the severity is
    #: one, and forgets an alert that nobody posts again. Raises SendError.
    repost: Callable[[Sequence[SendRequest]], None] | None = None

    def split_secrets(self, field_values: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
        """Return the values to store as they are, and those to seal."""
        config: dict[str, str] = {}
        secrets: dict[str, str] = {}
        for field in self.fields:
            if field_value := field_values[field.key]:
                (secrets if field.is_secret else config)[field.key] = field_value
                config |= {_HOST: visible_origin(field_value)} if field.shows_origin else {}
        return config, secrets


def destination_of(config: Mapping[str, str]) -> str:
    """Return where a channel sends, for everybody: the path of an address often is a key, and is left out."""
    return ", ".join(f"{field_value}/…" if key == _HOST else _without_path(field_value) for key, field_value in config.items())


def visible_origin(url: str) -> str:
    """Return `https://hooks.example.com` of an address that was checked: all of it that everybody may see."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def url_origin(field_values: Mapping[str, str], default: str = "") -> str:
    """Return scheme, host and port of the address of a channel in one spelling; empty if nobody can read it."""
    try:
        parts = urlsplit(field_values.get("url") or field_values.get(_HOST) or default)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.hostname}:{port}" if parts.hostname else ""


def _without_path(address: str) -> str:
    if "://" not in address or address.rstrip("/") == visible_origin(address):
        return address
    return f"{visible_origin(address)}/…"
