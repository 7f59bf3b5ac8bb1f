from __future__ import annotations

import time

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection, transaction

from fleet.models.lock_timeout import limit_lock_wait
from tests.fakes.locked import database_locked, database_read_only


def _lock_timeout() -> str:
    """Return how long a write waits for other writers, in the database's own words."""
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout" if connection.vendor == "sqlite" else "SHOW lock_timeout")
        return str(cursor.fetchone()[0])


@pytest.mark.django_db(transaction=True)
def test_write_fails_while_another_writer_has_the_lock() -> None:
    """After the time it was given, not after the 20 s of the settings; later writes wait as long as before."""
    before = _lock_timeout()
    started_at = time.monotonic()
    with database_locked(), pytest.raises(OperationalError, match="lock"), limit_lock_wait(0.05):
        User.objects.create_user("late")
    assert time.monotonic() - started_at < 15
    assert _lock_timeout() == before
    with limit_lock_wait(0.05):
        User.objects.create_user("early")
    assert User.objects.get().username == "early"


@pytest.mark.django_db
def test_refused_write_keeps_the_outer_transaction() -> None:
    """Writes before and after the refused one are kept."""
    with transaction.atomic():
        User.objects.create_user("before")
        with pytest.raises(OperationalError), database_read_only(), limit_lock_wait(0.05):
            User.objects.create_user("refused")
        User.objects.create_user("afterwards")
    assert {user.username for user in User.objects.all()} == {"before", "afterwards"}
