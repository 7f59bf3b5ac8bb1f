"""What machines ask of the console itself: is it up, is it ready."""

from __future__ import annotations

from django.db import connection
from django.db.utils import DatabaseError
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.views.decorators.http import require_safe

from dashboards import reading
from dashboards.permissions import public
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.state import StateUnavailable


@public
@require_safe
def healthz(request: HttpRequest) -> HttpResponseBase:
    """Say that the process answers."""
    return JsonResponse({"status": "ok"})


@public
@require_safe
def readyz(request: HttpRequest) -> HttpResponseBase:
    """Say whether the database and the record can be reached; 503 names what cannot, without details."""
    broken = [
        name for name, works in (("database", _database_works()), ("record", _record_works())) if not works
    ]
    return JsonResponse(
        {"status": "not ready" if broken else "ok", "broken": broken}, status=503 if broken else 200
    )


def _database_works() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return False
    return True


def _record_works() -> bool:
    try:
        reading.reader().header(DEFAULT_CLUSTER, reading.current_time())
    except StateUnavailable:
        return False
    return True
