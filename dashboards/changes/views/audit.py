"""The log of all that anybody did: filtered, page by page, and as CSV or JSON. docs/changes.md, "The log"."""

from __future__ import annotations

import csv
import io
import json

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from dashboards.changes import change_rows
from dashboards.changes.audit_query import PAGE, SINCE, AuditQuery
from dashboards.changes.audit_words import action_words, differences
from dashboards.changes.change_rows import AUDIT_COLUMNS
from dashboards.shared.pages import signed_in
from dashboards.shared.permissions import requires
from fleet.models.access import Permission, is_limited
from fleet.models.changes import AuditEntry
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.vocabulary.actions import AuditOutcome
from fleet.vocabulary.changes import ActorKind

#: The newest so many go into a file; older ones by a filter.
_IN_A_FILE = 50_000


@requires(Permission.VIEW_AUDIT)
@require_http_methods(["GET", "HEAD"])
@never_cache
def audit(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show it. Template `dashboards/audit.html`: `page`, `rows`, `query`, `outcomes`, `kinds`, `since`, `older`,
    `export`."""
    query = AuditQuery.of(request.GET.dict())
    rows = list(_rows(request, query, cluster)[: PAGE + 1])
    asked = request.GET.copy()
    asked.pop("before", None)
    export = asked.urlencode()
    if len(rows) > PAGE:
        asked["before"] = str(rows[PAGE - 1].pk)
    context = {
        "page": "audit",
        "entries": rows[:PAGE],
        "rows": [
            {
                "entry": entry,
                "words": action_words(entry.action),
                "differences": differences(entry.before, entry.after),
            }
            for entry in rows[:PAGE]
        ],
        "query": query,
        "outcomes": tuple(AuditOutcome),
        "kinds": tuple(ActorKind),
        "since": SINCE,
        "older": f"?{asked.urlencode()}" if len(rows) > PAGE else "",
        "export": f"?{export}" if export else "",
    }
    return render(request, "dashboards/audit.html", context)


@requires(Permission.VIEW_AUDIT)
@require_http_methods(["GET", "HEAD"])
@never_cache
def audit_csv(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """The filtered log as CSV, times in ISO 8601, before and after as JSON."""
    return _file(
        _csv(request, AuditQuery.of(request.GET.dict()), cluster),
        "text/csv; charset=utf-8",
        f"{cluster}-audit.csv",
    )


@requires(Permission.VIEW_AUDIT)
@require_http_methods(["GET", "HEAD"])
@never_cache
def audit_json(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """The filtered log as JSON, a line an entry."""
    query = AuditQuery.of(request.GET.dict())
    items = (change_rows.audit_item(entry) for entry in _rows(request, query, cluster)[:_IN_A_FILE])
    text = "".join(json.dumps(item, separators=(",", ":")) + "\n" for item in items)
    return _file(text, "application/x-ndjson", f"{cluster}-audit.jsonl")


def _csv(request: HttpRequest, query: AuditQuery, cluster: str) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(AUDIT_COLUMNS)
    entries = _rows(request, query, cluster)[:_IN_A_FILE]
    writer.writerows(change_rows.audit_cells(entry, json.dumps) for entry in entries)
    return buffer.getvalue()


def _rows(request: HttpRequest, query: AuditQuery, cluster: str) -> QuerySet[AuditEntry]:
    return query.rows(cluster, timezone.now(), limited=is_limited(signed_in(request)))


def _file(text: str, kind: str, name: str) -> HttpResponseBase:
    return HttpResponse(
        text, content_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )
