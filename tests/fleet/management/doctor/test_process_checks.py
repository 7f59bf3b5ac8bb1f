from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from django.conf import settings
from pytest_django import Settings
from redis import Redis

from fleet.management.doctor import process_checks
from fleet.management.doctor.findings import CheckVerdict
from fleet.management.doctor.process_checks import (
    QueueFacts,
    RoundFacts,
    check_evaluations,
    check_queue,
    check_rounds,
    check_scheduler,
)
from fleet.models.alerting import AlertClock
from fleet.models.clusters import ensure_default_cluster
from fleet.monitoring.state.writer import Writer
from fleet.vocabulary.verdicts import State
from tests.fakes import record

_NOW = 1_700_000_000.0


@pytest.fixture
def redis(valkey_url: str) -> Iterator[Redis]:
    with Redis.from_url(valkey_url) as client:
        yield client


def _round(age: float | None, *, has_auths: bool = True) -> RoundFacts:
    return RoundFacts("default", has_auths, None if age is None else _NOW - age, interval=5.0)


def test_round_is_read_from_the_record(redis: Redis, prefix: str) -> None:
    """With its interval; a cluster without a record has none."""
    record.fill(Writer(redis, prefix), [State.HEALTHY])

    polled, empty = process_checks.read_rounds(redis, prefix, {"default": True, "other": False}, _NOW)

    assert polled == RoundFacts("default", True, record.AS_OF, record.INTERVAL)
    assert (empty.cluster, empty.has_auths, empty.as_of) == ("other", False, None)


@pytest.mark.parametrize(
    ("facts", "verdict", "phrase"),
    [
        (_round(4), CheckVerdict.OK, "4 s ago"),
        (_round(900), CheckVerdict.ERROR, "15 min ago, so all its agents are unknown"),
        (_round(None), CheckVerdict.ERROR, "never polled"),
        (_round(None, has_auths=False), CheckVerdict.WARNING, "no addresses of auths"),
    ],
)
def test_rounds(facts: RoundFacts, verdict: CheckVerdict, phrase: str) -> None:
    (finding,) = check_rounds([facts], _NOW)

    assert (finding.verdict, phrase in finding.summary) == (verdict, True)


@pytest.mark.parametrize(
    ("worker_count", "length", "is_proven_alive", "verdict"),
    [
        (1, 0, False, CheckVerdict.OK),
        (1, 40, False, CheckVerdict.WARNING),
        (0, 0, True, CheckVerdict.OK),
        (0, 0, False, CheckVerdict.WARNING),
        (0, 40, False, CheckVerdict.ERROR),
    ],
)
def test_queues(worker_count: int, length: int, is_proven_alive: bool, verdict: CheckVerdict) -> None:
    """A busy worker does not respond, but its queue is short."""
    finding = check_queue(QueueFacts("actions", worker_count, length, 90.0), is_proven_alive=is_proven_alive)

    assert (finding.name, finding.verdict) == ("worker-actions", verdict)
    if verdict is CheckVerdict.ERROR:
        assert "refloat-worker@actions" in finding.remedy


def test_age_of_a_backlog_is_in_the_sentence() -> None:
    finding = check_queue(QueueFacts("polls", 1, 40, 90.0), is_proven_alive=False)

    assert "40 tasks; the oldest expired 1 min 30 s ago" in finding.summary


@pytest.mark.parametrize(
    ("age", "length", "verdict"),
    [
        (4, 0, CheckVerdict.OK),
        (900, 20, CheckVerdict.SKIPPED),
        (900, 0, CheckVerdict.ERROR),
    ],
)
def test_scheduler(age: float, length: int, verdict: CheckVerdict) -> None:
    """Nothing but tasks shows that it runs."""
    finding = check_scheduler([_round(age)], [QueueFacts("polls", 1, length)], _NOW)

    assert finding.verdict is verdict


def test_queues_without_workers(settings: Settings, redis: Redis, valkey_url: str, prefix: str) -> None:
    """Length and oldest task of a real queue; no worker responds."""
    key_prefix = f"{prefix}-celery:"
    settings.CELERY_BROKER_URL = valkey_url
    settings.CELERY_BROKER_TRANSPORT_OPTIONS = {
        **settings.CELERY_BROKER_TRANSPORT_OPTIONS,
        "global_keyprefix": key_prefix,
    }
    expires_at = datetime.fromtimestamp(_NOW - 30, UTC).isoformat()
    redis.rpush(f"{key_prefix}polls", b"newest", json.dumps({"headers": {"expires": expires_at}}))

    polls, actions = process_checks.read_queues(redis, key_prefix, ["polls", "actions"], _NOW)

    assert polls == QueueFacts("polls", 0, 2, 30.0)
    assert actions == QueueFacts("actions", 0, 0, None)


@pytest.mark.parametrize("message", [b"", b"[]", b"[" * 5000, b'{"headers": {"expires": null}}'])
def test_message_that_cannot_be_read_has_no_age(message: bytes) -> None:
    assert process_checks.read_expired_seconds(message, _NOW) is None


@pytest.mark.django_db
def test_evaluations_are_read_from_the_database() -> None:
    """None for a cluster whose rules were never evaluated."""
    cluster = ensure_default_cluster(["127.0.0.1:1"])
    assert process_checks.read_clusters() == {"default": True}
    assert process_checks.read_evaluations() == {"default": None}
    AlertClock.objects.create(cluster=cluster, evaluated_at=_NOW)
    assert process_checks.read_evaluations() == {"default": _NOW}


@pytest.mark.parametrize(
    ("evaluated_at", "verdict", "phrase"),
    [
        (_NOW - 2, CheckVerdict.OK, "2 s ago"),
        (_NOW - 600, CheckVerdict.ERROR, "10 min ago"),
        (None, CheckVerdict.ERROR, "never evaluated"),
    ],
)
def test_alerting(evaluated_at: float | None, verdict: CheckVerdict, phrase: str) -> None:
    (finding,) = check_evaluations({"default": evaluated_at}, _NOW)

    assert (finding.verdict, phrase in finding.summary) == (verdict, True)
    assert ("refloat-alerts" in finding.remedy) == (verdict is CheckVerdict.ERROR)


def test_queues_of_the_settings_are_those_of_the_workers() -> None:
    """The doctor asks for the queues to which tasks are routed."""
    routes = {route["queue"] for route in settings.CELERY_TASK_ROUTES.values()}

    assert {*routes, settings.CELERY_TASK_DEFAULT_QUEUE} == {"polls", "actions"}
