"""Declared access of views, API routes and sockets. docs/reference/access.md.

A view is marked by `requires(...)` or `public`; an API route has `auth=ApiAccess(...)`; a socket consumer has
`access`. `access_of` reads the mark; a system check (dashboards.checks) rejects views and routes without one.
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
from fleet.models.access import ROLES, Permission, can_write, cluster_limits_of, has_permission
from fleet.models.clusters import DEFAULT_CLUSTER, Cluster

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponseBase]


@dataclass(frozen=True, slots=True)
class AccessRequirement:
    """Required access: none, a signed-in user, or a user with a permission."""

    needs_sign_in: bool = True
    permission: Permission | None = None
    #: Limits by cluster apply, because the view shows or changes one cluster. Other views apply the limits themselves.
    is_per_cluster: bool = True


PUBLIC = AccessRequirement(needs_sign_in=False)
SIGNED_IN = AccessRequirement()

#: Pages of django-allauth, by URL name; allauth guards them. The system check rejects other names.
ALLAUTH_PAGES: dict[str, AccessRequirement] = {
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
            # Since 65.22; they respond only if reauthentication by code is enabled.
            "account_request_reauthentication_code", "account_confirm_reauthentication_code",
            "socialaccount_connections", "mfa_index", "mfa_reauthenticate", "mfa_reauthenticate_webauthn",
            "mfa_activate_totp", "mfa_deactivate_totp", "mfa_view_recovery_codes",
            "mfa_generate_recovery_codes", "mfa_download_recovery_codes", "mfa_list_webauthn",
            "mfa_add_webauthn", "mfa_remove_webauthn", "mfa_edit_webauthn",
        ),
        SIGNED_IN,
    ),
}  # fmt: skip


def public(view: Callable[P, HttpResponseBase]) -> Callable[P, HttpResponseBase]:
    """Mark a view as public: it needs no sign-in."""
    view.access = PUBLIC  # type: ignore[attr-defined] # read back by access_of()
    return view


def requires(permission: Permission) -> Callable[[View[P]], View[P]]:
    """Mark and guard a view: it needs sign-in, the permission, and access to `cluster` if it has that argument."""

    def decorate(view: View[P]) -> View[P]:
        is_per_cluster = "cluster" in inspect.signature(view).parameters

        @functools.wraps(view)
        def wrapper(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return _redirect_to_sign_in(request)
            cluster = str(kwargs.get("cluster", DEFAULT_CLUSTER))
            if not has_permission(request.user, permission, cluster if is_per_cluster else None):
                _refuse(
                    request,
                    describe_missing_permission(
                        request.user, permission, cluster if is_per_cluster else None
                    ),
                )
            if not is_known_cluster(cluster):
                raise Http404(f"Cluster {cluster} was not found.")
            return view(request, *args, **kwargs)

        access = AccessRequirement(permission=permission, is_per_cluster=is_per_cluster)
        wrapper.access = access  # type: ignore[attr-defined] # read back by access_of()
        return wrapper

    return decorate


def writable_owners_for(user: User, permission: Permission, cluster: str) -> list[str]:
    """Return the owners that `user` may choose for a new object of `cluster`; the installation comes first."""
    return [owner for owner in ("", cluster) if can_write(user, permission, owner)]


def require_permission(request: HttpRequest, permission: Permission, cluster: str) -> None:
    """Require a permission beyond the one for viewing the page. Raises PermissionDenied."""
    if not has_permission(request.user, permission, cluster):
        _refuse(request, describe_missing_permission(request.user, permission, cluster))


def require_write(request: HttpRequest, permission: Permission, owner: str) -> None:
    """Require write access to objects of `owner`: a cluster, or the installation if empty. Raises PermissionDenied."""
    if sentence := find_write_refusal(request.user, permission, owner):
        _refuse(request, sentence)


def find_write_refusal(user: AbstractBaseUser | AnonymousUser, permission: Permission, owner: str) -> str:
    """Return why `user` may not change objects of `owner`; empty if they may."""
    if can_write(user, permission, owner):
        return ""
    if not owner and has_permission(user, permission):
        return "This belongs to the whole installation. Only users who are not limited to some clusters can change it."
    return describe_missing_permission(user, permission, owner or None)


def is_known_cluster(cluster: str) -> bool:
    """Return whether a cluster exists; the default cluster exists even before the first poll."""
    if cluster == DEFAULT_CLUSTER:
        return True
    # PostgreSQL rejects NUL characters in text, SQLite does not.
    return "\0" not in cluster and Cluster.objects.filter(pk=cluster).exists()


def read_known_clusters() -> tuple[str, ...]:
    """Return all clusters; the default cluster comes first."""
    return tuple(dict.fromkeys((DEFAULT_CLUSTER, *Cluster.objects.values_list("pk", flat=True))))


def visible_clusters_of(user: User) -> tuple[str, ...]:
    """Return the clusters that `user` may see; the default cluster comes first."""
    cluster_ids = cluster_limits_of(user)
    return tuple(cluster for cluster in read_known_clusters() if not cluster_ids or cluster in cluster_ids)


def has_several_clusters(user: User) -> bool:
    """Return whether `user` may see more than one cluster; one query where there is only one."""
    return Cluster.objects.count() > 1 and len(visible_clusters_of(user)) > 1


def access_of(callback: Any) -> AccessRequirement | None:
    """Return the access that a view or a consumer declares; None if it declares none."""
    access = getattr(callback, "access", None)
    return access if isinstance(access, AccessRequirement) else None


def _weakest_role_with(permission: Permission) -> str:
    """Return the least powerful role that has a permission."""
    return next(role for role, permissions in ROLES.items() if permission in permissions)


def describe_missing_permission(
    user: AbstractBaseUser | AnonymousUser, permission: Permission, cluster: str | None
) -> str:
    """Return the sentence for a user without a permission: the cluster, if its role is enough, or the role to have.

    `cluster`: the cluster of the action, which may not exist; None: the action is not about one cluster.
    """
    if cluster is not None and has_permission(user, permission):
        return f"Not allowed: you have no access to cluster {cluster}."
    return f"Not allowed: this action needs the role {_weakest_role_with(permission)}."


def _refuse(request: HttpRequest, sentence: str) -> NoReturn:
    refusals.record(request, sentence)
    raise PermissionDenied(sentence)


def _redirect_to_sign_in(request: HttpRequest) -> HttpResponse:
    """Redirect to the sign-in page, which leads back to this URL."""
    return redirect(f"{resolve_url(settings.LOGIN_URL)}?next={quote(request.get_full_path())}")
