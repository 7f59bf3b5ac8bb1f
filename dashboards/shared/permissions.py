"""The one way in which views, API routes and sockets say who may use them. docs/access.md.

A view is marked by `requires(...)` or `public`; an API route has `auth=ApiAccess(...)`; a socket consumer has
`access`. `declared` reads the mark back; a system check (dashboards.checks) refuses views and routes without one.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, NoReturn, ParamSpec
from urllib.parse import quote

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, resolve_url

from dashboards.shared import refusals
from fleet.models.access import Permission, limits_of, has_permission, can_write
from fleet.models.clusters import DEFAULT_CLUSTER, Cluster

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponseBase]


@dataclass(frozen=True, slots=True)
class AccessRequirement:
    """Who may use something: everybody, whoever is signed in, or whoever has a permission."""

    sign_in: bool = True
    permission: Permission | None = None
    #: It shows or changes one cluster, so limits by cluster count. What is of no cluster filters by them itself.
    of_cluster: bool = True


PUBLIC = AccessRequirement(sign_in=False)
SIGNED_IN = AccessRequirement()

#: Pages of django-allauth, by URL name: it guards them itself. A name that is not here is refused by the check.
ALLAUTH: dict[str, AccessRequirement] = {
    **dict.fromkeys(
        (
            "account_login", "account_signup", "account_inactive", "account_reset_password",
            "account_reset_password_done", "account_reset_password_from_key",
            "account_reset_password_from_key_done", "account_confirm_email",
            "account_email_verification_sent", "account_logout",
            "account_confirm_login_code", "mfa_authenticate", "mfa_login_webauthn",
            "socialaccount_login_cancelled", "socialaccount_login_error", "socialaccount_signup",
            "openid_connect_login", "openid_connect_callback",
        ),
        PUBLIC,
    ),
    **dict.fromkeys(
        (
            "account_reauthenticate", "account_email", "account_change_password", "account_set_password",
            "socialaccount_connections", "mfa_index", "mfa_reauthenticate", "mfa_reauthenticate_webauthn",
            "mfa_activate_totp", "mfa_deactivate_totp", "mfa_view_recovery_codes",
            "mfa_generate_recovery_codes", "mfa_download_recovery_codes", "mfa_list_webauthn",
            "mfa_add_webauthn", "mfa_remove_webauthn", "mfa_edit_webauthn",
        ),
        SIGNED_IN,
    ),
}  # fmt: skip


def public(view: Callable[P, HttpResponseBase]) -> Callable[P, HttpResponseBase]:
    """Mark a view that everybody may see."""
    view.access = PUBLIC  # type: ignore[attr-defined] # read back by declared()
    return view


def requires(permission: Permission) -> Callable[[View[P]], View[P]]:
    """Mark and guard a view: sign-in, the permission, and, if it has an argument `cluster`, the cluster of its URL."""

    def decorate(view: View[P]) -> View[P]:
        of_cluster = "cluster" in inspect.signature(view).parameters

        @functools.wraps(view)
        def wrapper(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return _redirect_to_sign_in(request)
            cluster = str(kwargs.get("cluster", DEFAULT_CLUSTER))
            if not has_permission(request.user, permission, cluster if of_cluster else None):
                _refuse(request, _describe_missing_permission(permission))
            if not is_known_cluster(cluster):
                raise Http404(f"There is no cluster {cluster}.")
            return view(request, *args, **kwargs)

        access = AccessRequirement(permission=permission, of_cluster=of_cluster)
        wrapper.access = access  # type: ignore[attr-defined] # read back by declared()
        return wrapper

    return decorate


def owners_for(user: User, permission: Permission, cluster: str) -> list[str]:
    """Return the owners that `user` may give a new object on a cluster's page: the installation first."""
    return [owner for owner in ("", cluster) if can_write(user, permission, owner)]


def require_permission(request: HttpRequest, permission: Permission, cluster: str) -> None:
    """Refuse what a view does by a permission that seeing its page does not need. Raises PermissionDenied."""
    if not has_permission(request.user, permission, cluster):
        _refuse(request, _describe_missing_permission(permission))


def require_write(request: HttpRequest, permission: Permission, owner: str) -> None:
    """Refuse to change what `owner` owns: a cluster, or, if it is empty, the installation. Raises PermissionDenied."""
    if sentence := find_write_refusal(request.user, permission, owner):
        _refuse(request, sentence)


def find_write_refusal(user: AbstractBaseUser | AnonymousUser, permission: Permission, owner: str) -> str:
    """Return why `user` may not change what `owner` owns; empty: they may."""
    if can_write(user, permission, owner):
        return ""
    if not owner and has_permission(user, permission):
        return "It belongs to the whole installation: to change it needs a user without a limit by cluster."
    return _describe_missing_permission(permission)


def is_known_cluster(cluster: str) -> bool:
    """Whether there is such a cluster; the default one is there before anything was polled."""
    if cluster == DEFAULT_CLUSTER:
        return True
    # PostgreSQL refuses a NUL in a text, SQLite does not.
    return "\0" not in cluster and Cluster.objects.filter(pk=cluster).exists()


def known_clusters() -> tuple[str, ...]:
    """All clusters, the default one first."""
    return tuple(dict.fromkeys((DEFAULT_CLUSTER, *Cluster.objects.values_list("pk", flat=True))))


def visible_clusters(user: User) -> tuple[str, ...]:
    """Return the clusters that no limit keeps `user` from, the default one first."""
    limits = limits_of(user)
    return tuple(cluster for cluster in known_clusters() if not limits or cluster in limits)


def access_of(callback: Any) -> AccessRequirement | None:
    """Read what a view or a consumer says of who may use it; None when it says nothing."""
    access = getattr(callback, "access", None)
    return access if isinstance(access, AccessRequirement) else None


def _describe_missing_permission(permission: Permission) -> str:
    return f"This needs the permission: {permission.label}."


def _refuse(request: HttpRequest, sentence: str) -> NoReturn:
    refusals.record(request, sentence)
    raise PermissionDenied(sentence)


def _redirect_to_sign_in(request: HttpRequest) -> HttpResponse:
    """Send somebody to the sign-in page and back."""
    return redirect(f"{resolve_url(settings.LOGIN_URL)}?next={quote(request.get_full_path())}")
