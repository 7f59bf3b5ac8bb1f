"""Template tag: the action for which a user must prove their identity again, and the way back without it.

django-allauth keeps the request in the session, to repeat it after the proof. docs/reference/access.md,
"Reauthentication".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from allauth.account.internal.flows.reauthentication import STATE_SESSION_KEY
from django import template
from django.db import DatabaseError
from django.http import HttpRequest, QueryDict
from django.urls import Resolver404, ResolverMatch, resolve
from django.utils.http import url_has_allowed_host_and_scheme

from dashboards.changes.audit_text import describe_page_action
from dashboards.shared.request_log import form_action_of
from fleet.models.changes import Change
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.inventory import Instance

register = template.Library()

#: Pages that require proof before they are shown, by the name of their URL.
_PAGE_TEXTS = {
    "new-channel": "create a notification channel",
    "channel": "change a notification channel",
    "alerting-import": "import an alerting configuration",
    "mfa_index": "change two-factor authentication",
    "mfa_activate_totp": "add an authenticator app",
    "mfa_deactivate_totp": "remove the authenticator app",
    "mfa_add_webauthn": "add a security key",
    "mfa_view_recovery_codes": "see the recovery codes",
}


@dataclass(frozen=True, slots=True)
class SuspendedAction:
    """What continues after the proof, and where *Cancel* leads."""

    #: `confirm change: Move 2 agents off proxy-1`; empty if it is not known.
    text: str
    #: Path of the page from which the action was started.
    back_path: str


@register.simple_tag(takes_context=True)
def suspended_action(context: template.Context) -> SuspendedAction:
    """Return the action that the request of the page interrupts."""
    return find_suspended_action(context["request"])


def find_suspended_action(request: HttpRequest) -> SuspendedAction:
    """Return the action that leads to the path in `next`; with an unsafe or unknown path, none."""
    next_path = request.POST.get("next") or request.GET.get("next", "")
    if not _is_own(next_path, request):
        return SuspendedAction("", "/")
    path = urlsplit(next_path).path
    try:
        match = resolve(path)
    except Resolver404:
        return SuspendedAction("", "/")
    stored_request = _read_stored_request(request, path)
    url_name = (match.url_name or "").removesuffix("-of-cluster")
    if stored_request is None:
        return SuspendedAction(_PAGE_TEXTS.get(url_name, ""), _find_back_path(request.META, request, "/"))
    action = form_action_of(QueryDict(stored_request["POST"]))
    text = " ".join(filter(None, (describe_page_action(url_name, action), _describe_object(match))))
    return SuspendedAction(text, _find_back_path(stored_request["META"], request, path))


def _read_stored_request(request: HttpRequest, path: str) -> Mapping[str, Any] | None:
    """Return the form that allauth repeats; None when it only leads to the page at `path`."""
    state = request.session.get(STATE_SESSION_KEY) or {}
    stored_request: dict[str, Any] = json.loads(state.get("request", "{}"))
    return stored_request if stored_request.get("path") == path else None


def _find_back_path(headers: Mapping[str, Any], request: HttpRequest, default_path: str) -> str:
    """Return the page that sent a request, if it is one of Refloat and did not ask for proof itself."""
    referrer = str(headers.get("HTTP_REFERER", ""))
    if not referrer or not _is_own(referrer, request):
        return default_path
    parts = urlsplit(referrer)
    is_page = parts.path != request.path
    return (f"{parts.path}?{parts.query}" if parts.query else parts.path) if is_page else default_path


def _is_own(url: str, request: HttpRequest) -> bool:
    return bool(url) and url_has_allowed_host_and_scheme(
        url, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )


def _describe_object(match: ResolverMatch) -> str:
    """Return the change or the instance that a path is about; empty for others, or without the database."""
    cluster = match.kwargs.get("cluster", DEFAULT_CLUSTER)
    try:
        if change_id := match.kwargs.get("change_id"):
            title = (
                Change.objects.filter(cluster=cluster, pk=change_id).values_list("title", flat=True).first()
            )
            return "" if title is None else f"{change_id}: {title}"
        if instance_id := match.kwargs.get("instance_id"):
            rows = Instance.objects.filter(cluster=cluster, instance_id=instance_id)
            return str(rows.values_list("name", flat=True).first() or "")
    except DatabaseError:
        return ""
    return ""
