from __future__ import annotations

import pytest

from fleet.audit import Attempt, collect_audit_entry_ids, record_outcome, shell_actor_of, write_entry
from fleet.changes import ChangeRefusedError
from fleet.models.changes import AuditEntry
from fleet.vocabulary.actions import ChangeError
from fleet.vocabulary.changes import SYSTEM_ACTOR
from tests.fleet.changes.conftest import NOW

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, "succeeded"),
        (ChangeRefusedError("no"), "refused"),
        (ChangeError("no"), "failed"),
        (KeyError("no"), "failed"),
    ],
)
def test_every_attempt_is_one_row(error: Exception | None, outcome: str) -> None:
    """Whatever the outcome; the error is raised."""
    try:
        with record_outcome(Attempt(SYSTEM_ACTOR, "x.try"), lambda: NOW):
            if error is not None:
                raise error
    except (ChangeRefusedError, ChangeError, KeyError) as raised_error:
        assert raised_error is error  # noqa: PT017 - which one is the parameter
    entry = AuditEntry.objects.get()
    assert (entry.outcome, "no" in entry.detail, entry.at) == (outcome, error is not None, NOW)


def test_record_takes_any_text() -> None:
    """NULs and endless words are no reason to lose a row."""
    write_entry(
        Attempt(SYSTEM_ACTOR, "x.try", subject="s" * 999, reason="\0r" * 999, detail="\0"), "succeeded", NOW
    )
    assert len(AuditEntry.objects.get().subject) == 255


def test_recorded_ids_are_those_of_the_block() -> None:
    """Rows outside the block are not included."""
    write_entry(Attempt(SYSTEM_ACTOR, "x.before"), "succeeded", NOW)
    with collect_audit_entry_ids() as recorded_ids:
        row = write_entry(Attempt(SYSTEM_ACTOR, "x.in"), "succeeded", NOW)
    write_entry(Attempt(SYSTEM_ACTOR, "x.after"), "succeeded", NOW)
    assert recorded_ids == [row.pk]


def test_shell_names_command_and_person(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container there may be no name: then the number."""
    monkeypatch.setenv("LOGNAME", "olga")
    assert shell_actor_of("user").identity.name == "manage.py user, by olga"
