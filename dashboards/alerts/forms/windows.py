"""Form of a recurring maintenance window: toggles for its days, or an RFC 5545 rule."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from typing_extensions import override

from dashboards.alerts.forms.silences import SHORTEST_SILENCE_SECONDS, ConfirmationField, ReasonField
from dashboards.shared.duration_fields import ReadableDurationField
from dashboards.shared.pages import sentence_of
from fleet.alerts.recurrence.rule import MAX_INTERVAL, Recurrence, RecurrenceError
from fleet.alerts.recurrence.schedules import (
    LAST_MONTH_DAY,
    WEEKDAY_NAMES,
    Repetition,
    Schedule,
    ScheduleError,
    end_time_of,
    length_between,
    schedule_of,
)
from fleet.alerts.silences import MAX_WINDOW_LENGTH, WindowError, zone_of
from fleet.models.alerting import MaintenanceWindow
from fleet.protocol.durations import format_exact

#: Value of the repetition that is written as a rule.
BY_RULE = "rule"
_REPETITION_CHOICES = [
    *((repetition.value, repetition.label) for repetition in Repetition),
    (BY_RULE, "Custom rule"),
]
_WEEKDAY_CHOICES = [(str(number), name[:3]) for number, name in enumerate(WEEKDAY_NAMES)]
_MONTH_DAY_CHOICES = [*((str(day), str(day)) for day in range(1, 32)), (str(LAST_MONTH_DAY), "last day")]


class WindowForm(forms.Form):
    """Form of a maintenance window. A rule that was edited wins over the toggles."""

    name = forms.CharField(max_length=100, widget=forms.TextInput(attrs={"autocomplete": "off"}))
    repetition = forms.ChoiceField(
        required=False, label="Repeat", choices=_REPETITION_CHOICES, widget=forms.RadioSelect
    )
    weekdays = forms.MultipleChoiceField(
        required=False, choices=_WEEKDAY_CHOICES, widget=forms.CheckboxSelectMultiple
    )
    interval = forms.IntegerField(
        required=False,
        min_value=2,
        max_value=MAX_INTERVAL,
        label="Weeks between windows",
        help_text="Counted from the week of the first day.",
    )
    month_day = forms.ChoiceField(
        required=False,
        label="Day of the month",
        choices=_MONTH_DAY_CHOICES,
        help_text="Months without this day are skipped.",
    )
    start_time = forms.TimeField(
        label="Start", widget=forms.TimeInput(attrs={"type": "time"}, format="%H:%M")
    )
    end_time = forms.TimeField(
        required=False,
        label="End",
        widget=forms.TimeInput(attrs={"type": "time"}, format="%H:%M"),
        help_text="An end that is not after the start is on the next day.",
    )
    time_zone = forms.CharField(
        max_length=64,
        label="Time zone",
        help_text="The window keeps its local times when daylight saving time begins or ends.",
        widget=forms.TextInput(attrs={"list": "time-zones", "autocomplete": "off", "spellcheck": "false"}),
    )
    reason = ReasonField("Shown to everyone who opens a silenced incident.")
    rule = forms.CharField(
        required=False,
        max_length=200,
        label="Recurrence rule",
        help_text="RFC 5545 rule, for example FREQ=WEEKLY;BYDAY=SU. A rule that you edit replaces the choices above.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", "class": "code"}),
    )
    first_day = forms.DateField(
        required=False,
        label="First day",
        widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"),
        help_text="The window does not occur before this day.",
    )
    duration = ReadableDurationField(
        required=False,
        minimum=SHORTEST_SILENCE_SECONDS,
        maximum=MAX_WINDOW_LENGTH.total_seconds(),
        help_text="Instead of an end, for windows of more than 24 h. At most 36 h.",
    )
    confirmation = ConfirmationField()

    @staticmethod
    def initial_of(row: MaintenanceWindow) -> dict[str, Any]:
        """Return the values of the fields for a window."""
        schedule, end_time = schedule_of(row.rule), end_time_of(row.start_time, row.length)
        values = {
            name: getattr(row, name)
            for name in ("name", "start_time", "time_zone", "reason", "rule", "first_day")
        }
        return values | {
            "repetition": BY_RULE if schedule is None else schedule.repetition.value,
            "weekdays": [] if schedule is None else [str(weekday) for weekday in schedule.weekdays],
            "interval": 2 if schedule is None or schedule.interval == 1 else schedule.interval,
            "month_day": "1" if schedule is None else str(schedule.month_day),
            "end_time": end_time,
            "duration": format_exact(row.length.total_seconds()) if end_time is None else "",
        }

    def clean_time_zone(self) -> str:
        """Return the name of the time zone. Raises ValidationError if there is none."""
        name = str(self.cleaned_data["time_zone"])
        try:
            zone_of(name)
        except WindowError as error:
            raise ValidationError(sentence_of(error)) from error
        return name

    @override
    def clean(self) -> dict[str, Any]:
        """Return the fields of the window: `rule` from the toggles unless it was edited, and `length`."""
        cleaned_data: dict[str, Any] = super().clean() or self.cleaned_data
        cleaned_data["first_day"] = cleaned_data.get("first_day") or date.today()  # noqa: DTZ011 - as in the model
        cleaned_data["rule"] = self._clean_rule(cleaned_data)
        cleaned_data["length"] = self._clean_length(cleaned_data)
        return cleaned_data

    def apply_to(self, row: MaintenanceWindow, matchers: str) -> None:
        """Write the values of the form to a window."""
        row.matchers = matchers
        for name in ("name", "rule", "first_day", "start_time", "length", "time_zone", "reason"):
            setattr(row, name, self.cleaned_data[name])

    def _clean_rule(self, cleaned_data: dict[str, Any]) -> str:
        rule, repetition = cleaned_data.get("rule", "").strip(), cleaned_data.get("repetition") or BY_RULE
        if "rule" in self.errors or "interval" in self.errors:
            return ""
        if repetition == BY_RULE or rule != self.data.get("shown_rule", "").strip():
            return self._check_rule(rule)
        weekdays = tuple(sorted(int(weekday) for weekday in cleaned_data.get("weekdays", ())))
        schedule = Schedule(
            Repetition(repetition),
            cleaned_data.get("interval") or 2,
            weekdays,
            int(cleaned_data.get("month_day") or 1),
        )
        try:
            return schedule.rule
        except ScheduleError as error:
            self.add_error("weekdays", sentence_of(error))
            return ""

    def _check_rule(self, rule: str) -> str:
        try:
            Recurrence.parse(rule)
        except RecurrenceError as error:
            self.add_error("rule", f"The recurrence rule is not valid: {error}.")
        return rule

    def _clean_length(self, cleaned_data: dict[str, Any]) -> timedelta:
        start_time, end_time = cleaned_data.get("start_time"), cleaned_data.get("end_time")
        seconds = cleaned_data.get("duration")
        if seconds and end_time:
            self.add_error("duration", "Enter an end or a duration, not both.")
        elif seconds:
            return timedelta(seconds=seconds)
        elif start_time and end_time:
            return length_between(start_time, end_time)
        elif start_time and not {"end_time", "duration"} & set(self.errors):
            self.add_error("end_time", "Enter the end of the window.")
        return timedelta(hours=1)
