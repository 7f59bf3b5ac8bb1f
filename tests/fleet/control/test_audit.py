from __future__ import annotations

import pytest

from fleet.control import LeaseHeld, Refused
from fleet.control.audit import Attempt, attempted, record
from fleet.domain.changes import SYSTEM
from fleet.models.changes import AuditEntry
from tests.fleet.control.conftest import NOW

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(None, "done"), (Refused("no"), "refused"), (LeaseHeld("no"), "failed"), (KeyError("no"), "failed")],
)
def test_every_attempt_is_one_row(error: Exception | None, outcome: str) -> None:
    """However it ends; the error goes on."""
    try:
        with attempted(Attempt(SYSTEM, "x.try"), lambda: NOW):
            if error is not None:
                raise error
    except (Refused, LeaseHeld, KeyError) as caught:
        assert caught is error  # noqa: PT017 - which one is the parameter
    entry = AuditEntry.objects.get()
    assert (entry.outcome, "no" in entry.detail, entry.at) == (outcome, error is not None, NOW)


def test_record_takes_any_text() -> None:
    """NULs and endless words are no reason to lose a row."""
    record(Attempt(SYSTEM, "x.try", subject="s" * 999, reason="\0r" * 999, detail="\0"), "done", NOW)
    assert len(AuditEntry.objects.get().subject) == 255
