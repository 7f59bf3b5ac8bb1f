"""One row in the log for every attempt to change something, however it ended. docs/changes.md, "The log".

What an action does itself says more, and is written by it; here is seen that there is a row at all: for what is refused
without permission, by a form or by a version that is too old, and for what is done without words of its own.
"""

from __future__ import annotations

import logging
import re

from django.contrib.auth.models import User
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone

from dashboards.shared import refusals, request_actor
from dashboards.shared.permissions import ALLAUTH, PUBLIC
from dashboards.shared.row_ids import row_id
from fleet.audit import Attempt, record
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.tokens import ApiToken
from fleet.vocabulary.actions import ActionName, AuditOutcome, RouteKind, action_of_request

logger = logging.getLogger(__name__)

#: Methods that change nothing.
READS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
#: Pages on which somebody says who they are: no change of anything.
_IDENTITY_PAGES = {name for name, access in ALLAUTH.items() if access == PUBLIC} | {
    "account_reauthenticate",
    "mfa_reauthenticate",
    "mfa_reauthenticate_webauthn",
}
#: What a page may be sent without an attempt at anything, by field: it shows what would be.
_PREVIEW_FIELDS = ("show", "rebase", "preview")
_PREVIEW_ACTIONS = frozenset({"try"})
_FORM_ACTION_PATTERN = re.compile("[a-z-]{1,24}")
_MAX_REASON_LENGTH = 500


def record_attempt(request: HttpRequest, response: HttpResponseBase, recorded_count: int) -> None:
    """Write the row of a request that wrote `written` rows itself, if one is missing. Reads and writes the database."""
    if recorded_count or request.method in READS:
        return
    name = request.resolver_match.url_name if request.resolver_match else None
    outcome_and_detail = _outcome_of(request, response)
    if outcome_and_detail is None or name in _IDENTITY_PAGES:
        return
    try:
        token: ApiToken | None = getattr(request, "refloat_token", None)
        user = token.user if token is not None else request.user
        if not isinstance(user, User):
            return  # nobody knows who it was, and anybody could fill the log
        outcome, detail = outcome_and_detail
        attempt = Attempt(
            request_actor.actor_of(request, user, token).identity,
            _action_of(request, name or ""),
            _cluster_of(request),
            request.path,
            detail=detail,
            change_id=_change_id_of(request),
            request_id=request_actor.request_id_of(request),
        )
        record(attempt, outcome, timezone.now())
    except DatabaseError:
        # The answer stands; what could not be written here stands in the log of the process.
        logger.exception("no row in the log for %s %s", request.method, request.path)


def _outcome_of(request: HttpRequest, response: HttpResponseBase) -> tuple[AuditOutcome, str] | None:
    """Outcome and detail; None for what was no attempt."""
    status, reason = response.status_code, refusals.reason_of(request)[:_MAX_REASON_LENGTH]
    if status in (401, 404, 405):
        return None
    if status >= 400:
        return AuditOutcome.FAILED if status >= 500 else AuditOutcome.REFUSED, reason or f"HTTP {status}"
    if reason:
        return AuditOutcome.REFUSED, reason
    if status >= 300 or request.path.startswith("/api/"):
        return AuditOutcome.DONE, ""
    if request.POST.get("do") in _PREVIEW_ACTIONS or any(name in request.POST for name in _PREVIEW_FIELDS):
        return None
    return AuditOutcome.REFUSED, "the form was shown again"


def _action_of(request: HttpRequest, name: str) -> ActionName:
    """Where and what: `page.incident.acknowledge`, `api.confirm`."""
    kind = RouteKind.API if request.path.startswith("/api/") else RouteKind.PAGE
    form_action = request.POST.get("do", "") if kind is RouteKind.PAGE else ""
    view_name = name.rpartition(":")[2].removeprefix("cluster_").removesuffix("-of-cluster")
    return action_of_request(kind, (view_name, form_action if _FORM_ACTION_PATTERN.fullmatch(form_action) else ""))


def _change_id_of(request: HttpRequest) -> int | None:
    kwargs = request.resolver_match.kwargs if request.resolver_match else {}
    return row_id(str(kwargs.get("change_id", ""))) or None


def _cluster_of(request: HttpRequest) -> str:
    kwargs = request.resolver_match.kwargs if request.resolver_match else {}
    return str(kwargs.get("cluster", DEFAULT_CLUSTER)).replace("\0", "")[:64]
