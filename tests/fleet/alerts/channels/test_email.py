from __future__ import annotations

import smtplib

import pytest
from django.core import mail
from django.core.mail.backends.locmem import EmailBackend
from pytest_django import Settings

from fleet.alerts.channels import SendError, email
from fleet.vocabulary.incidents import NotificationKind
from tests.fakes.errands import send_request


def test_mail_is_threaded_by_incident_and_named_by_key() -> None:
    """Page and resolve are one thread; sending the same again is the same message."""
    to = {"to": "Ada <ada@example.com>; ops@example.com"}
    for kind in (NotificationKind.FIRING, NotificationKind.FIRING, NotificationKind.RESOLVED):
        email.send(send_request(kind, config=to))
    page, again, resolve = mail.outbox
    assert page.to == ["ada@example.com", "ops@example.com"]
    assert page.subject == "CRIT default: 207 agents stranded, proxy-1"
    assert page.extra_headers["Message-ID"] == again.extra_headers["Message-ID"]
    assert page.extra_headers["Message-ID"] != resolve.extra_headers["Message-ID"]
    assert page.extra_headers["References"] == resolve.extra_headers["References"]


def test_mail_without_a_server_is_an_error_that_says_so(settings: Settings) -> None:
    """Never taken for sent."""
    settings.EMAIL_BACKEND = "django.core.mail.backends.dummy.EmailBackend"
    with pytest.raises(SendError, match="REFLOAT_EMAIL_HOST"):
        email.send(send_request(config={"to": "a@example.com"}))


def test_mail_server_that_is_down_is_an_error_that_may_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The outbox tries again."""

    def refuse(*_: object) -> int:
        raise smtplib.SMTPServerDisconnected("gone")

    monkeypatch.setattr(EmailBackend, "send_messages", refuse)
    with pytest.raises(SendError) as caught:
        email.send(send_request(config={"to": "a@example.com"}))
    assert not caught.value.permanent
