"""Keep every moment as `timestamptz`: columns of alerting, rollouts and campaigns held seconds since the epoch.

A table is rewritten once or twice, in SQL: a million rows take seconds. NULL stands where 0 meant "not yet".
"""

from __future__ import annotations

import time
from typing import Any

from django.db import migrations
from django.db.migrations.operations.base import Operation

from fleet.models.moments import SecondsField

#: The last second of the year 9999. Calendars end there, and nobody has checked the rows of old.
_LATEST = 253402300799
_MICROS = f"CAST(round(min({{0}}, {_LATEST}) * 1000000) AS INTEGER)"
#: As Django writes it, without a fraction where there is none: texts are compared.
_SQLITE_MOMENT = (
    f"strftime('%Y-%m-%d %H:%M:%S', {_MICROS} / 1000000, 'unixepoch')"
    f" || CASE {_MICROS} % 1000000 WHEN 0 THEN '' ELSE printf('.%06d', {_MICROS} % 1000000) END"
)
_SQLITE_SECONDS = "strftime('%s', substr({0}, 1, 19)) + CAST('0' || substr({0}, 20) AS REAL)"
#: Not `least`, which takes the other number where one is NULL.
_POSTGRES_MOMENT = f"to_timestamp(CASE WHEN {{0}} > {_LATEST} THEN {_LATEST} ELSE {{0}} END)"
_POSTGRES_SECONDS = "extract(epoch FROM {0})::double precision"


class ToMoments(Operation):
    """Turn columns of seconds into moments: `fields`, and `unset`, which held 0 for none."""

    reversible = True

    def __init__(self, model: str, unset: tuple[str, ...] = (), **fields: Any) -> None:
        self.model, self.unset = model, unset
        self.fields = fields | {name: SecondsField(null=True, blank=True) for name in unset}

    def describe(self) -> str:
        return f"Turn seconds of {self.model} into moments"

    def state_forwards(self, app_label: str, state: Any) -> None:
        for name, field in self.fields.items():
            state.alter_field(app_label, self.model, name, field, preserve_default=True)

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        before, after = (state.apps.get_model(app_label, self.model) for state in (from_state, to_state))
        columns = {name: f"nullif({name}, 0)" if name in self.unset else name for name in self.fields}
        if schema_editor.connection.vendor == "sqlite":
            self._remake(schema_editor, before, after)
            parts = [f"{name} = {_SQLITE_MOMENT.format(old)}" for name, old in columns.items()]
            self._execute(schema_editor, f"UPDATE {after._meta.db_table} SET", parts)
        else:
            parts = [f"ALTER {name} DROP NOT NULL" for name in self.unset]
            new = _POSTGRES_MOMENT.format
            parts += [f"ALTER {name} TYPE timestamptz USING {new(old)}" for name, old in columns.items()]
            self._execute(schema_editor, f"ALTER TABLE {after._meta.db_table}", parts)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        after, before = (state.apps.get_model(app_label, self.model) for state in (from_state, to_state))
        if schema_editor.connection.vendor == "sqlite":
            parts = [f"{name} = {_SQLITE_SECONDS.format(name)}" for name in self.fields]
            self._execute(schema_editor, f"UPDATE {after._meta.db_table} SET", parts)
            # It writes the default where the column may not be NULL any more.
            self._remake(schema_editor, after, before)
        else:
            old = {name: _POSTGRES_SECONDS.format(name) for name in self.fields}
            old |= {name: f"coalesce({old[name]}, 0)" for name in self.unset}
            parts = [f"ALTER {name} TYPE double precision USING {some}" for name, some in old.items()]
            parts += [f"ALTER {name} SET NOT NULL" for name in self.unset]
            self._execute(schema_editor, f"ALTER TABLE {after._meta.db_table}", parts)

    def _remake(self, schema_editor: Any, old: Any, new: Any) -> None:
        """Give all columns of an SQLite table their new type at once; `alter_field` copies it for every column."""
        pairs = [(old._meta.get_field(name), new._meta.get_field(name)) for name in self.fields]
        schema_editor._remake_table(old, alter_fields=pairs)

    def _execute(self, schema_editor: Any, start: str, parts: list[str]) -> None:
        # None: with parameters `%` would have to be doubled.
        schema_editor.execute(f"{start} {', '.join(parts)}", params=None)


def _nullable() -> SecondsField:
    return SecondsField(null=True, blank=True)


class Migration(migrations.Migration):
    dependencies = [("fleet", "0018_leases")]  # noqa: RUF012 - Django's way

    operations = [  # noqa: RUF012 - as above
        ToMoments(
            "incident",
            opened_at=SecondsField(),
            began_at=_nullable(),
            fired_at=_nullable(),
            quiet_since=_nullable(),
            resolved_at=_nullable(),
            heals_at=_nullable(),
            flapping_since=_nullable(),
            notified_at=_nullable(),
            escalated_at=_nullable(),
            acked_at=_nullable(),
        ),
        ToMoments("versionchange", at=SecondsField()),
        ToMoments("incidentevent", at=SecondsField()),
        ToMoments(
            "silence",
            created_at=SecondsField(default=time.time),
            starts_at=SecondsField(),
            ends_at=SecondsField(),
        ),
        ToMoments(
            "delivery",
            unset=("leased_until",),
            created_at=SecondsField(),
            next_attempt_at=SecondsField(),
            attempted_at=_nullable(),
            sent_at=_nullable(),
            failed_at=_nullable(),
        ),
        ToMoments("alertclock", looked_at=_nullable(), digest_at=_nullable()),
        ToMoments("rolloutstep", unset=("since", "began_at", "ended_at")),
        ToMoments("campaignagent", unset=("due_at", "asked_at", "ended_at")),
    ]
