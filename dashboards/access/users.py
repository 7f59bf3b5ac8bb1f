"""The pages *Users*, and the page behind the link of an invitation. docs/reference/access.md, "Users"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from allauth.account.internal.flows.login import record_authentication
from django import forms
from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods
from typing_extensions import override

from dashboards.access.setup import SIGN_IN_BACKEND, NewPasswordForm
from dashboards.access.token_rows import token_row_of
from dashboards.access.user_rows import UserRow, read_sessions, read_user_rows
from dashboards.shared import recent_proof, refusals, request_actor
from dashboards.shared.pages import sentence_of
from dashboards.shared.permissions import public, read_known_clusters, require_write, requires
from fleet import tokens, users
from fleet.audit import RequestActor
from fleet.models.access import ROLES, Permission
from fleet.models.tokens import ApiToken
from fleet.users import UserRefusedError

_ROLE_CHOICES = [(role, role) for role in ROLES]


class InvitationForm(forms.Form):
    """Name, role and cluster limits of a new user."""

    username = forms.CharField(max_length=150, widget=forms.TextInput(attrs={"autocapitalize": "none"}))
    email = forms.EmailField(required=False, label="E-mail (optional)")
    role = forms.ChoiceField(choices=_ROLE_CHOICES, initial="viewer")
    clusters = forms.MultipleChoiceField(
        required=False,
        label="Limit to clusters",
        help_text="Select none for every cluster.",
        widget=forms.CheckboxSelectMultiple,
    )

    @override
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["clusters"]
        assert isinstance(field, forms.MultipleChoiceField), "declared above"
        field.choices = [(cluster, cluster) for cluster in read_known_clusters()]


@requires(Permission.MANAGE_ACCESS)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def user_list(request: HttpRequest) -> HttpResponseBase:
    """List users, or (POST) invite one.

    Template `dashboards/users.html`: `rows` (UserRow), `form` (InvitationForm), `link` (of the new user, shown once, or
    empty), `invited_name`.
    """
    require_write(request, Permission.MANAGE_ACCESS, "")
    form, link, invited_name = InvitationForm(request.POST or None), "", ""
    if request.method == "POST":
        recent_proof.require(request)
        if form.is_valid():
            values = form.cleaned_data
            actor, now = request_actor.signed_in_actor_of(request), timezone.now()
            try:
                user, token = users.invite(
                    values["username"],
                    values["role"],
                    actor,
                    now=now,
                    email=values["email"],
                    clusters=values["clusters"],
                )
            except ValidationError as error:
                form.add_error(None, error)
            else:
                form, link, invited_name = InvitationForm(), link_of(request, token), user.get_username()
    context = {
        "page": "users",
        "rows": read_user_rows(timezone.now()),
        "form": form,
        "link": link,
        "invited_name": invited_name,
    }
    return render(request, "dashboards/users.html", context)


@requires(Permission.MANAGE_ACCESS)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def user_page(request: HttpRequest, username: str) -> HttpResponseBase:
    """Show a user. POST with `do`: one of `_ACTIONS`, or `invite`.

    Template `dashboards/user.html`: `row` (UserRow), `sessions` (SessionRow), `tokens` (TokenRow), `roles`, `clusters`,
    `link` (of a renewed invitation, shown once, or empty), `is_self`.
    """
    require_write(request, Permission.MANAGE_ACCESS, "")
    user, link = require_user(username), ""
    if request.method == "POST":
        recent_proof.require(request)
        actor = request_actor.signed_in_actor_of(request)
        action = request.POST.get("do", "")
        try:
            if action == "invite":
                link = link_of(request, users.renew_invitation(user, actor, timezone.now()))
            elif action in _ACTIONS:
                messages.success(request, _ACTIONS[action](request, user, actor))
                return redirect("user", username=username)
            else:
                refusals.record_and_show(request, "This form is out of date. Try again.")
        except UserRefusedError as error:
            refusals.record_and_show(request, sentence_of(error))
            return redirect("user", username=username)
    now = timezone.now()
    context = {
        "page": "users",
        "row": require_row(username),
        "sessions": read_sessions(user),
        "tokens": [
            token_row_of(token, now) for token in ApiToken.objects.filter(user=user).select_related("user")
        ],
        "roles": list(ROLES),
        "clusters": read_known_clusters(),
        "link": link,
        "is_self": user.pk == request.user.pk,
    }
    return render(request, "dashboards/user.html", context)


@public
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@sensitive_post_parameters("password", "password_again")
def accept_invitation(request: HttpRequest, token: str) -> HttpResponseBase:
    """Let an invited person set a password, and sign in. A link that does not work (any more) is not found.

    Template `dashboards/invitation.html`: `form` (NewPasswordForm), `username`.
    """
    invited_user = users.find_invited_user(token)
    if invited_user is None:
        raise Http404(
            "This link has expired, or was used already. Sign in, or ask an administrator for a new link."
        )
    form = NewPasswordForm(request.POST or None)
    if form.is_valid():
        try:
            user = users.accept_invitation(
                token,
                form.cleaned_data["password"],
                now=timezone.now(),
                request_id=request_actor.request_id_of(request),
            )
        except ValidationError as error:
            form.add_error("password", error)
        else:
            if user is None:
                return redirect("account_login")
            login(request, user, SIGN_IN_BACKEND)
            record_authentication(request, user, method="password", username=user.get_username())
            messages.success(request, f"Welcome, {user.get_username()}. Your password is set.")
            return redirect("/")
    return render(
        request, "dashboards/invitation.html", {"form": form, "username": invited_user.get_username()}
    )


def link_of(request: HttpRequest, token: str) -> str:
    """Return the link of an invitation."""
    return request.build_absolute_uri(f"/invitation/{token}/")


def require_user(username: str) -> User:
    """Return a user by name. Raises Http404."""
    # PostgreSQL rejects NUL characters in text.
    user = None if "\0" in username else User.objects.filter(username=username).first()
    if user is None:
        raise Http404(f"User {username} was not found.")
    return user


def require_row(username: str) -> UserRow:
    """Return a user as a row. Raises Http404."""
    rows = read_user_rows(timezone.now(), username=username)
    if not rows:
        raise Http404(f"User {username} was not found.")
    return rows[0]


def _change_role(request: HttpRequest, user: User, actor: RequestActor) -> str:
    role = request.POST.get("role", "")
    if role not in ROLES:
        raise UserRefusedError("choose one of the roles")
    users.change_role(user, role, actor, timezone.now())
    return f"{user} has the role {role}."


def _change_limits(request: HttpRequest, user: User, actor: RequestActor) -> str:
    clusters = request.POST.getlist("clusters")
    users.change_limits(user, clusters, actor, timezone.now())
    return f"{user} sees {', '.join(clusters) or 'every cluster'}."


def _disable(_request: HttpRequest, user: User, actor: RequestActor) -> str:
    users.set_active(user, actor, timezone.now(), is_active=False)
    return f"{user} is disabled and signed out everywhere."


def _enable(_request: HttpRequest, user: User, actor: RequestActor) -> str:
    users.set_active(user, actor, timezone.now(), is_active=True)
    return f"{user} is enabled. API tokens that are not revoked work again."


def _end_sessions(_request: HttpRequest, user: User, actor: RequestActor) -> str:
    count = users.end_all_sessions(user, actor, timezone.now())
    return f"{count} session{'' if count == 1 else 's'} of {user} ended."


def _revoke_tokens(_request: HttpRequest, user: User, actor: RequestActor) -> str:
    count = tokens.revoke_all_tokens(user, actor, timezone.now())
    return f"{count} API token{'' if count == 1 else 's'} of {user} revoked."


def _reset_second_factor(_request: HttpRequest, user: User, actor: RequestActor) -> str:
    users.reset_second_factor(user, actor, timezone.now())
    return f"{user} signs in with the password alone until a second factor is added again."


#: By value of `do`: carries out the action, and returns what happened as a sentence.
_ACTIONS: dict[str, Callable[[HttpRequest, User, RequestActor], str]] = {
    "role": _change_role,
    "limits": _change_limits,
    "disable": _disable,
    "enable": _enable,
    "end-sessions": _end_sessions,
    "revoke-tokens": _revoke_tokens,
    "reset-second-factor": _reset_second_factor,
}
