"""Recent proof of identity, which actions with lasting effects need. docs/reference/access.md, "Reauthentication".

django-allauth stores the proofs. Requests with a token need none, because creating the token needed one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from allauth.account.adapter import get_adapter
from allauth.account.authentication import get_authentication_records
from allauth.account.decorators import reauthentication_required
from allauth.account.internal.flows.reauthentication import STATE_SESSION_KEY
from allauth.core.exceptions import ReauthenticationRequired
from django.conf import settings
from django.http import HttpRequest, HttpResponseBase, QueryDict
from django.shortcuts import redirect, resolve_url
from django.utils.http import urlencode


@reauthentication_required  # type: ignore[untyped-decorator] # allauth is untyped
def require(request: HttpRequest) -> None:
    """Raise ReauthenticationRequired unless the proof is recent; the middleware asks for it and repeats the request."""


def is_recent(request: HttpRequest) -> bool:
    """Return whether the user proved their identity within `REFLOAT_REAUTHENTICATE_AFTER` seconds."""
    try:
        require(request)
    except ReauthenticationRequired:
        return False
    return True


def has_recent_sign_in(request: HttpRequest) -> bool:
    """Return whether the last sign-in or proof is recent; allauth does not count a sign-in."""
    proofs = get_authentication_records(request, request.user)
    newest_at = max((float(proof["at"]) for proof in proofs), default=0.0)
    return 0 <= time.time() - newest_at < settings.ACCOUNT_REAUTHENTICATION_TIMEOUT


@dataclass(frozen=True, slots=True)
class SuspendedForm:
    """A form that waits for proof, and is submitted again after it."""

    values: QueryDict
    #: The headers of its request, as Django names them in `META`.
    headers: Mapping[str, Any]


def find_suspended_form(request: HttpRequest, path: str) -> SuspendedForm | None:
    """Return the last form of the page at `path` that needed proof; None if it was another page, or was submitted."""
    state = request.session.get(STATE_SESSION_KEY) or {}
    stored_request: dict[str, Any] = json.loads(state.get("request", "{}"))
    if stored_request.get("path") != path:
        return None
    return SuspendedForm(QueryDict(stored_request["POST"]), stored_request["META"])


def redirect_to_reauthentication(request: HttpRequest) -> HttpResponseBase:
    """Redirect to the page that asks for proof, which leads back to this URL by GET.

    For forms with a secret: `require` stores the whole form in the session, where secrets must not be.
    """
    methods = get_adapter().get_reauthentication_methods(request.user)
    page = methods[0]["url"] if methods else resolve_url("account_login")
    return redirect(f"{page}?{urlencode({'next': request.get_full_path()})}")
