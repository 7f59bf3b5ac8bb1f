"""Accounts: an admin creates them, or the first OpenID Connect sign-in does. There is no sign-up.

Hooks of django-allauth (ACCOUNT_ADAPTER, SOCIALACCOUNT_ADAPTER). docs/reference/access.md, *OpenID Connect*.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Mapping
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.core import context
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.shortcuts import render
from django.utils.http import url_has_allowed_host_and_scheme
from typing_extensions import override

from dashboards.shared import recent_proof, refusals
from fleet.models.access import ROLES, set_role

logger = logging.getLogger(__name__)


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc] # allauth is untyped
    """Disables sign-up, keeps users from locking each other out, and counts a recent sign-in as recent proof."""

    error_messages = DefaultAccountAdapter.error_messages | {
        "enter_current_password": "The current password is wrong."
    }

    @override
    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Return False: nobody can sign up."""
        return False

    @override
    def is_reauthentication_required(self, *, app: str, **kwargs: Any) -> bool:
        """Return whether the user must authenticate again; unlike in allauth, a recent sign-in counts as proof."""
        request = self.request
        if request is not None and recent_proof.has_recent_sign_in(request):
            return False
        is_required = bool(super().is_reauthentication_required(app=app, **kwargs))
        if is_required and request is not None:
            refusals.record(request, "the password must be entered again")
        return is_required

    @override
    def is_safe_url(self, url: str) -> bool:
        """Return whether `url` is on the host of the current request; other hosts are refused.

        allauth accepts every allowed host and every trusted origin: a link to the sign-in page could then redirect to
        another program on `localhost`.
        """
        request = context.request
        return url_has_allowed_host_and_scheme(
            url, allowed_hosts={request.get_host()}, require_https=request.is_secure()
        )

    @override
    def _get_login_attempts_cache_key(self, request: HttpRequest, **credentials: Any) -> str:
        """Count failed sign-ins per account and client address, so that nobody can lock an account from elsewhere."""
        account = super()._get_login_attempts_cache_key(request, **credentials)
        return f"{account}:{_network_of(self.get_client_ip(request))}"


class OidcAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc] # allauth is untyped
    """Creates a user at the first sign-in if a group gives a role, and sets that role at every sign-in."""

    @override
    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        """Return whether the claims, or the default role, give a role."""
        return bool(role_of(_claims_of(sociallogin)))

    @override
    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> None:
        """Refuse a user without a role; set the role of an existing user from the current claims."""
        role = role_of(_claims_of(sociallogin))
        if not role:
            if sociallogin.is_existing:
                # The role ends, and with it the tokens and open sockets of a user who left the groups.
                set_role(sociallogin.user, "")
            logger.warning("sign-in refused: no group of %r is mapped to a role", sociallogin.account.uid)
            raise ImmediateHttpResponse(
                render(
                    request, "403.html", {"reason": "None of your groups is mapped to a role."}, status=403
                )
            )
        if sociallogin.is_existing:
            set_role(sociallogin.user, role)

    @override
    def save_user(self, request: HttpRequest, sociallogin: Any, form: Any = None) -> User:
        """Save a new user with the role from the claims."""
        user: User = super().save_user(request, sociallogin, form)
        set_role(user, role_of(_claims_of(sociallogin)))
        return user


def role_of(claims: Mapping[str, Any]) -> str:
    """Return the strongest role that the groups claim gives, otherwise the default role; empty if there is none."""
    groups = claims.get(settings.REFLOAT_OIDC_GROUPS_CLAIM) or []
    group_names = {groups} if isinstance(groups, str) else {str(group) for group in groups}
    roles = {role for role, group in settings.REFLOAT_OIDC_ROLES if group in group_names}
    for role in reversed(list(ROLES)):
        if role in roles:
            return role
    return str(settings.REFLOAT_OIDC_DEFAULT_ROLE)


def _network_of(address: str) -> str:
    """Return an IPv4 address, or the /64 network of an IPv6 address: one client can use all addresses of it."""
    try:
        ip_address = ipaddress.ip_address(address)
    except ValueError:
        return address
    return (
        str(ipaddress.ip_network((ip_address, 64), strict=False))
        if ip_address.version == 6
        else str(ip_address)
    )


def _claims_of(sociallogin: Any) -> dict[str, Any]:
    """Return the claims of the ID token, updated with those of userinfo; allauth keeps both in `extra_data`."""
    extra_data = sociallogin.account.extra_data
    return {**extra_data, **(extra_data.get("id_token") or {}), **(extra_data.get("userinfo") or {})}
