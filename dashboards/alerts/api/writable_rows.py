"""Rows that requests name by number, and what a caller must prove to change them."""

from __future__ import annotations

from typing import TypeVar

from django.db.models import QuerySet
from django.http import HttpRequest
from ninja.errors import HttpError

from dashboards.shared.api.change_responses import caller_of, require_cluster, require_reauthentication
from dashboards.shared.pages import sentence_of
from dashboards.shared.permissions import find_write_refusal
from fleet.alerts.matchers import MatcherError, matches_everything, parse_matchers
from fleet.models.access import Permission
from fleet.models.alerting import OwnedModel, filter_applicable_to

_Row = TypeVar("_Row", bound=OwnedModel)


def row_id_or_zero(number: int) -> int:
    """Return a number that fits a database key; 0 for any other."""
    return number if 0 < number < 1 << 62 else 0


def require_writable_row(
    rows: QuerySet[_Row],
    request: HttpRequest,
    cluster: str,
    number: int,
    noun: str,
    permission: Permission = Permission.ACT_ON_FLEET,
) -> _Row:
    """Return a row that the caller may change. `noun`: `silence`. Raises HttpError 404 or 403."""
    row = require_row(rows, cluster, number, noun)
    require_owner(request, permission, row.cluster)
    return row


def require_row(rows: QuerySet[_Row], cluster: str, number: int, noun: str) -> _Row:
    """Return a row that applies to a cluster. `noun`: `silence`. Raises HttpError 404."""
    numbered_rows = rows.filter(pk=row_id_or_zero(number))
    row = filter_applicable_to(numbered_rows, require_cluster(cluster)).first()
    if row is None:
        raise HttpError(404, f"{noun.capitalize()} {number} was not found in cluster {cluster}.")
    return row


def require_owner(request: HttpRequest, permission: Permission, owner: str) -> None:
    """Require that the caller may change objects of a cluster. Raises HttpError 403.

    `owner` empty: objects of the whole installation.
    """
    if sentence := find_write_refusal(caller_of(request), permission, owner):
        raise HttpError(403, sentence)


def require_proof_to_silence_everything(request: HttpRequest, matchers: str) -> None:
    """Require a recent reauthentication of a session to silence everything.

    Raises ReauthenticationRequired, and HttpError 400 for matchers that are not valid.
    """
    try:
        parsed_matchers = parse_matchers(matchers)
    except MatcherError as error:
        raise HttpError(400, sentence_of(error)) from error
    if matches_everything(parsed_matchers):
        require_reauthentication(request)
