"""Slack and Teams with the alerting process as it runs: killed between sending and recording, and two processes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fleet.processes import children
from tests.fakes.slack_api import TOKEN, run_slack
from tests.fakes.teams_webhook import run_teams
from tests.fakes.waiting import eventually_sync
from tests.flow.alerting import MANAGE, SETTINGS, sql

_ADD_CHANNEL = """
import json, os
from fleet.models.alerting import Channel, Route
from fleet.models.sealed_secrets import seal
channel = json.loads(os.environ["CHANNEL"])
secrets = seal(channel.pop("secrets"))
row = Channel.objects.create(name="chat", allow_private=True, per_minute=1000, secrets=secrets, **channel)
Route.objects.get(name="Everything").channels.add(row)
"""


def _environment(home: Path) -> dict[str, str]:
    # Redis is away, so the console cannot see the fleet: one incident.
    return {
        **os.environ,
        "REFLOAT_HOME": str(home),
        "REDIS_URL": "redis://127.0.0.1:1/0",
        "REFLOAT_ALERT_INTERVAL": "0.2",
        "REFLOAT_PUBLIC_URL": "https://console.example.com",
    }


def _manage(home: Path, *argv: str, **variables: str) -> None:
    environment = _environment(home) | variables
    subprocess.run([*MANAGE, *argv, *SETTINGS], env=environment, check=True, timeout=300)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A console's home with a database, and rules that wait for nothing."""
    _manage(tmp_path, "migrate", "--verbosity", "0")
    sql(tmp_path, "update fleet_alertrule set group_wait = 0, recover_seconds = 0")
    return tmp_path


@contextmanager
def _run_alerting(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (home / "alerts.log").open("ab") as log:
        process = children.spawn([*MANAGE, "alerts", *SETTINGS], env=_environment(home), log=log)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def _count_sent(home: Path) -> int:
    return int(sql(home, "select count(*) from fleet_delivery where sent_at is not null")[0][0])


def _lose_record(home: Path) -> None:
    """Let the process fail to record that it sent something."""
    sql(
        home,
        "create trigger no_record before update of sent_at on fleet_delivery when new.sent_at is not null"
        " begin select raise(abort, 'locked'); end",
    )


def _expire_leases(home: Path) -> None:
    sql(home, "drop trigger if exists no_record")
    sql(home, "update fleet_delivery set leased_until = null")
    sql(home, "update fleet_clusterlease set holder = '' where purpose = 'alerts'")


@pytest.mark.slow
def test_process_killed_after_posting_repeats_one_message_and_updates_the_newer_one(home: Path) -> None:
    """The message of the killed process stays as it was. The other one gets the acknowledgement, once, although the

    process that sends it is killed, too: its update is repeated, and one entry of the thread.
    """
    with run_slack() as slack:
        channel = f'{{"kind": "slack", "config": {{"url": "{slack.api_url}", "channel": "#ops"}},'
        _manage(home, "shell", "-c", _ADD_CHANNEL, CHANNEL=f'{channel} "secrets": {{"token": "{TOKEN}"}}}}')
        _lose_record(home)
        with _run_alerting(home):
            eventually_sync(lambda: bool(slack.ops.messages))
        assert _count_sent(home) == 0
        _expire_leases(home)
        with _run_alerting(home):
            eventually_sync(lambda: _count_sent(home) == 1)
        first, second = slack.ops.messages
        _lose_record(home)
        acknowledge = (
            "from fleet.alerts.incident_actions import acknowledge; from fleet.models.incidents import Incident;"
            "import time; assert acknowledge(Incident.objects.get(), 'alice', time.time())"
        )
        _manage(home, "shell", "-c", acknowledge)
        with _run_alerting(home):
            eventually_sync(lambda: len(slack.ops.thread_of(second)) == 1)
        _expire_leases(home)
        with _run_alerting(home):
            eventually_sync(lambda: _count_sent(home) == 2)
        assert slack.ops.messages == [first, second]
        assert (first.edit_count, second.edit_count) == (0, 2)
        assert slack.ops.thread_of(second) == ["alice acknowledged the incident."] * 2
        assert second.view.facts["⟦State⟧"] == "Firing, acknowledged by alice"


@pytest.mark.slow
def test_two_processes_post_one_card(home: Path) -> None:
    """One evaluates, and both look for notifications to send."""
    with run_teams() as teams:
        _manage(
            home,
            "shell",
            "-c",
            _ADD_CHANNEL,
            CHANNEL=f'{{"kind": "teams", "config": {{}}, "secrets": {{"url": "{teams.url}"}}}}',
        )
        with _run_alerting(home) as first:
            with _run_alerting(home):
                eventually_sync(lambda: _count_sent(home) == 1)
            first.send_signal(signal.SIGKILL)
        (card,) = teams.cards
        assert card.texts[1].startswith("Refloat monitoring cannot read the fleet state")
        assert card.buttons["Acknowledge"].startswith("https://console.example.com/incidents/")
        assert teams.request_count == 1
