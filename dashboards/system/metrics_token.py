"""Bearer tokens for routes that are no API: what scrapes metrics has no session."""

from __future__ import annotations

import functools
from collections.abc import Callable

from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.utils import timezone

from dashboards.shared.permissions import P, View, access_of
from fleet.models.access import Permission
from fleet.models.tokens import find_token


def allow_token(permission: Permission) -> Callable[[View[P]], View[P]]:
    """Let a valid token with this scope in as its user; what the view requires, the user must have as well."""

    def decorate(view: View[P]) -> View[P]:
        @functools.wraps(view)
        def wrapper(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
            scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
            if scheme.lower() == "bearer":
                token = find_token(secret, timezone.now())
                if token is None or not token.allows(permission):
                    return _create_unauthorized_response(permission)
                request.user = token.user
            elif not request.user.is_authenticated:
                # What scrapes follows a redirect to the sign-in page, and reads that as an empty answer.
                return _create_unauthorized_response(permission)
            return view(request, *args, **kwargs)

        assert access_of(wrapper) is not None, "functools.wraps keeps the mark of the view it wraps"
        return wrapper

    return decorate


def _create_unauthorized_response(permission: Permission) -> HttpResponseBase:
    sentence = f"This needs a valid token with the scope {permission.value}: Authorization: Bearer rfl_..."
    headers = {"WWW-Authenticate": 'Bearer realm="refloat"'}
    return JsonResponse({"detail": sentence}, status=401, headers=headers)
