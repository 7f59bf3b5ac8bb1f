"""The page that creates the first administrator. Only the link that the console prints in its terminal leads there."""

from __future__ import annotations

from typing import Any

from allauth.account.internal.flows.login import record_authentication
from django import forms
from django.contrib import messages
from django.contrib.auth import login
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods
from typing_extensions import override

from dashboards.clusters import setup_steps
from dashboards.shared import request_actor
from dashboards.shared.permissions import public
from fleet import first_run
from fleet.first_run import SetUpAlreadyError

#: Backend of users who signed in by setting a password.
SIGN_IN_BACKEND = "allauth.account.auth_backends.AuthenticationBackend"


class NewPasswordForm(forms.Form):
    """A new password, twice."""

    password = forms.CharField(
        strip=False,
        help_text="At least 8 characters.",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    password_again = forms.CharField(
        strip=False,
        label="Password again",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )

    @override
    def clean(self) -> dict[str, Any]:
        """Refuse two different passwords."""
        cleaned_data: dict[str, Any] = super().clean() or self.cleaned_data
        if "password" in cleaned_data and cleaned_data["password"] != cleaned_data.get("password_again"):
            self.add_error("password_again", "The passwords differ.")
        return cleaned_data


class AdministratorForm(NewPasswordForm):
    """Name and password of the first administrator."""

    username = forms.CharField(
        max_length=150,
        label="Username",
        widget=forms.TextInput(
            attrs={"autocomplete": "username", "autofocus": True, "autocapitalize": "none"}
        ),
    )
    email = forms.EmailField(
        required=False,
        label="E-mail (optional)",
        help_text="For resetting the password, if e-mail is configured.",
    )
    field_order = ("username", "email", "password", "password_again")


@public
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@sensitive_post_parameters("password", "password_again")
def set_up(request: HttpRequest, token: str) -> HttpResponseBase:
    """Create the first administrator, sign in, and lead to the next step.

    A link that does not work (any more) is not found.

    Template `dashboards/setup.html`: `form` (AdministratorForm).
    """
    if not first_run.is_setup_token(token):
        raise Http404(
            "This link has expired, or an administrator exists already. "
            "Sign in, or restart the console to get a new link."
        )
    form = AdministratorForm(request.POST or None)
    if form.is_valid():
        values = form.cleaned_data
        try:
            user = first_run.create_administrator(
                values["username"],
                values["password"],
                email=values["email"],
                now=timezone.now(),
                request_id=request_actor.request_id_of(request),
            )
        except SetUpAlreadyError:
            messages.info(request, "An administrator exists already. Sign in.")
            return redirect("account_login")
        except ValidationError as error:
            form.add_error(None, error)
        else:
            login(request, user, SIGN_IN_BACKEND)
            # The password was typed just now, so the next steps, such as the cluster, need no other proof.
            record_authentication(request, user, method="password", username=user.get_username())
            messages.success(request, f"{user.get_username()} is an administrator of this console.")
            return redirect(setup_steps.find_next_url(setup_steps.read_all_steps(request.path)))
    return render(request, "dashboards/setup.html", {"form": form})
