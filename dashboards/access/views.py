"""Tokens: make one (shown once), see when each was used, revoke. Whoever manages access sees everybody's."""

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
from dashboards.shared import presenters, recent_proof, request_actor
from dashboards.shared.pages import signed_in
from dashboards.shared.permissions import requires
from dashboards.shared.row_ids import row_id
from fleet import tokens as token_acts
from fleet.models.access import Permission, may_write
from fleet.models.tokens import ApiToken


@requires(Permission.VIEW_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def tokens(request: HttpRequest) -> HttpResponseBase:
    """List tokens, make one (POST), or revoke one (POST with `revoke`, a token's id).

    Template `dashboards/tokens.html`: `page`, `tokens` (TokenRow), `form` (TokenForm), `secret` (the new token's
    string, this once, else empty), `everybody` (whether others' tokens are shown too).
    """
    if request.method == "POST":
        return _revoke(request) if "revoke" in request.POST else _make(request)
    return _show(request, TokenForm(signed_in(request)))


def _make(request: HttpRequest) -> HttpResponseBase:
    # A token outlives the session. A leaked one is revoked at once.
    recent_proof.require(request)
    user = signed_in(request)
    form = TokenForm(user, request.POST)
    if not form.is_valid():
        return _show(request, form)
    author, now = request_actor.author(request), timezone.now()
    _, secret = token_acts.make(
        user, form.cleaned_data["name"], form.chosen, author, lifetime=form.lifetime, now=now
    )
    return _show(request, TokenForm(user), secret)


def _revoke(request: HttpRequest) -> HttpResponseBase:
    token = get_object_or_404(_visible(signed_in(request)), pk=row_id(request.POST["revoke"]))
    token_acts.revoke(token, request_actor.author(request), timezone.now())
    messages.success(request, f"The token {token} is revoked.")
    return redirect("tokens")


def _show(request: HttpRequest, form: TokenForm, secret: str = "") -> HttpResponseBase:
    user = signed_in(request)
    now = timezone.now()
    context = {
        "page": "tokens",
        "tokens": [presenters.token_row(token, now) for token in _visible(user).select_related("user")],
        "form": form,
        "secret": secret,
        "everybody": _manages_access(user),
    }
    return render(request, "dashboards/tokens.html", context)


def _visible(user: User) -> QuerySet[ApiToken]:
    everybody = _manages_access(user)
    return ApiToken.objects.all() if everybody else ApiToken.objects.filter(user=user)


def _manages_access(user: User) -> bool:
    """Whether `user` manages everybody's access: that concerns every cluster."""
    return may_write(user, Permission.MANAGE_ACCESS, "")
