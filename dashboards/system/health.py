"""Liveness and readiness of the console: `/healthz` and `/readyz`."""

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
from fleet.models.lock_timeout import limit_lock_wait
from fleet.monitoring.state import StateUnavailableError

#: Key of the row that `readyz` writes: too short for a session, and expired, so it belongs to no user.
_PROBE_KEY = "readyz"
#: Seconds that the write may wait for another writer, and seconds that its result is cached: `/readyz` is public.
_PROBE_LOCK_TIMEOUT, _PROBE_CACHE_SECONDS = 2.0, 1


@public
@require_safe
def healthz(request: HttpRequest) -> HttpResponseBase:
    """Return 200 while the process is running."""
    return JsonResponse({"status": "ok"})


@public
@require_safe
def readyz(request: HttpRequest) -> HttpResponseBase:
    """Return 200 if the database can be written and the record read; otherwise 503 with what is broken."""
    failed_checks = [
        name
        for name, is_working in (("database", _is_database_writable()), ("record", _is_record_readable()))
        if not is_working
    ]
    return JsonResponse(
        {"status": "not ready" if failed_checks else "ok", "failed_checks": failed_checks},
        status=503 if failed_checks else 200,
    )


def _is_database_writable() -> bool:
    """Return whether a row can be written: reading works even with a full disk or a held lock."""
    is_writable: bool | None = cache.get(_PROBE_KEY)
    if is_writable is None:
        is_writable = _can_write_row()
        cache.set(_PROBE_KEY, is_writable, _PROBE_CACHE_SECONDS)
    return is_writable


def _can_write_row() -> bool:
    row = Session(session_key=_PROBE_KEY, session_data="", expire_date=timezone.now())
    try:
        with limit_lock_wait(_PROBE_LOCK_TIMEOUT):
            Session.objects.bulk_create(
                [row], update_conflicts=True, unique_fields=["session_key"], update_fields=["expire_date"]
            )
    except Error:
        return False
    return True


def _is_record_readable() -> bool:
    try:
        record_reader.reader().stream_header(DEFAULT_CLUSTER, record_reader.current_time())
    except StateUnavailableError:
        return False
    return True
