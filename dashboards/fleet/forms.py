"""The form that retires an agent, or has it count again."""

from __future__ import annotations

from typing import Any

from django import forms

from fleet.changes.standing.retirements import MAX_REASON_LENGTH, problem_of


class RetireForm(forms.Form):
    """Why; and, for one that is alive, that it is meant."""

    reason = forms.CharField(max_length=MAX_REASON_LENGTH, help_text="Kept in the log.")
    sure = forms.BooleanField(label="Retire it all the same")

    def __init__(self, *args: Any, alive: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not alive:
            del self.fields["sure"]

    def clean_reason(self) -> str:
        """Refuse what cannot be shown."""
        reason = str(self.cleaned_data["reason"])
        if problem := problem_of(reason):
            raise forms.ValidationError(problem)
        return reason
