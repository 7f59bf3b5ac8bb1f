from __future__ import annotations

import pytest
from django.db import Error, connection, transaction

from fleet.models.changes import AppendOnlyError, AuditEntry

pytestmark = pytest.mark.django_db


def test_audit_entry_is_written_once() -> None:
    """The model refuses to change and to delete, one row or many."""
    entry = AuditEntry.objects.create(who="a", actor_kind="person", action="x", outcome="done")
    for attempt in (
        entry.save,
        entry.delete,
        AuditEntry.objects.all().delete,
        lambda: AuditEntry.objects.update(who="b"),
    ):
        with pytest.raises(AppendOnlyError):
            attempt()


@pytest.mark.parametrize(
    "statement", ["UPDATE fleet_auditentry SET who = 'b'", "DELETE FROM fleet_auditentry"]
)
def test_audit_entry_is_guarded_by_the_database(statement: str) -> None:
    """So are rows from whoever writes SQL."""
    AuditEntry.objects.create(who="a", actor_kind="person", action="x", outcome="done")
    with pytest.raises(Error, match="never changed"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert AuditEntry.objects.get().who == "a"
