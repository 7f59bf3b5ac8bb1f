"""How people become users: never by signing up; an admin makes them, or the identity provider vouches for them.

Hooks of django-allauth (ACCOUNT_ADAPTER, SOCIALACCOUNT_ADAPTER). docs/access.md, *OpenID Connect*.
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
    """Nobody signs up, nobody locks others out, and who has just signed in is not asked again."""

    @override
    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Refuse."""
        return False

    @override
    def is_reauthentication_required(self, *, app: str, **kwargs: Any) -> bool:
        """Count signing in as proof too: allauth asks again even a second after it."""
        request = self.request
        if request is not None and recent_proof.is_counted(request):
            return False
        is_required = bool(super().is_reauthentication_required(app=app, **kwargs))
        if is_required and request is not None:
            refusals.record(request, "asked to prove again who it is")
        return is_required

    @override
    def is_safe_url(self, url: str) -> bool:
        """Accept addresses of the console at the host that people see now, and no other.

        allauth takes every allowed host and every trusted origin: a link to our sign-in would lead to another program
        on `localhost`.
        """
        request = context.request
        return url_has_allowed_host_and_scheme(
            url, allowed_hosts={request.get_host()}, require_https=request.is_secure()
        )

    @override
    def _get_login_attempts_cache_key(self, request: HttpRequest, **credentials: Any) -> str:
        """Count failed sign-ins of an account for each address apart: nobody locks an account from elsewhere."""
        account = super()._get_login_attempts_cache_key(request, **credentials)
        return f"{account}:{_network_of(self.get_client_ip(request))}"


class OidcAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc] # allauth is untyped
    """Somebody whose groups give a role becomes a user at the first sign-in, and has that role at every one."""

    @override
    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        """Accept whom the claims, or the default, give a role."""
        return bool(role_of(_claims(sociallogin)))

    @override
    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> None:
        """Refuse a person without a role; give an existing user the role of today's claims."""
        role = role_of(_claims(sociallogin))
        if not role:
            if sociallogin.is_existing:
                # Tokens and open sockets of somebody who left the groups end with the role.
                set_role(sociallogin.user, "")
            logger.warning("sign-in refused: the groups of %r give no role", sociallogin.account.uid)
            raise ImmediateHttpResponse(
                render(request, "403.html", {"reason": "Your groups give no role here."}, status=403)
            )
        if sociallogin.is_existing:
            set_role(sociallogin.user, role)

    @override
    def save_user(self, request: HttpRequest, sociallogin: Any, form: Any = None) -> User:
        """Give a new user the role of the claims."""
        user: User = super().save_user(request, sociallogin, form)
        set_role(user, role_of(_claims(sociallogin)))
        return user


def role_of(claims: Mapping[str, Any]) -> str:
    """The strongest role that the groups claim gives, else the default role; empty when there is none."""
    groups = claims.get(settings.REFLOAT_OIDC_GROUPS_CLAIM) or []
    group_names = {groups} if isinstance(groups, str) else {str(group) for group in groups}
    roles = {role for role, group in settings.REFLOAT_OIDC_ROLES if group in group_names}
    for role in reversed(list(ROLES)):
        if role in roles:
            return role
    return str(settings.REFLOAT_OIDC_DEFAULT_ROLE)


def _network_of(address: str) -> str:
    """Return the address, of IPv6 the network of 64 bits: whoever has one address there has all of them."""
    try:
        ip_address = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((ip_address, 64), strict=False)) if ip_address.version == 6 else str(ip_address)


def _claims(sociallogin: Any) -> dict[str, Any]:
    """The ID token's claims with the userinfo's over them; allauth keeps both in `extra_data`."""
    extra_data = sociallogin.account.extra_data
    return {**extra_data, **(extra_data.get("id_token") or {}), **(extra_data.get("userinfo") or {})}
