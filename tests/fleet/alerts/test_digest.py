from __future__ import annotations

from datetime import UTC, datetime

import pytest

from fleet.alerts import digest
from fleet.alerts.digest import DigestPeriod, compose, due_periods, newest_slot_at
from fleet.models import Cluster
from fleet.models.alerting import AlertClock, Channel, Delivery
from fleet.models.incidents import Incident as Row
from fleet.vocabulary.incidents import Cause, CauseKind, Incident, IncidentState, Severity

#: A Tuesday, noon.
_NOW = datetime(2026, 11, 24, 12, 0, tzinfo=UTC).timestamp()
_DAY = 86400.0


def _excess(**given: object) -> Incident:
    return Incident(
        "default", Cause(CauseKind.FLEET, "excess", "agents with excess tunnels"), 1,
        IncidentState.FIRING, _NOW - 7200, severity=Severity.INFO, fired_at=_NOW - 3600, affected=120, peak=300,
        sentence="120 agents with excess tunnels.", **given,  # type: ignore[arg-type]
    )  # fmt: skip


def test_digest_is_due_once_a_day_and_weekly_on_mondays() -> None:
    """At eight; one that was missed is made up for, once; the first after an installation comes in its time."""
    assert newest_slot_at(_NOW) == _NOW - 4 * 3600
    assert due_periods(None, _NOW) == ()
    assert due_periods(newest_slot_at(_NOW), _NOW) == ()
    assert due_periods(newest_slot_at(_NOW), _NOW + 19 * 3600) == ()
    assert due_periods(newest_slot_at(_NOW), _NOW + 21 * 3600) == (DigestPeriod.DAILY,)
    assert due_periods(newest_slot_at(_NOW - 2 * _DAY), _NOW - _DAY) == (
        DigestPeriod.DAILY,
        DigestPeriod.WEEKLY,
    )
    assert due_periods(newest_slot_at(_NOW - 5 * _DAY), _NOW) == (DigestPeriod.DAILY, DigestPeriod.WEEKLY)


def test_digest_says_what_was_never_sent() -> None:
    """With numbers, in the subject too, and the incidents of the period; nothing to say is no digest."""
    assert compose("default", DigestPeriod.DAILY, [], _NOW) is None
    paged = Incident(
        "default", Cause(CauseKind.PROXY, "p", "proxy-1"), 1, IncidentState.RESOLVED, _NOW - 9000,
        severity=Severity.CRITICAL, fired_at=_NOW - 9000, quiet_since=_NOW - 8000, resolved_at=_NOW - 7700,
        peak=207, sentence="207 agents stranded.",
    )  # fmt: skip
    said = compose("default", DigestPeriod.WEEKLY, [_excess(), paged], _NOW, "https://console.example.com")
    assert said is not None
    assert said["subject"] == ("WEEKLY DIGEST default: 1 critical incident, 120 agents with excess tunnels")
    assert said["text"].splitlines() == [
        "Info (sent in digests only):",
        f"- {_excess().sentence[:-1]}: peak 300, for 2 h from 2026-11-24 10:00:00 UTC, still open",
        "Resolved:",
        "- 207 agents stranded, proxy-1: peak 207, for 17 min from 2026-11-24 09:30:00 UTC",
        "Incidents: https://console.example.com/incidents/",
    ]
    assert compose("default", DigestPeriod.DAILY, [paged], _NOW + 2 * _DAY) is None


@pytest.mark.django_db
def test_digest_goes_to_channels_that_want_it_once() -> None:
    """By their period; not to those where it would be an alert that never ends."""
    Cluster.objects.get_or_create(id="default", defaults={"name": "Default"})
    for name, kind, period in (
        ("mail", "email", "daily"),
        ("week", "webhook", "weekly"),
        ("none", "webhook", ""),
        ("pager", "pagerduty", "daily"),
    ):
        Channel.objects.create(name=name, kind=kind, digest=period)
    Row.objects.create(
        cluster_id="default", key="fleet/excess", cause_kind="fleet", cause_id="excess", generation=1, state="firing",
        severity=0, opened_at=_NOW - 7200, fired_at=_NOW - 3600, affected=120, peak=300, sentence="Too many tunnels.",
    )  # fmt: skip
    AlertClock.objects.create(cluster_id="default")
    made = [
        digest.enqueue_digests(AlertClock.objects.get(), _NOW + hours * 3600)
        for hours in (0, 1, 21, 22, 24 * 6 + 21)
    ]
    assert made == [0, 0, 1, 0, 2]
    assert sorted(Delivery.objects.values_list("channel__name", "kind")) == [
        ("mail", "digest"), ("mail", "digest"), ("week", "digest"),
    ]  # fmt: skip
    assert "Too many tunnels" in Delivery.objects.first().payload["subject"]  # type: ignore[union-attr]


@pytest.mark.django_db
def test_digest_of_a_cluster_goes_to_no_channel_of_another() -> None:
    """To its own and to the installation's; the log knows of which cluster each speaks."""
    for cluster in ("default", "eu"):
        Cluster.objects.get_or_create(id=cluster, defaults={"name": cluster})
        AlertClock.objects.create(cluster_id=cluster, digest_at=newest_slot_at(_NOW - _DAY))
    for owner in ("", "default", "eu"):
        Channel.objects.create(name=f"mail {owner}", kind="email", digest="daily", cluster=owner)
    Row.objects.create(
        cluster_id="eu", key="fleet/excess", cause_kind="fleet", cause_id="excess", generation=1, state="firing",
        severity=0, opened_at=_NOW - 7200, fired_at=_NOW - 3600, affected=120, peak=300, sentence="Too many tunnels.",
    )  # fmt: skip
    for clock in AlertClock.objects.all():
        digest.enqueue_digests(clock, _NOW)
    rows = Delivery.objects.order_by("channel__name").values_list("channel__name", "cluster")
    assert list(rows) == [("mail ", "eu"), ("mail eu", "eu")]
