"""Declaration of a kind of notification channel: form fields, origin, capabilities and send function.

Forms, pages, the outbox and reposting only use these declarations. docs/how-to/add-a-channel.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from fleet.alerts.channels import Receipt, SendRequest

#: Key in `Channel.config` for the origin of a sealed address.
_ORIGIN_KEY = "host"
_SEVERITY_NOTE = (
    "A higher severity is sent at once. A lower one is not sent by itself: the next notification of the incident "
    "has it."
)
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class ChannelInput:
    """An input of the channel form. Kinds with the same sort of value share its name."""

    name: str
    label: str
    #: Password input.
    is_hidden: bool = False


ADDRESS_INPUT, SECRET_INPUT = ChannelInput("url", "Address"), ChannelInput("secret", "Secret", is_hidden=True)


@dataclass(frozen=True, slots=True)
class ChannelField:
    """A value that channels of a kind store."""

    input: ChannelInput
    #: Key of the value in `Channel.config`, or in `Channel.secrets` for a secret.
    key: str
    help: str
    is_required: bool = False
    #: Label of the input for this kind; empty: that of the input.
    label: str = ""
    #: Most channels leave it empty: it stands below *More options*.
    is_advanced: bool = False
    #: The value is sealed and never shown again, except for the origin of the address with `shows_origin`.
    is_secret: bool = False
    shows_origin: bool = False
    #: Validates the value. Raises SendError.
    check: Callable[[str], object] = str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelKind:
    """A kind of channel. `field_values`: the plain and secret values of a channel, by key."""

    #: Name in the database, the API and docs; it never changes.
    slug: str
    #: Name on pages: `Microsoft Teams`.
    label: str
    #: What a channel of this kind does with an incident, as one short sentence.
    summary: str
    fields: tuple[ChannelField, ...]
    #: Sends a notification, and may return a receipt for later ones of the same incident. Raises SendError.
    send: Callable[[SendRequest], Receipt | None]
    #: Returns what secrets and the permission for private addresses are bound to; empty: the kind has no address.
    origin_of: Callable[[Mapping[str, str]], str]
    #: People read the notifications. Other receivers open an alert for each one, which nothing might resolve.
    is_read_by_people: bool = False
    #: The receiver keeps an alert until it is resolved: it is not notified of an outage that is already over.
    keeps_alerts: bool = False
    #: The receiver accepts acknowledgements of incidents.
    accepts_acknowledgements: bool = False
    #: Later notifications change the first one: the kind is also notified of silences and removed acknowledgements.
    updates_in_place: bool = False
    #: Where notifications go when no field has an address.
    default_destination: str = ""
    #: Page of the receiver's documentation that says where one gets the values of the fields; empty: none is needed.
    setup_url: str = ""
    #: Reposts the current state of incidents, for receivers that drop alerts that are not reposted. They identify an
    #: alert by its labels, including the severity. Raises SendError.
    repost: Callable[[Sequence[SendRequest]], None] | None = None

    @property
    def severity_note(self) -> str:
        """When a channel of this kind learns of a lower severity, as a sentence; empty: at once."""
        return "" if self.updates_in_place else _SEVERITY_NOTE

    def split_secrets(self, field_values: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
        """Return the values to store in plain text, and those to seal."""
        config: dict[str, str] = {}
        secrets: dict[str, str] = {}
        for field in self.fields:
            if field_value := field_values[field.key]:
                (secrets if field.is_secret else config)[field.key] = field_value
                config |= {_ORIGIN_KEY: visible_origin_of(field_value)} if field.shows_origin else {}
        return config, secrets


def destination_of(config: Mapping[str, str]) -> str:
    """Return the destination of a channel, without the path of its URL, which often is a secret."""
    return ", ".join(
        f"{field_value}/…" if key == _ORIGIN_KEY else _without_path(field_value)
        for key, field_value in config.items()
    )


def visible_origin_of(url: str) -> str:
    """Return the public part of a valid URL: `https://hooks.example.com`."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def normalized_origin_of(field_values: Mapping[str, str], default: str = "") -> str:
    """Return the normalized scheme, host and port of the URL of a channel; empty if the URL is not valid."""
    try:
        parts = urlsplit(field_values.get("url") or field_values.get(_ORIGIN_KEY) or default)
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.hostname}:{port}" if parts.hostname else ""


def _without_path(address: str) -> str:
    if "://" not in address or address.rstrip("/") == visible_origin_of(address):
        return address
    return f"{visible_origin_of(address)}/…"
