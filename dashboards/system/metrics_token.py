"""Bearer tokens for routes outside the API: a metrics scraper has no session."""

from __future__ import annotations

import functools
from collections.abc import Callable

from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.utils import timezone

from dashboards.shared.permissions import P, View, access_of
from fleet.models.access import Permission
from fleet.models.tokens import find_token


def allow_token(permission: Permission) -> Callable[[View[P]], View[P]]:
    """Accept a valid token with this scope as its user, who also needs the permissions of the view."""

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
                # A scraper would follow a redirect to the sign-in page and read it as an empty response.
                return _create_unauthorized_response(permission)
            return view(request, *args, **kwargs)

        assert access_of(wrapper) is not None, "functools.wraps keeps the access declaration of the view"
        return wrapper

    return decorate


def _create_unauthorized_response(permission: Permission) -> HttpResponseBase:
    token = f"a valid API token with the scope {permission.value}"
    sentence = f"Not signed in. Send {token}: `Authorization: Bearer rfl_...`."
    headers = {"WWW-Authenticate": 'Bearer realm="refloat"'}
    return JsonResponse({"detail": sentence}, status=401, headers=headers)
