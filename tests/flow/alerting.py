"""What flow tests of alerting share: the alerting process, its database, and channels in it."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.fakes.receivers import Receiver

MANAGE = (sys.executable, "-m", "django")
SETTINGS = ("--settings", "dashboards.config.settings")


def sql(home: Path, statement: str, *values: Any) -> list[Any]:
    """What the console's database answers."""
    with closing(sqlite3.connect(home / "refloat.sqlite3", timeout=20)) as database, database:
        return database.execute(statement, values).fetchall()


def open_channel(home: Path, receiver: Receiver) -> None:
    """Send everything to a webhook, at once."""
    sql(home, "update fleet_alertrule set group_wait = 0, recover_seconds = 0")
    add_channel(home, "webhook", "url", receiver.url)


def add_channel(home: Path, kind: str, field: str, value: str) -> None:
    """Put a channel on the root of the routes."""
    sql(
        home,
        "insert into fleet_channel"
        " (cluster, name, kind, config, secrets, enabled, send_resolved, allow_private, per_minute, digest)"
        " values ('', ?, ?, json_object(?, ?), '', 1, 1, 1, 100, '')",
        *(kind, kind, field, value),
    )
    sql(
        home,
        "insert into fleet_route_channels (route_id, channel_id)"
        " select r.id, c.id from fleet_route r, fleet_channel c where c.name = ?",
        kind,
    )
