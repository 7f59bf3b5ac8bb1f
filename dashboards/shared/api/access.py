"""Who may use an API route: whoever's bearer token, or session, has the permission the route names."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.http import HttpRequest
from django.utils import timezone
from ninja.errors import HttpError
from ninja.security import HttpBearer
from ninja.utils import check_csrf
from typing_extensions import override

from dashboards.shared.permissions import AccessRequirement
from fleet.models.access import Permission, has_permission
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.tokens import find_token


class ApiAccess(HttpBearer):
    """The guard of one route; `access` is what the check and the meta-test read back."""

    def __init__(self, permission: Permission, *, of_cluster: bool = True) -> None:
        super().__init__()
        self.access = AccessRequirement(permission=permission, of_cluster=of_cluster)
        self._permission = permission

    @override
    def __call__(self, request: HttpRequest) -> Any:
        """Let in, with `request.auth` set, or answer 401 (by None) or 403."""
        if request.headers.get("Authorization"):
            return super().__call__(request)
        if not request.user.is_authenticated:
            return None
        if check_csrf(request) is not None:
            raise HttpError(403, "The CSRF token is missing or wrong.")
        return self._admit(request, request.user)

    @override
    def authenticate(self, request: HttpRequest, token: str) -> Any:
        """Let a bearer in."""
        api_token = find_token(token, timezone.now())
        if api_token is None:
            return None
        # What changes something is logged as done by this token, also what is refused.
        request.refloat_token = api_token  # type: ignore[attr-defined] # read back by api.change_responses and request_log
        if not api_token.allows(self._permission):
            raise HttpError(403, f"The token {api_token} has not the scope {self._permission.value}.")
        return self._admit(request, api_token.user)

    def _admit(self, request: HttpRequest, user: User) -> User:
        match = request.resolver_match
        cluster = match.kwargs.get("cluster", DEFAULT_CLUSTER) if match else DEFAULT_CLUSTER
        if not has_permission(user, self._permission, cluster if self.access.of_cluster else None):
            raise HttpError(403, f"{user.get_username()} has not the permission: {self._permission.label}.")
        return user
