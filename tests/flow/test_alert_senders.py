"""Two alerting processes send from one outbox, and one of them is killed: nothing is lost, doubled or overtaken."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import groupby
from pathlib import Path
from typing import Any

import psycopg
import pytest

from fleet.processes import children
from tests.fakes.waiting import eventually_sync
from tests.flow.alerting import MANAGE, SETTINGS
from tests.flow.postgres import postgresql

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

CHANNEL_COUNT, INCIDENT_COUNT, NOTIFICATION_COUNT = 3, 4, 3
#: Seconds for anything, on a machine that does other things too.
_PATIENCE = 300.0
#: Seconds that a closed receiver holds a request: less than the timeout of an attempt.
_HOLD_SECONDS = 8.0
#: Notifications "first" are due at once; those of "second" when the test says so.
_PREPARE = f"""
import os, time
import django; django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
from fleet.alerts.notifications import NotificationLinks, make_test_notification, payload_of
from fleet.models import Cluster
from fleet.models.alerting import Channel, Delivery
from fleet.models.incidents import Incident
Cluster.objects.get_or_create(id="default", defaults={{"name": "Default"}})
now = time.time()
payload = payload_of(make_test_notification("ops", now), NotificationLinks())
channels = [
    Channel.objects.create(
        name=f"channel-{{number}}", kind="webhook", config={{"url": os.environ["RECEIVER"]}},
        allow_private=True, per_minute=1000,
    )
    for number in range({CHANNEL_COUNT})
]
incidents = [
    Incident.objects.create(
        cluster_id="default", key=f"proxy/{{number}}", cause_kind="proxy", cause_id="p", generation=1,
        state="resolved", severity=2, opened_at=now, resolved_at=now,
    )
    for number in range({INCIDENT_COUNT})
]
Delivery.objects.bulk_create(
    Delivery(
        channel=channel, incident=incident, key=f"{{part}}/{{channel.name}}/{{incident.key}}/{{number}}",
        cluster="default", kind="firing", payload=payload, created_at=now,
        next_attempt_at=now if part == "first" else now + 86400,
    )
    for part in ("first", "second")
    for number in range({NOTIFICATION_COUNT})
    for incident in incidents
    for channel in channels
)
"""


class GatedReceiver:
    """A webhook that answers while its gate is open, and holds requests while it is closed."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.gate = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", "0")))
                receiver.keys.append(self.headers["Refloat-Key"])
                receiver.gate.wait(_HOLD_SECONDS)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Log nothing."""

            def handle(self) -> None:
                try:
                    super().handle()
                except OSError:
                    """The sender was killed, or waits no longer."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"


@contextmanager
def _run_receiver() -> Iterator[GatedReceiver]:
    receiver = GatedReceiver()
    thread = threading.Thread(target=receiver.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.gate.set()
        receiver.server.shutdown()
        receiver.server.server_close()
        thread.join()


class Installation:
    """The database of a console, and alerting processes."""

    def __init__(self, home: Path, database_url: str, receiver: GatedReceiver) -> None:
        self._home, self._database_url, self._receiver = home, database_url, receiver
        # Nobody listens there: Refloat cannot see the fleet, and evaluates nothing that these channels get.
        self._environment = {
            **{name: value for name, value in os.environ.items() if name != "DATABASE_URL"},
            **({"DATABASE_URL": database_url} if database_url else {}),
            "REFLOAT_HOME": str(home),
            "REDIS_URL": "redis://127.0.0.1:1/0",
            "DJANGO_SETTINGS_MODULE": "dashboards.config.settings",
            "RECEIVER": receiver.url,
        }
        subprocess.run([sys.executable, "-c", _PREPARE], env=self._environment, check=True, timeout=_PATIENCE)

    @contextmanager
    def run_alerting(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run an alerting process."""
        with (self._home / "alerts.log").open("ab") as log:
            process = children.spawn([*MANAGE, "alerts", *SETTINGS], env=self._environment, log=log)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def sql(self, statement: str) -> list[Any]:
        """Return the rows that a statement selects; commit what it writes."""
        if self._database_url:
            with psycopg.connect(self._database_url) as connection:
                cursor = connection.execute(statement)
                return cursor.fetchall() if cursor.description else []
        with closing(sqlite3.connect(self._home / "refloat.sqlite3", timeout=60)) as database, database:
            return database.execute(statement).fetchall()

    def leases(self) -> dict[str, int]:
        """Return the process ids of senders by the key of the notification that they are sending."""
        rows = self.sql("select key, leased_by from fleet_delivery where leased_until is not null")
        return {key: int(holder.split("/")[-2]) for key, holder in rows}

    def await_sending(self, *processes: subprocess.Popen[bytes]) -> None:
        """Wait until each of these processes is sending something."""
        pids = {process.pid for process in processes}
        eventually_sync(lambda: pids <= set(self.leases().values()), seconds=_PATIENCE)

    def await_sent(self, part: str) -> None:
        """Wait until all notifications of a part are sent."""
        query = f"select count(*) from fleet_delivery where sent_at is null and key like '{part}/%'"
        eventually_sync(lambda: self.sql(query) == [(0,)], seconds=_PATIENCE)

    def count_failures(self) -> Counter[str]:
        """Return the number of failed attempts by key: on a busy machine, an answer may come too late."""
        log = (self._home / "alerts.log").read_text(errors="replace")
        return Counter(re.findall(r"delivery (\S+) to \S+ failed, attempt", log))


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """URL of the database; empty for SQLite."""
    with ExitStack() as stack:
        yield stack.enter_context(postgresql()) if request.param == "postgresql" else ""


def test_two_senders_share_an_outbox_and_one_takes_over(tmp_path: Path, database_url: str) -> None:
    """Both send, each notification arrives once, and in order within its incident and channel. What the killed process
    was sending arrives once more, under the same key, when its leases have expired.
    """
    with _run_receiver() as receiver:
        installation = Installation(tmp_path, database_url, receiver)
        with installation.run_alerting() as first_process, installation.run_alerting() as second_process:
            installation.await_sending(first_process, second_process)
            receiver.gate.set()
            installation.await_sent("first")
            receiver.gate.clear()
            installation.sql(
                "update fleet_delivery set next_attempt_at = created_at where key like 'second/%'"
            )
            installation.await_sending(first_process, second_process)
            first_process.send_signal(signal.SIGKILL)
            first_process.wait()
            abandoned_keys = {key for key, pid in installation.leases().items() if pid == first_process.pid}
            assert abandoned_keys
            receiver.gate.set()
            # As if the minute had passed.
            installation.sql(
                f"update fleet_delivery set leased_until = null where leased_by like '%/{first_process.pid}/%'"
            )
            installation.await_sent("second")
        failures = installation.count_failures()
    request_counts = Counter(receiver.keys)
    assert len(request_counts) == 2 * CHANNEL_COUNT * INCIDENT_COUNT * NOTIFICATION_COUNT
    assert {
        key: count
        for key, count in request_counts.items()
        if count > 1 + failures[key] + (key in abandoned_keys)
    } == {}
    assert all(key.startswith("second/") for key in abandoned_keys)
    numbers = defaultdict[str, list[int]](list)
    for key in receiver.keys:
        group, _, number = key.rpartition("/")
        numbers[group].append(int(number))
    assert {tuple(number for number, _ in groupby(sequence)) for sequence in numbers.values()} == {
        tuple(range(NOTIFICATION_COUNT))
    }
