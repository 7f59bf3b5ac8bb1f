"""The alerting process as it runs: a real database, a real receiver, killed in the midst, with Redis away."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from fleet.processes import children
from tests.fakes.receivers import run_receiver
from tests.flow.alerting import MANAGE, SETTINGS, open_channel, sql
from tests.flow.producers import Database, produced


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A console's home with a database, rules that wait for nothing, and a channel."""
    _manage(tmp_path, "migrate", "--verbosity", "0")
    return tmp_path


def _env(home: Path) -> dict[str, str]:
    # Nobody listens there: alerting has to live without Redis.
    return {
        **os.environ,
        "REFLOAT_HOME": str(home),
        "REDIS_URL": "redis://127.0.0.1:1/0",
        "REFLOAT_ALERT_INTERVAL": "0.2",
    }


def _manage(home: Path, *argv: str) -> None:
    subprocess.run([*MANAGE, *argv, *SETTINGS], env=_env(home), check=True, timeout=300)


@contextmanager
def _run_alerting(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (home / "alerts.log").open("ab") as log:
        process = children.spawn([*MANAGE, "alerts", *SETTINGS], env=_env(home), log=log)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def _await_condition(condition: Callable[[], Any], description: str, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {description}"
        time.sleep(0.05)


@pytest.mark.slow
def test_process_killed_between_sent_and_recorded_loses_and_doubles_nothing(home: Path) -> None:
    """Redis is away, so the console is blind: one page. The process dies while the receiver answers; the next one

    sends again under the same key, and a receiver that honours it has one page.
    """
    with run_receiver() as receiver:
        open_channel(home, receiver)
        # The row that says "sent" cannot be written: the process dies at exactly that moment.
        sql(
            home,
            "create trigger no_record before update of sent_at on fleet_delivery when new.sent_at is not null"
            " begin select raise(abort, 'locked'); end",
        )
        with _run_alerting(home) as process:
            _await_condition(lambda: receiver.requests, "the page")
            process.send_signal(signal.SIGKILL)
        assert sql(home, "select sent_at from fleet_delivery") == [(None,)]
        sql(home, "drop trigger no_record")
        sql(home, "update fleet_delivery set leased_until = null")
        sql(home, "update fleet_clusterlease set holder = '' where purpose = 'alerts'")
        with _run_alerting(home):
            _await_condition(
                lambda: sql(home, "select 1 from fleet_delivery where sent_at is not null"),
                "the record of it",
            )
        assert len(receiver.keys) == 1
        assert len(receiver.requests) >= 2
        (page,) = {body["subject"] for body in receiver.bodies}
        assert page.startswith("CRIT default: Refloat monitoring cannot read the fleet state")
        produced(
            Database(home), incident_causes=("console",), timeline=("firing", "notification", "delivery")
        )


@pytest.mark.slow
def test_locked_database_delays_and_loses_nothing(home: Path) -> None:
    """Another writer locks the database for a while; the notification is sent when it is free."""
    with (
        run_receiver(500) as receiver,
        closing(sqlite3.connect(home / "refloat.sqlite3", isolation_level=None)) as lock,
    ):
        open_channel(home, receiver)
        lock.execute("begin immediate")
        with _run_alerting(home):
            deadline = time.monotonic() + 3
            while time.monotonic() < deadline:
                assert receiver.requests == []
                time.sleep(0.1)
            lock.execute("rollback")
            # Answered 500 the first time: it is sent again, after its wait.
            _await_condition(
                lambda: sql(home, "select 1 from fleet_delivery where sent_at is not null"), "the page"
            )
        assert len(receiver.keys) == 1
        assert [row[0] for row in sql(home, "select attempts from fleet_delivery")] == [2]
