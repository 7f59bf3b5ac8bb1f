"""What machines ask of the console itself: is it up, is it ready."""

from __future__ import annotations

from django.contrib.sessions.models import Session
from django.core.cache import cache
from django.db import Error
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from dashboards.shared import record_reader
from dashboards.shared.permissions import public
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.lock_timeout import brief
from fleet.monitoring.state import StateUnavailable

#: The row that `readyz` writes: too short for the key of a session, and expired, so it stands for nobody.
_PROBE_ROW = "readyz"
#: How long the write may wait for another writer, and how long its outcome is believed, seconds: anybody may ask.
_PROBE_WAIT, _PROBE_KEEPS = 2.0, 1


@public
@require_safe
def healthz(request: HttpRequest) -> HttpResponseBase:
    """Say that the process answers."""
    return JsonResponse({"status": "ok"})


@public
@require_safe
def readyz(request: HttpRequest) -> HttpResponseBase:
    """Say whether the database can be written and the record be read; 503 names what cannot, without details."""
    broken = [
        name for name, works in (("database", _database_works()), ("record", _record_works())) if not works
    ]
    return JsonResponse(
        {"status": "not ready" if broken else "ok", "broken": broken}, status=503 if broken else 200
    )


def _database_works() -> bool:
    """Whether a row can be written: a full disk, or a lock that lasts, does not show in reading."""
    works: bool | None = cache.get(_PROBE_ROW)
    if works is None:
        works = _database_takes_a_row()
        cache.set(_PROBE_ROW, works, _PROBE_KEEPS)
    return works


def _database_takes_a_row() -> bool:
    row = Session(session_key=_PROBE_ROW, session_data="", expire_date=timezone.now())
    try:
        with brief(_PROBE_WAIT):
            Session.objects.bulk_create(
                [row], update_conflicts=True, unique_fields=["session_key"], update_fields=["expire_date"]
            )
    except Error:
        return False
    return True


def _record_works() -> bool:
    try:
        record_reader.reader().header(DEFAULT_CLUSTER, record_reader.current_time())
    except StateUnavailable:
        return False
    return True
