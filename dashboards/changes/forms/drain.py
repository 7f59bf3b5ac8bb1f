"""The form that drains an instance, or has it take connections again."""

from __future__ import annotations

from typing import Any

from django import forms

from fleet.protocol.destination.instance_status import LONGEST_REASON, is_reason


class DrainForm(forms.Form):
    """Why; and, for the last of its kind, that it is meant."""

    reason = forms.CharField(
        min_length=3,
        max_length=LONGEST_REASON,
        help_text="Shown wherever the instance is, and kept in the log.",
    )
    sure = forms.BooleanField(label="Drain it all the same")

    def __init__(self, *args: Any, last: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not last:
            del self.fields["sure"]

    def clean_reason(self) -> str:
        """Refuse what cannot be shown."""
        reason = str(self.cleaned_data["reason"])
        if not is_reason(reason):
            raise forms.ValidationError("Use printable characters.")
        return reason
