"""E-mail through the configured mail server, threaded by incident; a retry has the same Message-ID."""

from __future__ import annotations

import hashlib
import smtplib
from email.utils import getaddresses

from django.core.mail import EmailMessage, get_connection

from fleet.alerts.channels import SendError, SendRequest
from fleet.alerts.channels.kind import ChannelField, ChannelInput, ChannelKind

#: Timeout of an attempt, seconds.
_TIMEOUT_SECONDS = 10


def send(request: SendRequest) -> None:
    """Send one notification through the mail server. Raises SendError."""
    connection = get_connection(timeout=_TIMEOUT_SECONDS)
    if "dummy" in type(connection).__module__:
        raise SendError("no mail server is configured: set REFLOAT_EMAIL_HOST")
    recipients = parse_addresses(str(request.config["to"]))
    thread_id = f"<{_hash_text(str(request.incident['id']))}@refloat>"
    message = EmailMessage(
        subject=" ".join(str(request.payload["subject"]).split()),
        body=str(request.payload["text"]),
        to=recipients,
        connection=connection,
        headers={
            "Message-ID": f"<{_hash_text(request.key)}@refloat>",
            "References": thread_id,
            "In-Reply-To": thread_id,
            "Auto-Submitted": "auto-generated",
            "Refloat-Key": request.key,
        },
    )
    try:
        message.send()
    except smtplib.SMTPRecipientsRefused as error:
        raise SendError(f"the mail server rejected the recipients: {error}") from error
    except (OSError, smtplib.SMTPException) as error:
        raise SendError(
            f"the mail server did not accept the e-mail: {type(error).__name__}: {error}"
        ) from error


def parse_addresses(text: str) -> list[str]:
    """Return the e-mail addresses in a comma-separated text; other words are left out. Raises SendError if empty."""
    recipients = [address for address in _split_addresses(text) if "@" in address]
    if not recipients:
        raise SendError("enter at least one e-mail address", permanent=True)
    return recipients


def check_addresses(text: str) -> None:
    """Require that a comma-separated text has only e-mail addresses, and at least one. Raises SendError."""
    for address in _split_addresses(text):
        if "@" not in address:
            raise SendError(f"{address!r} is not an e-mail address", permanent=True)
    parse_addresses(text)


def _split_addresses(text: str) -> list[str]:
    return [address for _, address in getaddresses([text.replace(";", ",")]) if address]


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


_RECIPIENTS_INPUT = ChannelInput("to", "Recipients")
KIND = ChannelKind(
    slug="email",
    label="E-mail",
    summary="One thread per incident, to any number of addresses.",
    fields=(
        ChannelField(
            _RECIPIENTS_INPUT, "to", "addresses, separated by commas", is_required=True, check=check_addresses
        ),
    ),
    send=send,
    origin_of=lambda field_values: "",
    is_read_by_people=True,
)
