"""The audit log, the page of an entry, and the exports as CSV and JSON. docs/reference/changes.md, "Audit log"."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable
from typing import Any

from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from dashboards.changes import change_rows
from dashboards.changes.audit_query import (
    ACTION_GROUPS,
    PAGE_SIZE,
    TIME_RANGES,
    AuditQuery,
    describe_missing_entry,
    find_entry,
)
from dashboards.changes.audit_sentences import describe_entry
from dashboards.changes.audit_text import find_differences
from dashboards.changes.change_rows import AUDIT_COLUMNS
from dashboards.shared.pages import signed_in_user_of
from dashboards.shared.permissions import requires
from fleet.models.access import Permission, has_cluster_limit
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.vocabulary.actions import AuditOutcome
from fleet.vocabulary.changes import ActorKind, ChangeState

#: Largest number of entries in an export, newest first.
_MAX_EXPORT_ROWS = 50_000


@requires(Permission.VIEW_AUDIT)
@require_http_methods(["GET", "HEAD"])
@never_cache
def audit(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show the audit log; 400 with the form as it was typed if a time is invalid.

    Template `dashboards/audit.html`: `page`, `rows`, `query`, `outcomes`, `kinds`, `groups`, `time_ranges` as (label,
    query string, whether it is selected), `older_url`, `export_query`.
    """
    query = _read_query(request)
    entries = list(_find_entries(request, query, cluster)[: PAGE_SIZE + 1])
    parameters = request.GET.copy()
    parameters.pop("before", None)
    export = parameters.urlencode()
    if len(entries) > PAGE_SIZE:
        parameters["before"] = str(entries[PAGE_SIZE - 1].pk)
    context = {
        "page": "audit",
        "entries": entries[:PAGE_SIZE],
        "rows": _rows_of(entries[:PAGE_SIZE]),
        "query": query,
        "outcomes": tuple(AuditOutcome),
        "kinds": tuple(ActorKind),
        "groups": ACTION_GROUPS,
        "time_ranges": [
            (label, _time_range_query(request, days), days == query.days and not (query.since or query.until))
            for days, label in TIME_RANGES.items()
        ],
        "older_url": f"?{parameters.urlencode()}" if len(entries) > PAGE_SIZE else "",
        "export_query": f"?{export}" if export else "",
    }
    return render(request, "dashboards/audit.html", context, status=400 if query.problems else 200)


@requires(Permission.VIEW_AUDIT)
@require_http_methods(["GET", "HEAD"])
@never_cache
def audit_entry(request: HttpRequest, entry_id: int, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show one entry, at an address that stays.

    Template `dashboards/audit_entry.html`: `page`, those of `_rows_of`, `actor_kind` (ActorKind), `change` (None: there
    is none, or it was deleted), `documents` as (label, JSON text).
    """
    entry = find_entry(cluster, entry_id, is_limited_user=has_cluster_limit(signed_in_user_of(request)))
    if entry is None:
        raise Http404(describe_missing_entry(cluster, entry_id))
    context = _rows_of([entry])[0] | {
        "page": "audit",
        "actor_kind": ActorKind(entry.actor_kind),
        "change": None
        if entry.change_id is None
        else Change.objects.filter(pk=entry.change_id, cluster=cluster).defer("plan").first(),
        "documents": [
            (label, json.dumps(document, indent=2, ensure_ascii=False))
            for label, document in (("Before", entry.before), ("After", entry.after))
            if document is not None
        ],
    }
    return render(request, "dashboards/audit_entry.html", context)


@requires(Permission.VIEW_AUDIT)
@require_http_methods(["GET", "HEAD"])
@never_cache
def audit_csv(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Download the filtered audit log as CSV, times in ISO 8601, before and after as JSON."""
    return _export(request, cluster, _create_csv, "text/csv; charset=utf-8", "csv")


@requires(Permission.VIEW_AUDIT)
@require_http_methods(["GET", "HEAD"])
@never_cache
def audit_json(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Download the filtered audit log as JSON Lines, one entry per line."""
    return _export(request, cluster, _create_json_lines, "application/x-ndjson", "jsonl")


def _export(
    request: HttpRequest,
    cluster: str,
    create_text: Callable[[QuerySet[AuditEntry]], str],
    content_type: str,
    extension: str,
) -> HttpResponseBase:
    """Return a file with the entries that match; 400 with a sentence if a time is invalid."""
    query = _read_query(request)
    if query.problems:
        text = "".join(f"{name}: {problem}\n" for name, problem in query.problems.items())
        return HttpResponse(text, status=400, content_type="text/plain; charset=utf-8")
    return HttpResponse(
        create_text(_find_entries(request, query, cluster)[:_MAX_EXPORT_ROWS]),
        content_type=content_type,
        headers={"Content-Disposition": f'attachment; filename="{cluster}-audit.{extension}"'},
    )


def _create_csv(entries: QuerySet[AuditEntry]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(AUDIT_COLUMNS)
    writer.writerows(change_rows.audit_cells_of(entry, json.dumps) for entry in entries)
    return buffer.getvalue()


def _create_json_lines(entries: QuerySet[AuditEntry]) -> str:
    audit_rows = (change_rows.audit_item_of(entry) for entry in entries)
    return "".join(json.dumps(audit_row, separators=(",", ":")) + "\n" for audit_row in audit_rows)


def _rows_of(entries: Iterable[AuditEntry]) -> list[dict[str, Any]]:
    """Return `entry`, `sentence` (AuditSentence) and `differences` (ValueDifference) of each entry."""
    rows = list(entries)
    cancelled_ids = {
        entry.change_id
        for entry in rows
        if entry.change_id is not None and entry.action.endswith(f".{ChangeState.CANCELLED.value}")
    }
    started_ids = (
        set(Change.objects.filter(pk__in=cancelled_ids).exclude(started_at=None).values_list("pk", flat=True))
        if cancelled_ids
        else set()
    )
    return [_row_of(entry, has_started=entry.change_id in started_ids) for entry in rows]


def _row_of(entry: AuditEntry, *, has_started: bool) -> dict[str, Any]:
    document = entry.after if entry.after is not None else entry.before
    return {
        "entry": entry,
        "sentence": describe_entry(
            entry.action, entry.subject, entry.outcome, entry.change_id, document, has_started=has_started
        ),
        "differences": find_differences(entry.before, entry.after),
    }


def _read_query(request: HttpRequest) -> AuditQuery:
    """Return the filter. A start or an end that was typed replaces a range that ends now."""
    parameters = request.GET.dict()
    if parameters.get("since", "").strip() or parameters.get("until", "").strip():
        parameters["days"] = ""
    return AuditQuery.from_parameters(parameters)


def _time_range_query(request: HttpRequest, days: str) -> str:
    """Return the query string of the same filter with another time range, on its first page."""
    parameters = request.GET.copy()
    for name in ("since", "until", "before", "days"):
        parameters.pop(name, None)
    if days:
        parameters["days"] = days
    return parameters.urlencode()


def _find_entries(request: HttpRequest, query: AuditQuery, cluster: str) -> QuerySet[AuditEntry]:
    return query.find_entries(
        cluster, timezone.now(), is_limited_user=has_cluster_limit(signed_in_user_of(request))
    )
