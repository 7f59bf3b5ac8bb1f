"""Access to API routes: the bearer token or the session must have the permission of the route."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.http import HttpRequest
from django.utils import timezone
from ninja.errors import HttpError
from ninja.security import HttpBearer
from ninja.utils import check_csrf
from typing_extensions import override

from dashboards.shared.permissions import AccessRequirement, describe_missing_permission
from fleet.models.access import Permission, has_permission
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.tokens import ApiToken, find_token


class ApiAccess(HttpBearer):
    """Authentication and authorization of one route; system check and meta-test read `access`."""

    def __init__(self, permission: Permission, *, is_per_cluster: bool = True) -> None:
        super().__init__()
        self.access = AccessRequirement(permission=permission, is_per_cluster=is_per_cluster)
        self._permission = permission

    @override
    def __call__(self, request: HttpRequest) -> Any:
        """Return the user, which ninja sets as `request.auth`, or None for 401. Raises HttpError 403."""
        if request.headers.get("Authorization"):
            return super().__call__(request)
        if not request.user.is_authenticated:
            return None
        if check_csrf(request) is not None:
            raise HttpError(403, "The CSRF token is missing or wrong. Reload the page and try again.")
        return self._admit(request, request.user)

    @override
    def authenticate(self, request: HttpRequest, token: str) -> Any:
        """Return the user of a bearer token, or None for 401. Raises HttpError 403."""
        api_token = find_token(token, timezone.now())
        if api_token is None:
            return None
        # Changes, also refused ones, are logged as made with this token.
        request.refloat_token = api_token  # type: ignore[attr-defined] # read back by api.change_responses and request_log
        if not api_token.allows(self._permission):
            raise HttpError(403, describe_missing_scope(api_token, self._permission))
        return self._admit(request, api_token.user)

    def _admit(self, request: HttpRequest, user: User) -> User:
        match = request.resolver_match
        cluster = match.kwargs.get("cluster", DEFAULT_CLUSTER) if match else DEFAULT_CLUSTER
        limit = cluster if self.access.is_per_cluster else None
        if not has_permission(user, self._permission, limit):
            raise HttpError(403, describe_missing_permission(user, self._permission, limit))
        return user


def describe_missing_scope(token: ApiToken, permission: Permission) -> str:
    """Return the sentence for a token without the scope of a permission."""
    return f"Not allowed: the token {token} does not have the scope {permission.value}."
