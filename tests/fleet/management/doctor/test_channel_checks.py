from __future__ import annotations

import time

import pytest
from pytest_django import Settings

from fleet.management.doctor.channel_checks import check_channels, check_public_url, read_channels
from fleet.management.doctor.findings import CheckFinding, CheckVerdict
from fleet.models.alerting import Channel, Delivery
from fleet.models.sealed_secrets import seal

pytestmark = pytest.mark.django_db


def _check_channels(public_url: str = "https://console.example.com/") -> dict[str, CheckFinding]:
    return {finding.name: finding for finding in check_channels(read_channels(), public_url, time.time())}


def _attempt(channel: Channel, **columns: object) -> None:
    now = time.time()
    fields = {"key": f"key-{Delivery.objects.count()}", "kind": "firing", "payload": {}}
    Delivery.objects.create(
        channel=channel, created_at=now, next_attempt_at=now, **{"attempted_at": now, **fields, **columns}
    )


def test_no_channels_are_skipped() -> None:
    Channel.objects.create(name="old", kind="webhook", enabled=False)

    assert {name: finding.verdict for name, finding in _check_channels().items()} == {
        "channel-deliveries": CheckVerdict.SKIPPED
    }


def test_working_channel() -> None:
    """An older failure does not count."""
    channel = Channel.objects.create(name="ops", kind="webhook", secrets=seal({"token": "x"}))
    _attempt(channel, last_error="status 500", attempted_at=time.time() - 60)
    _attempt(channel, sent_at=time.time())

    assert {finding.verdict for finding in _check_channels().values()} == {CheckVerdict.OK}


def test_failing_channel() -> None:
    """Its last error is in the sentence."""
    channel = Channel.objects.create(name="ops", kind="webhook")
    _attempt(channel, sent_at=time.time() - 60, attempted_at=time.time() - 60)
    _attempt(channel, last_error="status 403: no_service")

    finding = _check_channels()["channel-deliveries"]

    assert finding.verdict is CheckVerdict.ERROR
    assert (
        "channel ops (webhook) failed, and 1 notification waits: status 403: no_service." in finding.summary
    )


def test_secrets_of_another_key(settings: Settings) -> None:
    """As after the loss of REFLOAT_HOME/secret_key."""
    Channel.objects.create(name="ops", kind="slack", secrets=seal({"url": "https://example.com"}))
    settings.SECRET_KEY = "another"

    finding = _check_channels()["channel-secrets"]

    assert finding.verdict is CheckVerdict.ERROR
    assert "channel ops (slack)" in finding.summary
    assert "secret_key" in finding.remedy


def test_rate_limited_receiver() -> None:
    Channel.objects.create(name="ops", kind="slack", rate_limited_until=time.time() + 600)
    Channel.objects.create(name="dev", kind="slack", rate_limited_until=time.time() - 600)

    finding = _check_channels()["channel-rate-limits"]

    assert finding.verdict is CheckVerdict.WARNING
    assert "channel ops (slack)" in finding.summary


def test_public_url_is_missing() -> None:
    assert check_public_url("", 2).verdict is CheckVerdict.WARNING
    assert "there are 2 notification channels" in check_public_url("", 2).summary
    assert check_public_url("https://console.example.com/", 2).verdict is CheckVerdict.OK
