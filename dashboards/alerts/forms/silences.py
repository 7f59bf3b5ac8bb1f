"""Forms of silences and maintenance windows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.html import format_html
from typing_extensions import override

from dashboards.alerts.forms.shared import clean_matchers
from dashboards.shared.duration_fields import ReadableDurationField
from dashboards.shared.pages import sentence_of
from fleet.alerts.matchers import CONFIRMATION_WORD, matches_everything, parse_matchers
from fleet.alerts.silences import MAX_WINDOW_LENGTH, WindowError
from fleet.alerts.store import window_of
from fleet.models.alerting import MaintenanceWindow

_MATCHERS_HELP_TEXT = format_html(
    "Example: <code>{}</code>, or <code>{}</code>. The character <code>*</code> matches any text; <code>!=</code> "
    "negates.",
    "cause=proxy-1 severity=critical",
    "agent=web-* agent_set=lab",
)
_CONFIRMATION_HELP_TEXT = "Required only if the matchers silence everything or almost everything."
_SHORTEST_SILENCE_SECONDS = 180.0


class SilenceForm(forms.Form):
    """Form of a new silence, with its duration and its start in UTC."""

    field_order = ("matchers", "reason", "duration", "starts", "confirmation")

    duration = ReadableDurationField(
        minimum=_SHORTEST_SILENCE_SECONDS,
        maximum=720 * 3600.0,
        initial=3600,
        help_text="Example: 1 h 30 min.",
    )
    starts = forms.DateTimeField(
        required=False,
        label="Start (UTC)",
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        help_text="Empty: the silence starts now.",
    )
    matchers = forms.CharField(
        required=False, max_length=500, label="Matchers", help_text=_MATCHERS_HELP_TEXT
    )
    reason = forms.CharField(max_length=500, help_text="Shown to everyone who opens a silenced incident.")
    confirmation = forms.CharField(
        required=False,
        label=f"Type “{CONFIRMATION_WORD}” to silence everything",
        help_text=_CONFIRMATION_HELP_TEXT,
    )

    def clean_matchers(self) -> str:
        """Return the matchers without surrounding blanks. Raises ValidationError if they are not valid."""
        return clean_matchers(str(self.cleaned_data["matchers"]))


class WindowForm(forms.ModelForm):  # type: ignore[type-arg] # as above
    """Form of a recurring maintenance window, with its duration."""

    duration = ReadableDurationField(
        minimum=_SHORTEST_SILENCE_SECONDS,
        maximum=MAX_WINDOW_LENGTH.total_seconds(),
        initial=7200,
        help_text="Example: 1 h 30 min.",
    )
    confirmation = forms.CharField(
        required=False,
        label=f"Type “{CONFIRMATION_WORD}” to silence everything",
        help_text=_CONFIRMATION_HELP_TEXT,
    )

    class Meta:
        model = MaintenanceWindow
        fields = ("name", "matchers", "rule", "first_day", "start_time", "time_zone", "reason")
        labels = {
            "rule": "Recurrence rule",
            "start_time": "Start time",
            "time_zone": "Time zone",
            "matchers": "Matchers",
        }
        help_texts = {
            "rule": "RFC 5545 rule, for example FREQ=WEEKLY;BYDAY=SU or FREQ=DAILY.", "matchers": _MATCHERS_HELP_TEXT,
            "time_zone": "IANA name, for example Europe/Berlin. The window keeps its local start time "
            "when daylight saving time begins or ends.",
        }  # fmt: skip
        widgets = {
            "matchers": forms.TextInput,
            "start_time": forms.TimeInput(attrs={"type": "time"}),
            "first_day": forms.DateInput(attrs={"type": "date"}),
        }

    def clean_matchers(self) -> str:
        """Return the matchers without surrounding blanks. Raises ValidationError if they are not valid."""
        return clean_matchers(str(self.cleaned_data["matchers"]))

    @override
    def clean(self) -> dict[str, Any]:
        """Validate the window, and require the typed confirmation if it silences everything."""
        cleaned_data: dict[str, Any] = super().clean() or self.cleaned_data
        if self.errors:
            return cleaned_data
        if (
            matches_everything(parse_matchers(cleaned_data["matchers"]))
            and cleaned_data.get("confirmation", "").strip().lower() != CONFIRMATION_WORD
        ):
            raise ValidationError(
                "These matchers silence everything or almost everything. "
                f"Type “{CONFIRMATION_WORD}” to confirm."
            )
        self.instance.length = timedelta(seconds=cleaned_data["duration"])
        for name in ("name", "matchers", "rule", "first_day", "start_time", "time_zone"):
            setattr(self.instance, name, cleaned_data[name])
        try:
            window_of(self.instance).check()
        except WindowError as error:
            raise ValidationError(sentence_of(error)) from error
        return cleaned_data
