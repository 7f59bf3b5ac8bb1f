"""The form that creates an API token."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.contrib.auth.models import User

from fleet.models.access import Permission, has_permission


class TokenForm(forms.Form):
    """Name, scopes (of those that the user has) and lifetime of a new token."""

    name = forms.CharField(
        max_length=100, help_text="The program that uses the token, for example: prometheus."
    )
    scopes = forms.MultipleChoiceField(widget=forms.CheckboxSelectMultiple)
    days = forms.IntegerField(
        min_value=1, max_value=3650, initial=90, label="Expires after (days)", help_text="1 to 3,650 days."
    )

    def __init__(self, user: User, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        permissions = [permission for permission in Permission if has_permission(user, permission)]
        field = self.fields["scopes"]
        assert isinstance(field, forms.MultipleChoiceField), "declared above"
        field.choices = [(permission.value, permission.label) for permission in permissions]
        field.initial = [Permission.VIEW_FLEET.value]

    @property
    def selected_scopes(self) -> tuple[Permission, ...]:
        """Scopes of the new token; only after validation."""
        return tuple(Permission(scope) for scope in self.cleaned_data["scopes"])

    @property
    def lifetime(self) -> timedelta:
        """Lifetime of the new token; only after validation."""
        return timedelta(days=self.cleaned_data["days"])
