from __future__ import annotations

import pytest
from django.db import Error, connection, transaction

from fleet.models.changes import AppendOnlyError, AuditEntry

pytestmark = pytest.mark.django_db


def test_audit_entry_is_written_once() -> None:
    """The model refuses to change and to delete, one row or many."""
    entry = AuditEntry.objects.create(actor_name="a", actor_kind="person", action="x", outcome="succeeded")
    for attempt in (
        entry.save,
        entry.delete,
        AuditEntry.objects.all().delete,
        lambda: AuditEntry.objects.update(actor_name="b"),
    ):
        with pytest.raises(AppendOnlyError):
            attempt()


@pytest.mark.parametrize(
    "statement", ["UPDATE fleet_auditentry SET actor_name = 'b'", "DELETE FROM fleet_auditentry"]
)
def test_audit_entry_is_guarded_by_the_database(statement: str) -> None:
    """Also against plain SQL."""
    AuditEntry.objects.create(actor_name="a", actor_kind="person", action="x", outcome="succeeded")
    with pytest.raises(Error, match="never changed"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert AuditEntry.objects.get().actor_name == "a"
