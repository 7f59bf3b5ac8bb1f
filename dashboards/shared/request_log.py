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
from fleet.vocabulary.actions import ActionName, AuditOutcome, RouteKind, of_request

logger = logging.getLogger(__name__)

#: Methods that change nothing.
READS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
#: Pages on which somebody says who they are: no change of anything.
_WHO = {name for name, access in ALLAUTH.items() if access == PUBLIC} | {
    "account_reauthenticate",
    "mfa_reauthenticate",
    "mfa_reauthenticate_webauthn",
}
#: What a page may be sent without an attempt at anything, by field: it shows what would be.
_LOOKS = ("show", "rebase", "preview")
_TRIES = frozenset({"try"})
_DO = re.compile("[a-z-]{1,24}")
_SAID_AT_MOST = 500


def see(request: HttpRequest, answer: HttpResponseBase, written: int) -> None:
    """Write the row of a request that wrote `written` rows itself, if one is missing. Reads and writes the database."""
    if written or request.method in READS:
        return
    name = request.resolver_match.url_name if request.resolver_match else None
    ended = _ended(request, answer)
    if ended is None or name in _WHO:
        return
    try:
        token: ApiToken | None = getattr(request, "refloat_token", None)
        user = token.user if token is not None else request.user
        if not isinstance(user, User):
            return  # nobody knows who it was, and anybody could fill the log
        outcome, detail = ended
        attempt = Attempt(
            request_actor.by(request, user, token).actor,
            _action(request, name or ""),
            _cluster(request),
            request.path,
            detail=detail,
            change_id=_change(request),
            request_id=request_actor.request_id_of(request),
        )
        record(attempt, outcome, timezone.now())
    except DatabaseError:
        # The answer stands; what could not be written here stands in the log of the process.
        logger.exception("no row in the log for %s %s", request.method, request.path)


def _ended(request: HttpRequest, answer: HttpResponseBase) -> tuple[AuditOutcome, str] | None:
    """Outcome and detail; None for what was no attempt."""
    status, reason = answer.status_code, refusals.reason(request)[:_SAID_AT_MOST]
    if status in (401, 404, 405):
        return None
    if status >= 400:
        return AuditOutcome.FAILED if status >= 500 else AuditOutcome.REFUSED, reason or f"HTTP {status}"
    if reason:
        return AuditOutcome.REFUSED, reason
    if status >= 300 or request.path.startswith("/api/"):
        return AuditOutcome.DONE, ""
    if request.POST.get("do") in _TRIES or any(name in request.POST for name in _LOOKS):
        return None
    return AuditOutcome.REFUSED, "the form was shown again"


def _action(request: HttpRequest, name: str) -> ActionName:
    """Where and what: `page.incident.acknowledge`, `api.confirm`."""
    kind = RouteKind.API if request.path.startswith("/api/") else RouteKind.PAGE
    do = request.POST.get("do", "") if kind is RouteKind.PAGE else ""
    what = name.rpartition(":")[2].removeprefix("cluster_").removesuffix("-of-cluster")
    return of_request(kind, (what, do if _DO.fullmatch(do) else ""))


def _change(request: HttpRequest) -> int | None:
    kwargs = request.resolver_match.kwargs if request.resolver_match else {}
    return row_id(str(kwargs.get("change_id", ""))) or None


def _cluster(request: HttpRequest) -> str:
    kwargs = request.resolver_match.kwargs if request.resolver_match else {}
    return str(kwargs.get("cluster", DEFAULT_CLUSTER)).replace("\0", "")[:64]
