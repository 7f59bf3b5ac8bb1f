"""Forms of silences. The conditions of a silence are in `condition_drafts`, because several submits edit them."""

from __future__ import annotations

from typing import Any
from zoneinfo import ZoneInfo

from django import forms
from typing_extensions import override

from dashboards.alerts.silences.periods import CUSTOM, end_of_period, list_period_choices
from dashboards.shared.duration_fields import ReadableDurationField
from fleet.alerts.incident_actions import MIN_REASON_LENGTH
from fleet.alerts.matchers import CONFIRMATION_WORD

SHORTEST_SILENCE_SECONDS = 180.0
_DEFAULT_PERIOD = "3600"
_REASON_ERROR = f"Enter a reason of at least {MIN_REASON_LENGTH} characters."


class ReasonField(forms.CharField):
    """The reason of a silence or maintenance window."""

    def __init__(self, help_text: str, *, has_focus: bool = False) -> None:
        super().__init__(
            min_length=MIN_REASON_LENGTH,
            max_length=500,
            help_text=f"Required, at least {MIN_REASON_LENGTH} characters. {help_text}",
            error_messages={"required": _REASON_ERROR, "min_length": _REASON_ERROR},
            widget=forms.TextInput(
                attrs={"autocomplete": "off"} | ({"autofocus": True} if has_focus else {})
            ),
        )


class ConfirmationField(forms.CharField):
    """The word that confirms that everything is silenced."""

    def __init__(self) -> None:
        super().__init__(
            required=False,
            label=f"Type “{CONFIRMATION_WORD}” to silence everything",
            help_text="Required only if the conditions match everything or almost everything.",
            widget=forms.TextInput(attrs={"autocomplete": "off"}),
        )


class PeriodForm(forms.Form):
    """A duration: one of the usual ones, or a typed one."""

    period = forms.ChoiceField(
        required=False,
        label="Duration",
        widget=forms.RadioSelect,
        initial=_DEFAULT_PERIOD,
    )
    duration = ReadableDurationField(
        minimum=SHORTEST_SILENCE_SECONDS,
        maximum=720 * 3600.0,
        required=False,
        label="Custom duration",
        help_text="Example: 1 h 30 min.",
    )

    def __init__(self, *args: Any, zone: ZoneInfo, **kwargs: Any) -> None:
        """`zone`: that of the user, which the choice *until tomorrow* names."""
        super().__init__(*args, **kwargs)
        self.fields["period"].choices = list_period_choices(zone)  # type: ignore[attr-defined]

    @override
    def clean(self) -> dict[str, Any]:
        """Require a typed duration if that is chosen. A duration without a choice is a typed one."""
        cleaned_data: dict[str, Any] = super().clean() or self.cleaned_data
        if not cleaned_data.get("period") and "period" not in self.errors:
            cleaned_data["period"] = CUSTOM if self.data.get("duration") else _DEFAULT_PERIOD
        is_custom = cleaned_data.get("period") == CUSTOM
        if is_custom and not cleaned_data.get("duration") and "duration" not in self.errors:
            self.add_error("duration", "Enter a duration, for example 1 h 30 min.")
        elif not is_custom:
            # The text is hidden then: what is wrong with it does not matter.
            self.errors.pop("duration", None)
        return cleaned_data

    def end_after(self, begin: float, zone: ZoneInfo) -> float:
        """Return the end of the chosen period that begins at `begin`."""
        seconds = float(self.cleaned_data.get("duration") or 0.0)
        return end_of_period(self.cleaned_data["period"], begin, seconds, zone)


class IncidentSilenceForm(PeriodForm):
    """Form of a silence of one incident's cause."""

    reason = ReasonField("Shown to everyone who opens the incident.", has_focus=True)


class SilenceForm(PeriodForm):
    """Form of a silence by conditions, with its start in UTC."""

    reason = ReasonField("Shown to everyone who opens a silenced incident.")
    starts = forms.DateTimeField(
        required=False,
        label="Start (UTC)",
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        help_text="Empty: the silence starts now.",
    )
    confirmation = ConfirmationField()
