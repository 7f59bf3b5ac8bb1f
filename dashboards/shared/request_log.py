"""One entry in the audit log for every attempt to change something. docs/reference/changes.md, "Audit log".

Actions write detailed entries themselves. This module adds the missing ones: for requests that are refused (no
permission, an invalid form, an outdated version), and for actions that write no entry.
"""

from __future__ import annotations

import logging
import re

from django.contrib.auth.models import User
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponseBase, QueryDict
from django.utils import timezone

from dashboards.shared import refusals, request_actor
from dashboards.shared.api.per_cluster import operation_name_of
from dashboards.shared.permissions import ALLAUTH_PAGES, PUBLIC
from dashboards.shared.row_ids import parse_row_id
from fleet.audit import Attempt, write_entry
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.tokens import ApiToken
from fleet.vocabulary.actions import ActionName, AuditOutcome, RequestOrigin, action_of_request

logger = logging.getLogger(__name__)

#: Methods that change nothing.
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
#: Pages on which users authenticate: these change nothing.
_AUTHENTICATION_PAGES = {name for name, access in ALLAUTH_PAGES.items() if access == PUBLIC} | {
    "account_reauthenticate",
    "account_request_reauthentication_code",
    "account_confirm_reauthentication_code",
    "mfa_reauthenticate",
    "mfa_reauthenticate_webauthn",
}
#: Views of forecasts: these change nothing, whatever the method.
_FORECAST_VIEWS = frozenset({"forecast_reconnect_campaign", "reconnect-forecast"})
#: Form fields of previews: such a request is no attempt to change something.
_PREVIEW_FIELDS = ("show", "rebase", "preview")
_PREVIEW_ACTIONS = frozenset({"try"})
_FORM_ACTION_PATTERN = re.compile("[a-z-]{1,24}")
_MAX_REASON_LENGTH = 500


def record_attempt(request: HttpRequest, response: HttpResponseBase, audit_entry_count: int) -> None:
    """Write an entry for a request if it wrote none itself (`audit_entry_count` is 0). Uses the database."""
    if audit_entry_count or request.method in SAFE_METHODS:
        return
    url_name = request.resolver_match.url_name if request.resolver_match else None
    outcome_and_detail = _outcome_of(request, response)
    if outcome_and_detail is None or url_name in _AUTHENTICATION_PAGES:
        return
    if operation_name_of(url_name or "", request.method or "") in _FORECAST_VIEWS:
        return
    try:
        token: ApiToken | None = getattr(request, "refloat_token", None)
        user = token.user if token is not None else request.user
        if not isinstance(user, User):
            return  # unknown user: anybody could fill the log
        outcome, detail = outcome_and_detail
        attempt = Attempt(
            request_actor.actor_of(request, user, token).identity,
            _action_of(request, url_name or ""),
            _cluster_of(request),
            request.path,
            detail=detail,
            change_id=_change_id_of(request),
            request_id=request_actor.request_id_of(request),
        )
        write_entry(attempt, outcome, timezone.now())
    except DatabaseError:
        # The response is sent anyway; the process log has what could not be written to the audit log.
        logger.exception("audit entry for %s %s could not be written", request.method, request.path)


def _outcome_of(request: HttpRequest, response: HttpResponseBase) -> tuple[AuditOutcome, str] | None:
    """Return outcome and detail; None if the request was no attempt to change something."""
    status, reason = response.status_code, refusals.reason_of(request)[:_MAX_REASON_LENGTH]
    if status in (401, 404, 405):
        return None
    if status >= 400:
        return AuditOutcome.FAILED if status >= 500 else AuditOutcome.REFUSED, reason or f"HTTP {status}"
    if reason:
        return AuditOutcome.REFUSED, reason
    if getattr(request, "refloat_is_dry_run", False):
        return None
    if status >= 300 or request.path.startswith("/api/"):
        return AuditOutcome.SUCCEEDED, ""
    if refusals.is_incomplete(request):
        return None
    if request.POST.get("do") in _PREVIEW_ACTIONS or any(name in request.POST for name in _PREVIEW_FIELDS):
        return None
    return AuditOutcome.REFUSED, "the form had invalid values"


def _action_of(request: HttpRequest, url_name: str) -> ActionName:
    """Return the action of a request: `page.incident.acknowledge`, `api.confirm_change`."""
    kind = RequestOrigin.API if request.path.startswith("/api/") else RequestOrigin.PAGE
    form_action = form_action_of(request.POST) if kind is RequestOrigin.PAGE else ""
    view_name = operation_name_of(url_name, request.method or "")
    return action_of_request(kind, (view_name, form_action))


def form_action_of(fields: QueryDict) -> str:
    """Return what a form of a page does: its field `do`; empty without a valid one."""
    form_action = fields.get("do", "")
    return form_action if _FORM_ACTION_PATTERN.fullmatch(form_action) else ""


def _change_id_of(request: HttpRequest) -> int | None:
    kwargs = request.resolver_match.kwargs if request.resolver_match else {}
    return parse_row_id(str(kwargs.get("change_id", ""))) or None


def _cluster_of(request: HttpRequest) -> str:
    kwargs = request.resolver_match.kwargs if request.resolver_match else {}
    return str(kwargs.get("cluster", DEFAULT_CLUSTER)).replace("\0", "")[:64]
