"""The form field of durations: people type and read `24 h` or `1 h 30 min`, the value is in seconds."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import BaseValidator
from typing_extensions import override

from dashboards.shared.pages import sentence_of
from fleet.protocol import durations
from fleet.protocol.durations import LONGEST_MS, DurationError, format_exact


class ReadableDurationField(forms.CharField):
    """A duration with its unit; the value is in seconds, or None for an empty field.

    `minimum`, `maximum`: the range, seconds; None means that the form checks the range itself.
    """

    def __init__(
        self, *, minimum: float | None = 0.0, maximum: float | None = LONGEST_MS / 1000, **options: Any
    ) -> None:
        super().__init__(**options)
        self.empty_value = None
        self.validators = []
        if minimum is not None:
            self.validators.append(_MinimumValidator(minimum))
        if maximum is not None:
            self.validators.append(_MaximumValidator(maximum))
        self.widget.attrs |= {"autocomplete": "off", "spellcheck": "false"}

    @override
    def to_python(self, value: Any) -> Any:
        """Return the seconds. Raises ValidationError for a text without units."""
        text = super().to_python(value)
        if text is None:
            return None
        try:
            return durations.parse_readable(text)
        except DurationError as error:
            raise ValidationError(sentence_of(error)) from error

    @override
    def prepare_value(self, value: Any) -> Any:
        """Return a stored value as text; a text that was typed stays."""
        return format_exact(value) if isinstance(value, (int, float)) else value


class _MinimumValidator(BaseValidator):
    """Refuses shorter durations."""

    @override
    def __call__(self, value: Any) -> None:
        if value < self.limit_value:
            raise ValidationError(f"Enter at least {format_exact(self.limit_value)}.")


class _MaximumValidator(BaseValidator):
    """Refuses longer durations."""

    @override
    def __call__(self, value: Any) -> None:
        if value > self.limit_value:
            raise ValidationError(f"Enter at most {format_exact(self.limit_value)}.")
