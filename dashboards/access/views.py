"""API tokens: create, list, revoke. A user who manages access sees the tokens of all users."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from dashboards.access.forms import TokenForm
from dashboards.access.token_rows import token_row_of
from dashboards.shared import recent_proof, request_actor
from dashboards.shared.pages import signed_in_user_of
from dashboards.shared.permissions import requires
from dashboards.shared.row_ids import parse_row_id
from fleet import tokens as token_actions
from fleet.models.access import Permission, can_write
from fleet.models.tokens import ApiToken


@requires(Permission.VIEW_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def tokens(request: HttpRequest) -> HttpResponseBase:
    """List tokens, create one (POST), or revoke one (POST with `revoke`, the id of a token).

    Template `dashboards/tokens.html`: `page`, `tokens` (TokenRow), `form` (TokenForm), `secret` (the new token's
    string, shown once, otherwise empty), `shows_all_users` (whether the tokens of all users are shown).
    """
    if request.method == "POST":
        return _revoke_token(request) if "revoke" in request.POST else _create_token(request)
    return _render_tokens(request, TokenForm(signed_in_user_of(request)))


def _create_token(request: HttpRequest) -> HttpResponseBase:
    # A token outlives the session. Revoking needs no proof: a leaked token must end at once.
    recent_proof.require(request)
    user = signed_in_user_of(request)
    form = TokenForm(user, request.POST)
    if not form.is_valid():
        return _render_tokens(request, form)
    actor, now = request_actor.signed_in_actor_of(request), timezone.now()
    _, secret = token_actions.issue_token(
        user, form.cleaned_data["name"], form.selected_scopes, actor, lifetime=form.lifetime, now=now
    )
    return _render_tokens(request, TokenForm(user), secret)


def _revoke_token(request: HttpRequest) -> HttpResponseBase:
    token = get_object_or_404(
        _visible_tokens(signed_in_user_of(request)), pk=parse_row_id(request.POST["revoke"])
    )
    token_actions.revoke_token(token, request_actor.signed_in_actor_of(request), timezone.now())
    messages.success(request, f"Token {token} was revoked.")
    return redirect("tokens")


def _render_tokens(request: HttpRequest, form: TokenForm, secret: str = "") -> HttpResponseBase:
    user = signed_in_user_of(request)
    now = timezone.now()
    context = {
        "page": "tokens",
        "tokens": [token_row_of(token, now) for token in _visible_tokens(user).select_related("user")],
        "form": form,
        "secret": secret,
        "shows_all_users": _can_manage_access(user),
    }
    return render(request, "dashboards/tokens.html", context)


def _visible_tokens(user: User) -> QuerySet[ApiToken]:
    can_manage = _can_manage_access(user)
    return ApiToken.objects.all() if can_manage else ApiToken.objects.filter(user=user)


def _can_manage_access(user: User) -> bool:
    """Return whether `user` manages the access of all users, which concerns every cluster."""
    return can_write(user, Permission.MANAGE_ACCESS, "")
