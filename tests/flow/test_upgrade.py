"""Databases that version 66eb538 wrote, with users, incidents, changes and history, are upgraded without a loss.

tests/flow/databases has them as SQL: made by `prepare` and the models of that version, on SQLite and on PostgreSQL.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.flow.installation import Installation
from tests.flow.postgres import postgresql

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_DATABASES = Path(__file__).parent / "databases"
#: Every moment in the databases is a quarter of a second after a full one: fractions are kept, too.
_CHECKS = """
from datetime import UTC, datetime, timedelta

from django.contrib.auth.models import User

from fleet.models.actions import CampaignAgent
from fleet.models.alerting import AgentSet, Channel, Delivery, MaintenanceWindow, Silence
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import ClusterLease
from fleet.models.drains import Drain
from fleet.models.history import AgentChange, InstanceChange
from fleet.models.incidents import Incident, VersionChange
from fleet.models.inventory import Agent
from fleet.models.networking import NetworkingRevision
from fleet.models.sealed_secrets import unseal
from fleet.models.tokens import ApiToken
from fleet.vocabulary.verdicts import Reason, State

AT = datetime(2026, 11, 20, 12, 0, 0, 250_000, tzinfo=UTC)
S = AT.timestamp()


def expect(actual, *expected):
    assert list(actual) == list(expected), list(actual)


expect(
    User.objects.order_by("pk").values_list("username", "email", "groups__name", "is_active", "date_joined"),
    ("ada", "ada@example.com", "admin", True, AT),
    ("grace", "grace@example.com", "operator", True, AT),
    ("linus", "linus@example.com", "viewer", False, AT),
)
assert User.objects.get(username="grace").check_password("password of grace")
expect(ApiToken.objects.values_list("user__username", "name", "digest"), ("ada", "ci", "d" * 64))

expect(
    Incident.objects.order_by("pk").values_list(
        "key", "state", "severity", "opened_at", "resolved_at", "peak_count", "summary", "acknowledged_by"
    ),
    ("proxy/i-proxy", "resolved", 2, S, S + 600, 2, "proxy-1 does not answer: 2 agents are stranded.", "ada"),
    ("auth/i-auth", "firing", 1, S + 900, None, 3, "auth-1 is unhealthy.", ""),
)
expect(
    Incident.objects.get(pk=1).events.order_by("at").values_list("at", "kind", "actor_name", "text"),
    (S, "pending", "", ""),
    (S + 30, "firing", "", "proxy-1 does not answer"),
    (S + 60, "note", "ada", "looking"),
    (S + 600, "recurred", "", ""),
)
expect(Delivery.objects.values_list("incident", "channel__name", "sent_at", "attempts"), (1, "ops", S + 1, 1))
assert unseal(Channel.objects.get().secrets) == {"url": "https://hooks.example.com/x"}
expect(Channel.objects.get().routes.values_list("name", flat=True), "all")
expect(Silence.objects.values_list("matchers", "starts_at", "ends_at"), ("cause=proxy-2", S, S + 3600))
expect(MaintenanceWindow.objects.values_list("name", "length"), ("weekly", timedelta(hours=2)))
expect(AgentSet.objects.values_list("pattern", "name"), ("agent-*", "critical"))

minute = timedelta(minutes=1)
expect(
    Change.objects.order_by("pk").values_list(
        "kind", "state", "title", "actor_name", "user__username", "reason", "affected_count", "created_at", "ended_at"
    ),
    (
        *("networking-config", "verified", "Set keep_alive_interval", "ada", "ada", "shorter keepalive", 3),
        *(AT, AT + 2 * minute),
    ),
    ("reconnect", "failed", "Reconnect 2 agents", "grace", None, "move away", 2, AT, AT + 5 * minute),
)
change, campaign = Change.objects.order_by("pk")
assert (change.before, change.after) == ({"keep_alive_interval": "5m"}, {"keep_alive_interval": "1m"})
assert campaign.parameters["settings"]["timeout_seconds"] == 60
assert campaign.parameters["instances_to_leave"] == ["i-proxy"]
expect(
    CampaignAgent.objects.order_by("position").values_list("name", "state", "ended_at"),
    ("agent-0", "succeeded", S + 20),
    ("agent-1", "failed", S + 20),
)
expect(
    AuditEntry.objects.exclude(action__startswith="backup.")
    .order_by("pk")
    .values_list("at", "actor_name", "action", "outcome", "change_id"),
    (AT, "ada", "networking-config.confirm", "succeeded", 1),
    (AT, "ada", "token.create", "succeeded", None),
)
expect(NetworkingRevision.objects.values_list("revision", "change", "at"), ("r1", 1, AT))
expect(Drain.objects.values_list("name", "is_drained", "requested_at"), ("proxy-1", True, AT))
expect(ClusterLease.objects.filter(purpose="changes").values_list("token", flat=True), 7)

expect(
    Agent.objects.order_by("position").values_list("agent_id", "home_proxy", "is_retired"),
    ("a-0", "i-proxy", False),
    ("a-1", "i-proxy", False),
    ("a-2", "i-proxy", True),
)
expect(
    (
        (row.at, row.agent_id, State(row.old).slug, State(row.new).slug, Reason(row.reason).slug)
        for row in AgentChange.objects.order_by("at")
    ),
    (S, 1, "healthy", "stranded", "proxy-unhealthy"),
    (S + 60, 2, "healthy", "stranded", "backend-down"),
    (S + 120, 1, "stranded", "healthy", "none"),
)
expect(InstanceChange.objects.values_list("instance", "old", "new", "at"), ("i-proxy", "ok", "silent", S))
expect(VersionChange.objects.values_list("name", "old", "new", "at"), ("proxy-1", "18.1.0", "18.2.0", S - 60))
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def old_installation(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Installation]:
    """An installation with the database of that version."""
    sql = (_DATABASES / f"66eb538.{request.param}.sql").read_text()
    installation = Installation(tmp_path / "home", {"REFLOAT_SECRET_KEY": "key-of-the-old-version"})
    installation.home.mkdir(mode=0o700)
    if request.param == "sqlite":
        with closing(sqlite3.connect(installation.home / "refloat.sqlite3")) as database:
            database.executescript(sql)
        yield installation
        return
    with postgresql() as url:
        with psycopg.connect(url) as connection:
            connection.execute(sql)
        installation.environment["DATABASE_URL"] = url
        yield installation


def test_database_of_the_old_version(old_installation: Installation, tmp_path: Path) -> None:
    """Upgraded in its place; and a backup from before the upgrade, restored by this version, is upgraded, too."""
    archive = tmp_path / "before.tar.gz"
    process = old_installation.run("backup", "--to", str(archive))
    assert process.returncode == 0, process.stderr

    process = old_installation.run("prepare")

    assert process.returncode == 0, process.stderr
    old_installation.execute(_CHECKS)
    assert not old_installation.find().keys() & {"database-migrations", "database-newer"}

    process = old_installation.run("restore", str(archive), "--force", "--json")

    assert process.returncode == 0, process.stderr
    report = json.loads(process.stdout)
    assert "fleet.0014_history_by_agent" in report["applied_migrations"]
    assert report["channels_without_secrets"] == []
    old_installation.execute(_CHECKS)
