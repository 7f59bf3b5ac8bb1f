"""Senders that meet at one row, on a database that has several writers at a time."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, transaction

from fleet.alerts.channels import SendError, SendRequest
from fleet.alerts.outbox import Outbox
from fleet.models.alerting import Delivery
from tests.fakes.outbox_scenario import OutboxScenario
from tests.fakes.waiting import eventually_sync

pytestmark = [
    pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has one writer at a time"),
    pytest.mark.django_db(transaction=True),
]


def _send_next(outbox: Outbox) -> bool:
    """Send in a thread, which has a connection of its own."""
    try:
        return outbox.send_next()
    finally:
        connection.close()


def _count_waiting() -> int:
    """Return the number of transactions that wait for a lock."""
    with connection.cursor() as cursor:
        cursor.execute("select count(*) from pg_locks where not granted")
        return int(cursor.fetchone()[0])


def test_sender_that_waited_for_the_lease_of_another_takes_another_notification() -> None:
    """It chose the same row, and its UPDATE waits until the lease of the other is committed."""
    scenario = OutboxScenario()
    scenario.add_delivery("a/1")
    scenario.add_delivery("b/1", at=scenario.now + 1)
    scenario.now += 1
    second_outbox = scenario.make_outbox("two")
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            assert scenario.outbox.send_next()
            outcome = pool.submit(_send_next, second_outbox)
            eventually_sync(lambda: _count_waiting() == 1, seconds=60.0)
        assert outcome.result(60.0)
    assert scenario.attempted_keys == ["a/1", "b/1"]
    assert not Delivery.objects.filter(sent_at=None).exists()


@pytest.mark.parametrize("fails", [False, True], ids=["both sent", "one fails"])
def test_results_of_one_channel_do_not_wait_for_each_other(fails: bool) -> None:
    """Recording an attempt also changes the rows of other notifications of its channel. PostgreSQL ends one of two
    transactions that wait for each other, and its notification would be sent twice.
    """
    scenario = OutboxScenario()
    reason = "the channel is failing; an earlier notification is retried first"
    for number in range(4):
        scenario.add_delivery(f"{number}/1", scenario.create_incident(number), delay_reason=reason)
    both_sent, both_recorded = threading.Barrier(2), threading.Barrier(2)

    def send(request: SendRequest) -> None:
        both_sent.wait(60.0)
        if fails and request.key == "1/1":
            raise SendError("connection refused")

    def record_beside_the_other(execute: Any, sql: str, *arguments: Any) -> Any:
        """Let each transaction write its first row before either goes on, unless a lock stops one of them."""
        outcome = execute(sql, *arguments)
        if sql.startswith('UPDATE "fleet_delivery" SET "sent_at"'):
            with contextlib.suppress(threading.BrokenBarrierError):
                both_recorded.wait(1.0)
        return outcome

    def send_one(holder: str) -> bool:
        with connection.execute_wrapper(record_beside_the_other):
            return _send_next(scenario.make_outbox(holder, {"webhook": send}))

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(send_one, ("one", "two"))) == [True, True]
    assert Delivery.objects.exclude(sent_at=None).count() == (1 if fails else 2)
