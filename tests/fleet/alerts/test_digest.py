from __future__ import annotations

from datetime import UTC, datetime

import pytest

from fleet.alerts import digest
from fleet.alerts.digest import DigestPeriod, compose_payload, find_due_periods, newest_due_at
from fleet.models import Cluster
from fleet.models.alerting import AlertClock, Channel, Delivery
from fleet.models.incidents import Incident as Row
from fleet.vocabulary.incidents import Cause, CauseKind, Incident, IncidentState, Severity

#: A Tuesday, noon.
_NOW = datetime(2026, 11, 24, 12, 0, tzinfo=UTC).timestamp()
_DAY = 86400.0


def _excess_incident(**fields: object) -> Incident:
    return Incident(
        "default", Cause(CauseKind.FLEET, "excess", "agents with excess tunnels"), 1,
        IncidentState.FIRING, _NOW - 7200, severity=Severity.INFO, fired_at=_NOW - 3600, affected_count=120,
        peak_count=300, summary="120 agents with excess tunnels.", **fields,  # type: ignore[arg-type]
    )  # fmt: skip


def test_digest_is_due_daily_and_weekly_on_mondays() -> None:
    """At 08:00; a missed digest is sent once; the first digest after an installation is sent at its regular time."""
    assert newest_due_at(_NOW) == _NOW - 4 * 3600
    assert find_due_periods(None, _NOW) == ()
    assert find_due_periods(newest_due_at(_NOW), _NOW) == ()
    assert find_due_periods(newest_due_at(_NOW), _NOW + 19 * 3600) == ()
    assert find_due_periods(newest_due_at(_NOW), _NOW + 21 * 3600) == (DigestPeriod.DAILY,)
    assert find_due_periods(newest_due_at(_NOW - 2 * _DAY), _NOW - _DAY) == (
        DigestPeriod.DAILY,
        DigestPeriod.WEEKLY,
    )
    assert find_due_periods(newest_due_at(_NOW - 5 * _DAY), _NOW) == (DigestPeriod.DAILY, DigestPeriod.WEEKLY)


def test_digest_lists_incidents_of_the_period() -> None:
    """With counts, also in the subject; there is no digest without incidents."""
    assert compose_payload("default", DigestPeriod.DAILY, [], _NOW) is None
    critical_incident = Incident(
        "default", Cause(CauseKind.PROXY, "p", "proxy-1"), 1, IncidentState.RESOLVED, _NOW - 9000,
        severity=Severity.CRITICAL, fired_at=_NOW - 9000, recovering_since=_NOW - 8000, resolved_at=_NOW - 7700,
        peak_count=207, summary="207 agents stranded.",
    )  # fmt: skip
    content = compose_payload(
        "default",
        DigestPeriod.WEEKLY,
        [_excess_incident(), critical_incident],
        _NOW,
        "https://console.example.com",
    )
    assert content is not None
    assert content["subject"] == (
        "WEEKLY DIGEST default: 1 critical incident, 120 agents with excess tunnels"
    )
    assert content["text"].splitlines() == [
        "Info (sent in digests only):",
        f"- {_excess_incident().summary[:-1]}: peak 300, for 2 h from 2026-11-24 10:00:00 UTC, still open",
        "Resolved:",
        "- 207 agents stranded (proxy-1): peak 207, for 16 min 40 s from 2026-11-24 09:30:00 UTC",
        "Incidents: https://console.example.com/incidents/",
    ]
    assert compose_payload("default", DigestPeriod.DAILY, [critical_incident], _NOW + 2 * _DAY) is None


@pytest.mark.django_db
def test_digest_is_sent_once_to_channels_with_its_period() -> None:
    """Not to channels where it would be an alert that is never resolved."""
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
        severity=0, opened_at=_NOW - 7200, fired_at=_NOW - 3600, affected_count=120, peak_count=300,
        summary="Too many tunnels.",
    )  # fmt: skip
    AlertClock.objects.create(cluster_id="default")
    enqueued_counts = [
        digest.enqueue_digests(AlertClock.objects.get(), _NOW + hours * 3600)
        for hours in (0, 1, 21, 22, 24 * 6 + 21)
    ]
    assert enqueued_counts == [0, 0, 1, 0, 2]
    assert sorted(Delivery.objects.values_list("channel__name", "kind")) == [
        ("mail", "digest"), ("mail", "digest"), ("week", "digest"),
    ]  # fmt: skip
    assert "Too many tunnels" in Delivery.objects.first().payload["subject"]  # type: ignore[union-attr]


@pytest.mark.django_db
def test_digest_is_not_sent_to_channels_of_another_cluster() -> None:
    """It is sent to channels of the cluster and of the installation; deliveries store the cluster."""
    for cluster in ("default", "eu"):
        Cluster.objects.get_or_create(id=cluster, defaults={"name": cluster})
        AlertClock.objects.create(cluster_id=cluster, digest_at=newest_due_at(_NOW - _DAY))
    for owner in ("", "default", "eu"):
        Channel.objects.create(name=f"mail {owner}", kind="email", digest="daily", cluster=owner)
    Row.objects.create(
        cluster_id="eu", key="fleet/excess", cause_kind="fleet", cause_id="excess", generation=1, state="firing",
        severity=0, opened_at=_NOW - 7200, fired_at=_NOW - 3600, affected_count=120, peak_count=300,
        summary="Too many tunnels.",
    )  # fmt: skip
    for clock in AlertClock.objects.all():
        digest.enqueue_digests(clock, _NOW)
    rows = Delivery.objects.order_by("channel__name").values_list("channel__name", "cluster")
    assert list(rows) == [("mail ", "eu"), ("mail eu", "eu")]
