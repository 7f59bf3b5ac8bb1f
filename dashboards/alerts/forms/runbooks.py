"""Form of the custom text of a runbook."""

from __future__ import annotations

from django import forms

from dashboards.shared.pages import sentence_of
from fleet.alerts.runbooks.custom_texts import (
    MAX_TEXT_LENGTH,
    RunbookTextError,
    find_text_problem,
    normalize_text,
)


class RunbookTextForm(forms.Form):
    """The text, and the version that the edit began with. An empty text removes the stored one."""

    text = forms.CharField(
        required=False,
        strip=False,
        label="Custom text",
        help_text=(
            f"Plain text, at most {MAX_TEXT_LENGTH:,} characters. Addresses that start with https:// become links. "
            "Empty: no custom text."
        ),
        widget=forms.Textarea(attrs={"rows": 12, "autofocus": True}),
    )
    seen_version = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    def clean_text(self) -> str:
        """Return the text as it is stored. Raises ValidationError if it is too long."""
        text = normalize_text(str(self.cleaned_data["text"]))
        if problem := find_text_problem(text):
            raise forms.ValidationError(sentence_of(RunbookTextError(problem)))
        return text
