"""The form that marks an instance as degraded, or clears the mark."""

from __future__ import annotations

from django import forms

from fleet.protocol.destination.instance_status import LONGEST_REASON, is_valid_reason

#: Durations in minutes: what the form offers, and the label of each.
DURATIONS = ((10, "10 min"), (30, "30 min"), (60, "1 h"), (240, "4 h"), (1440, "24 h"))


class DegradeForm(forms.Form):
    """The reason, which the instance reports, and the time after which the instance clears the mark."""

    minutes = forms.ChoiceField(choices=DURATIONS, required=False)
    reason = forms.CharField(min_length=3, max_length=LONGEST_REASON)

    def clean_minutes(self) -> int:
        """Return the duration in minutes; the shortest one if the form has none, because it clears the mark."""
        return int(self.cleaned_data["minutes"] or DURATIONS[0][0])

    def clean_reason(self) -> str:
        """Return the reason. Raises ValidationError for characters that cannot be shown."""
        reason = str(self.cleaned_data["reason"])
        if not is_valid_reason(reason):
            raise forms.ValidationError("Use printable characters only.")
        return reason
