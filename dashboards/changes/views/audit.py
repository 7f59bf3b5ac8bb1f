"""The audit log page, and its CSV and JSON exports. docs/reference/changes.md, "Audit log"."""

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
from dashboards.changes.audit_query import ACTION_GROUPS, PAGE_SIZE, TIME_RANGES, AuditQuery
from dashboards.changes.audit_sentences import describe_entry
from dashboards.changes.audit_text import find_differences
from dashboards.changes.change_rows import AUDIT_COLUMNS
from dashboards.shared.pages import signed_in_user_of
from dashboards.shared.permissions import requires
from fleet.models.access import Permission, has_cluster_limit
from fleet.models.changes import AuditEntry
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.vocabulary.actions import AuditOutcome
from fleet.vocabulary.changes import ActorKind

#: Largest number of entries in an export, newest first.
_MAX_EXPORT_ROWS = 50_000


@requires(Permission.VIEW_AUDIT)
@require_http_methods(["GET", "HEAD"])
@never_cache
def audit(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show the audit log. Template `dashboards/audit.html`: `page`, `rows`, `query`, `outcomes`, `kinds`, `groups`,
    `time_ranges`, `older_url`, `export_query`.
    """
    query = AuditQuery.from_parameters(request.GET.dict())
    rows = list(_find_entries(request, query, cluster)[: PAGE_SIZE + 1])
    parameters = request.GET.copy()
    parameters.pop("before", None)
    export = parameters.urlencode()
    if len(rows) > PAGE_SIZE:
        parameters["before"] = str(rows[PAGE_SIZE - 1].pk)
    context = {
        "page": "audit",
        "entries": rows[:PAGE_SIZE],
        "rows": [
            {
                "entry": entry,
                "sentence": describe_entry(
                    entry.action,
                    entry.subject,
                    entry.outcome,
                    entry.change_id,
                    entry.after if entry.after is not None else entry.before,
                ),
                "differences": find_differences(entry.before, entry.after),
            }
            for entry in rows[:PAGE_SIZE]
        ],
        "query": query,
        "outcomes": tuple(AuditOutcome),
        "kinds": tuple(ActorKind),
        "groups": ACTION_GROUPS,
        "time_ranges": TIME_RANGES,
        "older_url": f"?{parameters.urlencode()}" if len(rows) > PAGE_SIZE else "",
        "export_query": f"?{export}" if export else "",
    }
    return render(request, "dashboards/audit.html", context)


@requires(Permission.VIEW_AUDIT)
@require_http_methods(["GET", "HEAD"])
@never_cache
def audit_csv(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Download the filtered audit log as CSV, times in ISO 8601, before and after as JSON."""
    return _create_file_response(
        _create_csv(request, AuditQuery.from_parameters(request.GET.dict()), cluster),
        "text/csv; charset=utf-8",
        f"{cluster}-audit.csv",
    )


@requires(Permission.VIEW_AUDIT)
@require_http_methods(["GET", "HEAD"])
@never_cache
def audit_json(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Download the filtered audit log as JSON Lines, one entry per line."""
    query = AuditQuery.from_parameters(request.GET.dict())
    audit_rows = (
        change_rows.audit_item_of(entry)
        for entry in _find_entries(request, query, cluster)[:_MAX_EXPORT_ROWS]
    )
    text = "".join(json.dumps(audit_row, separators=(",", ":")) + "\n" for audit_row in audit_rows)
    return _create_file_response(text, "application/x-ndjson", f"{cluster}-audit.jsonl")


def _create_csv(request: HttpRequest, query: AuditQuery, cluster: str) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(AUDIT_COLUMNS)
    entries = _find_entries(request, query, cluster)[:_MAX_EXPORT_ROWS]
    writer.writerows(change_rows.audit_cells_of(entry, json.dumps) for entry in entries)
    return buffer.getvalue()


def _find_entries(request: HttpRequest, query: AuditQuery, cluster: str) -> QuerySet[AuditEntry]:
    return query.find_entries(
        cluster, timezone.now(), is_limited_user=has_cluster_limit(signed_in_user_of(request))
    )


def _create_file_response(text: str, content_type: str, file_name: str) -> HttpResponseBase:
    return HttpResponse(
        text,
        content_type=content_type,
        headers={"Content-Disposition": f'attachment; filename="{file_name}"'},
    )
