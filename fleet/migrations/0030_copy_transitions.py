"""Copy the state changes of agents into the compact table, in batches, on either database.

Each batch is a transaction of its own, and copying it again does no harm: an interrupted migration continues. Moves
were not recorded, so auth and proxies are NULL. Changes of agents that have no row of their own any more are left out:
no page could show them.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from django.db import migrations

from fleet.models.partitions import ensure_partitions

#: Rows of one statement, so that no other writer waits long.
_BATCH_SIZE = 20_000
_DAY_MS = 86_400_000
_STATES = "unknown retired never stranded offline at_risk working degraded excess healthy".split()
_REASONS = (
    "none auth-unhealthy proxy-unhealthy proxy-expired no-tunnel resource-expired backend-down cluster-unreachable"
    " disagree policy-off stale reconnecting too-few-tunnels too-many-tunnels own-host instance-degraded"
).split()
_RECOVERIES = "not-needed by-itself only-if-cause-recovers unclear".split()


def _to_number(column: str, slugs: list[str]) -> str:
    return f"CASE {column} {' '.join(f'WHEN {slug!r} THEN {number}' for number, slug in enumerate(slugs))} ELSE 0 END"


def _to_slug(column: str, slugs: list[str]) -> str:
    return f"CASE {column} {' '.join(f'WHEN {number} THEN {slug!r}' for number, slug in enumerate(slugs))} END"


#: SQLite holds milliseconds in the new table, and the text of Django in the old one.
_TO_MOMENT = {
    "sqlite": "CAST(strftime('%s', substr(t.at, 1, 19)) AS INTEGER) * 1000"
    " + CAST(round(CAST('0' || substr(t.at, 20) AS REAL) * 1000) AS INTEGER)",
    "postgresql": "date_trunc('milliseconds', t.at + interval '500 microseconds')",
}
_FROM_MOMENT = {
    "sqlite": "strftime('%Y-%m-%d %H:%M:%S', c.at / 1000, 'unixepoch')"
    " || CASE c.at % 1000 WHEN 0 THEN '' ELSE printf('.%03d000', c.at % 1000) END",
    "postgresql": "c.at",
}
_TO_MILLISECONDS = {
    "sqlite": "c.at",
    "postgresql": "CAST(extract(epoch FROM c.at) * 1000 AS bigint)",
}
_COPY = f"""
INSERT INTO fleet_agentchange (agent_id, at, cause, recovers_after_ms, old, new, reason, recovery)
SELECT a.id, {{moment}}, CASE WHEN t.cause LIKE 'backend/%' THEN -1 ELSE coalesce(i.id, 0) END, 0,
  {_to_number("t.old", _STATES)}, {_to_number("t.new", _STATES)},
  {_to_number("t.reason", _REASONS)}, {_to_number("t.recovery", _RECOVERIES)}
FROM fleet_transition t
JOIN fleet_agent a ON a.cluster_id = t.cluster_id AND a.agent_id = t.agent
LEFT JOIN fleet_instance i ON i.cluster_id = t.cluster_id AND i.instance_id = t.cause
WHERE t.id >= {{first}} AND t.id < {{end}} ORDER BY t.id
ON CONFLICT DO NOTHING
"""
_COPY_BACK = f"""
INSERT INTO fleet_transition (cluster_id, agent, at, round, cause, old, new, reason, recovery)
SELECT a.cluster_id, a.agent_id, {{moment}}, {{milliseconds}},
  CASE WHEN c.cause = -1 THEN 'backend/' || a.cluster_id ELSE coalesce(i.instance_id, '') END,
  {_to_slug("c.old", _STATES)}, {_to_slug("c.new", _STATES)},
  {_to_slug("c.reason", _REASONS)}, {_to_slug("c.recovery", _RECOVERIES)}
FROM fleet_agentchange c
JOIN fleet_agent a ON a.id = c.agent_id
LEFT JOIN fleet_instance i ON i.id = c.cause
WHERE c.old <> c.new AND {{first}} AND {{end}} ORDER BY c.at
ON CONFLICT DO NOTHING
"""


def _copy(apps: Any, schema_editor: Any) -> None:
    connection = schema_editor.connection
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT DISTINCT date(at AT TIME ZONE 'UTC') FROM fleet_transition")
            ensure_partitions("fleet_agentchange", [day for (day,) in cursor.fetchall()], connection.alias)
        cursor.execute("SELECT min(id), max(id) FROM fleet_transition")
        for first, end in _ranges(*cursor.fetchone(), _BATCH_SIZE):
            # None: with parameters `%` would have to be doubled.
            cursor.execute(_COPY.format(moment=_TO_MOMENT[connection.vendor], first=first, end=end), None)


def _copy_back(apps: Any, schema_editor: Any) -> None:
    """Copy the changes of states; moves have no place in the old table, and times become the numbers of rounds."""
    connection = schema_editor.connection
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT min({_TO_MILLISECONDS[connection.vendor]}), max({_TO_MILLISECONDS[connection.vendor]})"
                       " FROM fleet_agentchange c")
        for first, end in _ranges(*cursor.fetchone(), _DAY_MS):
            statement = _COPY_BACK.format(
                moment=_FROM_MOMENT[connection.vendor],
                milliseconds=_TO_MILLISECONDS[connection.vendor],
                first=f"c.at >= {_literal(connection.vendor, first)}",
                end=f"c.at < {_literal(connection.vendor, end)}",
            )
            cursor.execute(statement, None)


def _ranges(first: int | None, last: int | None, size: int) -> Iterator[tuple[int, int]]:
    if first is not None and last is not None:
        for start in range(first, last + 1, size):
            yield start, start + size


def _literal(vendor: str, milliseconds: int) -> str:
    if vendor == "sqlite":
        return str(milliseconds)
    return f"'{datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()}'::timestamptz"


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("fleet", "0029_agent_changes")]  # noqa: RUF012 - Django's way
    operations = [migrations.RunPython(_copy, _copy_back)]  # noqa: RUF012 - as above
