"""Template tag: the action for which a user must prove their identity again, and the way back without it.

django-allauth keeps the request in the session, to repeat it after the proof. docs/reference/access.md,
"Reauthentication".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django import template
from django.db import DatabaseError
from django.http import HttpRequest
from django.urls import Resolver404, ResolverMatch, resolve
from django.utils.http import url_has_allowed_host_and_scheme

from dashboards.changes.audit_text import describe_page_action
from dashboards.shared.recent_proof import find_suspended_form
from dashboards.shared.request_log import form_action_of
from fleet.models.changes import Change
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.inventory import Instance

register = template.Library()

#: Value of `do` of the form that confirms a change.
_CONFIRM_ACTION = "confirm"

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
    form = find_suspended_form(request, path)
    url_name = (match.url_name or "").removesuffix("-of-cluster")
    if form is None:
        return SuspendedAction(_PAGE_TEXTS.get(url_name, ""), _find_back_path(request.META, request, "/"))
    action = form_action_of(form.values)
    text = " ".join(filter(None, (describe_page_action(url_name, action), _describe_object(match, action))))
    return SuspendedAction(text, _find_back_path(form.headers, request, path))


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


def _describe_object(match: ResolverMatch, action: str) -> str:
    """Return the change or the instance that a path is about; empty for others, or without the database.

    A change that is confirmed is named in the words of its button, where its plan has them.
    """
    cluster = match.kwargs.get("cluster", DEFAULT_CLUSTER)
    try:
        if change_id := match.kwargs.get("change_id"):
            change = Change.objects.filter(cluster=cluster, pk=change_id).only("title", "plan").first()
            if change is None:
                return ""
            button_text = change.plan.get("action") if action == _CONFIRM_ACTION else ""
            return f"{change_id}: {button_text or change.title}"
        if instance_id := match.kwargs.get("instance_id"):
            rows = Instance.objects.filter(cluster=cluster, instance_id=instance_id)
            return str(rows.values_list("name", flat=True).first() or "")
    except DatabaseError:
        return ""
    return ""
