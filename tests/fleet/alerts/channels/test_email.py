from __future__ import annotations

import smtplib

import pytest
from django.core import mail
from django.core.mail.backends.locmem import EmailBackend
from pytest_django import Settings

from fleet.alerts.channels import SendError, email
from fleet.vocabulary.incidents import NotificationKind
from tests.fakes.send_requests import make_send_request


def test_mail_has_one_thread_per_incident_and_one_message_id_per_key() -> None:
    """Firing and resolved share a thread; sending a notification again keeps its message id."""
    to = {"to": "Ada <ada@example.com>; ops@example.com"}
    for kind in (NotificationKind.FIRING, NotificationKind.FIRING, NotificationKind.RESOLVED):
        email.send(make_send_request(kind, config=to))
    firing_mail, repeated_mail, resolved_mail = mail.outbox
    assert firing_mail.to == ["ada@example.com", "ops@example.com"]
    assert firing_mail.subject == "CRIT default: 207 agents stranded (proxy-1)"
    assert firing_mail.extra_headers["Message-ID"] == repeated_mail.extra_headers["Message-ID"]
    assert firing_mail.extra_headers["Message-ID"] != resolved_mail.extra_headers["Message-ID"]
    assert firing_mail.extra_headers["References"] == resolved_mail.extra_headers["References"]


def test_mail_without_a_server_raises_an_error_that_names_the_setting(settings: Settings) -> None:
    """The notification does not count as sent."""
    settings.EMAIL_BACKEND = "django.core.mail.backends.dummy.EmailBackend"
    with pytest.raises(SendError, match="REFLOAT_EMAIL_HOST"):
        email.send(make_send_request(config={"to": "a@example.com"}))


def test_unavailable_mail_server_is_a_temporary_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The outbox retries."""

    def refuse(*_: object) -> int:
        raise smtplib.SMTPServerDisconnected("gone")

    monkeypatch.setattr(EmailBackend, "send_messages", refuse)
    with pytest.raises(SendError) as error_info:
        email.send(make_send_request(config={"to": "a@example.com"}))
    assert not error_info.value.permanent


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("foo", "'foo' is not an e-mail address"),
        ("a@example.com, foo", "'foo' is not an e-mail address"),
        (" , ", "enter at least one e-mail address"),
    ],
)
def test_invalid_address_is_named(text: str, message: str) -> None:
    """A misspelled address of several would get no notification."""
    with pytest.raises(SendError, match=message):
        email.check_addresses(text)
    email.check_addresses("Ada <ada@example.com>; ops@example.com")


def test_stored_address_that_is_none_does_not_stop_the_others() -> None:
    """Channels that were stored before addresses were checked still send."""
    assert email.parse_addresses("a@example.com, foo") == ["a@example.com"]
