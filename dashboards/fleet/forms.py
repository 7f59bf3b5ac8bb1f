"""The form that retires or reinstates an agent."""

from __future__ import annotations

from typing import Any

from django import forms

from fleet.changes.operations.retirements import MAX_REASON_LENGTH, problem_of


class RetireForm(forms.Form):
    """The reason and, for an agent that is alive, an explicit confirmation."""

    reason = forms.CharField(
        max_length=MAX_REASON_LENGTH,
        help_text="Shown on the agent page and in the audit log.",
        widget=forms.TextInput(attrs={"autofocus": True, "autocomplete": "off"}),
    )
    sure = forms.BooleanField(label="Retire although alive")

    def __init__(self, *args: Any, is_alive: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not is_alive:
            del self.fields["sure"]

    def clean_reason(self) -> str:
        """Return the reason. Refuse one that is too short, too long or not printable."""
        reason = str(self.cleaned_data["reason"])
        if problem := problem_of(reason):
            raise forms.ValidationError(problem)
        return reason
