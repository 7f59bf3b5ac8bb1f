"""The form to drain or undrain an instance."""

from __future__ import annotations

from typing import Any

from django import forms

from fleet.protocol.destination.instance_status import LONGEST_REASON, is_valid_reason


class DrainForm(forms.Form):
    """The reason, and a confirmation for the last instance of its kind."""

    reason = forms.CharField(
        min_length=3,
        max_length=LONGEST_REASON,
        help_text="Shown with the instance and in the audit log.",
    )
    sure = forms.BooleanField(label="Drain although no other instance of this kind accepts connections")

    def __init__(self, *args: Any, is_last_of_kind: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not is_last_of_kind:
            del self.fields["sure"]

    def clean_reason(self) -> str:
        """Return the reason. Raises ValidationError for characters that cannot be shown."""
        reason = str(self.cleaned_data["reason"])
        if not is_valid_reason(reason):
            raise forms.ValidationError("Use printable characters only.")
        return reason
