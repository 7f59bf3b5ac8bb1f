"""E-mail through the configured mail server, threaded by incident; a retry has the same Message-ID."""

from __future__ import annotations

import hashlib
import smtplib
from email.utils import getaddresses

from django.core.mail import EmailMessage, get_connection

from fleet.alerts.channels import SendError, SendRequest
from fleet.alerts.channels.kind import ChannelKind, Field, Input

#: Timeout of an attempt, seconds.
_TIMEOUT = 10


def send(request: SendRequest) -> None:
    """Send one notification through the mail server. Raises SendError."""
    connection = get_connection(timeout=_TIMEOUT)
    if "dummy" in type(connection).__module__:
        raise SendError("no mail server is configured: set REFLOAT_EMAIL_HOST")
    recipients = parse_addresses(str(request.config["to"]))
    thread = f"<{_digest(str(request.incident['id']))}@refloat>"
    message = EmailMessage(
        subject=" ".join(str(request.payload["subject"]).split()),
        body=str(request.payload["text"]),
        to=recipients,
        connection=connection,
        headers={
            "Message-ID": f"<{_digest(request.key)}@refloat>",
            "References": thread,
            "In-Reply-To": thread,
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
    """Return the e-mail addresses in a comma-separated text. Raises SendError if there is none."""
    recipients = [address for _, address in getaddresses([text.replace(";", ",")]) if "@" in address]
    if not recipients:
        raise SendError("enter at least one e-mail address", permanent=True)
    return recipients


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


_TO = Input("to", "E-mail recipients")
KIND = ChannelKind(
    slug="email",
    fields=(Field(_TO, "to", "addresses, separated by commas", is_required=True, check=parse_addresses),),
    send=send,
    origin=lambda field_values: "",
    is_read=True,
)
