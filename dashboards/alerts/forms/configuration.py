"""Form of an import of the configuration of alerting: a file or pasted text."""

from __future__ import annotations

from typing import Any

from django import forms
from typing_extensions import override

from dashboards.shared.pages import sentence_of
from fleet.alerts.configuration.document import MAX_DOCUMENT_LENGTH, ConfigurationError
from fleet.alerts.matchers import CONFIRMATION_WORD
from fleet.alerts.setup.configuration import ImportPlan

#: Largest file, bytes: characters of UTF-8 have up to four.
_MAX_FILE_SIZE = 4 * MAX_DOCUMENT_LENGTH
#: Most characters of a line in an error.
_MAX_QUOTED_LENGTH = 80


class ImportForm(forms.Form):
    """A document to import. A file replaces the text."""

    file = forms.FileField(
        required=False,
        label="File",
        widget=forms.ClearableFileInput(attrs={"accept": ".yaml,.yml,application/yaml,text/yaml"}),
    )
    document = forms.CharField(
        required=False,
        max_length=MAX_DOCUMENT_LENGTH,
        strip=False,
        label="Or the text",
        widget=forms.Textarea(
            attrs={"rows": 14, "class": "code", "spellcheck": "false", "autocomplete": "off"}
        ),
        help_text="In the format of the export: one key per line, indented by two spaces. Problems name the line by "
        "its number and its text. What the document does not name is kept: sections, objects and fields. Write a "
        "new secret in place of its placeholder; a placeholder that you leave keeps the stored secret.",
    )
    prune = forms.BooleanField(
        required=False,
        label="Remove what is not in the document",
        help_text="Only from the sections that the document has. Built-in rules are kept.",
    )
    confirmation = forms.CharField(
        required=False,
        max_length=20,
        label="Confirmation",
        widget=forms.HiddenInput,
        help_text=f"A maintenance window silences everything. Enter the word “{CONFIRMATION_WORD}”.",
    )
    fingerprint = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    @override
    def clean(self) -> dict[str, Any]:
        """Return the document: the text of the file if there is one. An empty one is an error."""
        cleaned_data: dict[str, Any] = super().clean() or self.cleaned_data
        file = cleaned_data.get("file")
        if file is not None:
            if file.size > _MAX_FILE_SIZE:
                self.add_error("file", f"The file has more than {_MAX_FILE_SIZE // 1024} KB.")
                return cleaned_data
            try:
                cleaned_data["document"] = file.read().decode()
            except UnicodeDecodeError:
                self.add_error("file", "The file is not text in UTF-8.")
        # Browsers send the text of a file back with other line ends, and the fingerprint is of the text.
        document = cleaned_data.get("document", "").replace("\r\n", "\n")
        cleaned_data["document"] = document
        if not document.strip() and not self.errors:
            self.add_error("document", "Choose a file, or paste the configuration.")
        return cleaned_data

    def add_problems(self, error: ConfigurationError) -> None:
        """Show the problems of a document at its text, which then has that of the file."""
        document = self.cleaned_data["document"]
        self._show(document)
        lines = document.split("\n")
        for problem in error.problems:
            sentence = sentence_of(ValueError(problem.sentence))
            # The text box shows no line numbers.
            line = lines[problem.line - 1].strip() if problem.line and problem.line <= len(lines) else ""
            self.add_error("document", f"{sentence} That line is “{_shorten(line)}”." if line else sentence)

    def set_shown_plan(self, plan: ImportPlan) -> None:
        """Show the fields of a plan: its fingerprint, and the confirmation if it needs one."""
        if plan.is_confirmation_required:
            self.fields["confirmation"].widget = forms.TextInput(attrs={"autocomplete": "off"})
        self._show(self.cleaned_data["document"], fingerprint=plan.fingerprint)

    def _show(self, document: str, **values: str) -> None:
        stored_values = {name: self.data[name] for name in self.fields if name in self.data}
        self.data = {**stored_values, "document": document, **values}


def _shorten(line: str) -> str:
    return line if len(line) <= _MAX_QUOTED_LENGTH else f"{line[:_MAX_QUOTED_LENGTH]}…"
