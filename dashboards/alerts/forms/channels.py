"""Form of notification channels."""

from __future__ import annotations

from typing import Any

from django import forms
from typing_extensions import override

from dashboards.alerts.forms.shared import build_unique_name_messages
from dashboards.shared.owners import OwnedForm
from fleet.alerts.channels.kind import ChannelField, ChannelKind
from fleet.alerts.digest import DigestPeriod
from fleet.alerts.setup import channels as channel_setup
from fleet.models.alerting import Channel

#: End of the labels of fields that may be empty.
_OPTIONAL_SUFFIX = " (optional)"


class ChannelForm(OwnedForm):
    """Form of a notification channel of one kind. A secret that is left empty keeps its stored value.

    No response has an entered secret. A form that is refused therefore asks for the secrets that were filled in, and
    is refused again (`refused_secrets`, below) until they are entered: nobody notices that an input is empty again.
    """

    #: Names of the secret inputs that were filled in when the form was refused before.
    refused_secrets = forms.MultipleChoiceField(required=False, widget=forms.MultipleHiddenInput)

    digest = forms.ChoiceField(
        choices=[("", "never"), *((period.value, period.value) for period in DigestPeriod)],
        required=False,
        label="Digest",
        help_text="Summary of incidents, including severity info. Sent at 08:00 UTC; weekly digests on Mondays.",
    )
    per_minute = forms.IntegerField(
        min_value=channel_setup.MIN_PER_MINUTE,
        max_value=channel_setup.MAX_PER_MINUTE,
        initial=10,
        label="Rate limit (notifications per minute)",
    )

    class Meta:
        model = Channel
        fields = ("name", "cluster", "enabled", "send_resolved", "digest", "per_minute", "allow_private")
        labels = {
            "allow_private": "Allow private addresses",
            "enabled": "Send notifications",
            "send_resolved": "Send resolved notifications",
        }
        error_messages = build_unique_name_messages("channel")
        help_texts = {
            "name": "Shown in routes and in the delivery log.",
            "allow_private": "Requires the permission to manage access: notifications could reach internal services. "
            "If a user without that permission changes the host or port, this setting is turned off.",
        }

    def __init__(self, *args: Any, kind: ChannelKind, can_allow_private: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        row = self.instance
        self._kind = kind
        self._stored_secrets = channel_setup.unseal_or_empty(row.secrets)
        self._previous_origin = channel_setup.origin_of(row, kind, self._stored_secrets)
        self._secret_names = [field.input.name for field in kind.fields if field.input.is_hidden]
        for field in kind.fields:
            form_field = _create_input(field)
            form_field.initial = None if field.is_secret else row.config.get(field.key)
            if field.is_secret and field.key in self._stored_secrets:
                value_text = "new value" if field.input.is_hidden else "whole address"
                form_field.widget.attrs["placeholder"] = f"Stored. Enter the {value_text} to replace it."
            self.fields[field.input.name] = form_field
            if field.input.is_hidden and not field.is_required and field.key in self._stored_secrets:
                label = (field.label or field.input.label).lower()
                self.fields[_removal_name_of(field)] = forms.BooleanField(
                    required=False, label=f"Remove the stored {label}"
                )
        refused_field = self.fields["refused_secrets"]
        assert isinstance(refused_field, forms.MultipleChoiceField)
        refused_field.choices = [(name, name) for name in self._secret_names]
        self.fields["allow_private"].disabled = not can_allow_private
        if not kind.is_read_by_people:
            # Nobody reads notifications of this kind: a digest would be an alert that never resolves.
            del self.fields["digest"]
        if not row.pk:
            self.initial["name"] = _free_name_of(kind)
            self.initial["digest"] = channel_setup.default_digest_of(kind)
        self._main_names = [
            name
            for field in kind.fields
            if not field.is_advanced
            for name in (field.input.name, _removal_name_of(field))
            if name in self.fields
        ]
        self.order_fields(["name", *self._main_names])

    @property
    def main_fields(self) -> list[forms.BoundField]:
        """The fields that every channel of this kind needs."""
        return [self[name] for name in (*self._main_names, "name")]

    @property
    def advanced_fields(self) -> list[forms.BoundField]:
        """All other fields."""
        return [
            self[name] for name in self.fields if name not in (*self._main_names, "name", "refused_secrets")
        ]

    @property
    def shows_advanced_fields(self) -> bool:
        """Whether *More options* is open: a field below it was changed or has an error, or an error names it."""
        if not self.is_bound:
            return False
        error_text = " ".join(str(message) for messages in self.errors.values() for message in messages)
        return any(
            field.errors or field.name in self.changed_data or str(field.label) in error_text
            for field in self.advanced_fields
        )

    @property
    def refused_secret_names(self) -> list[str]:
        """The secret inputs that must be filled in again, because the form was refused."""
        if not self.is_bound or not self.errors:
            return []
        return [
            name
            for name in self._secret_names
            if self.data.get(name) or name in self.cleaned_data.get("refused_secrets", ())
        ]

    @override
    def full_clean(self) -> None:
        """Validate the form; ask for secrets again that were filled in now or when it was refused before."""
        super().full_clean()
        if not self.is_bound:
            return
        for name in self.cleaned_data.get("refused_secrets", ()):
            if not self.data.get(name):
                self._ask_again(name, ", or open this form anew to leave it empty")
        if self.errors:
            for name in self._secret_names:
                if self.data.get(name):
                    self._ask_again(name)

    def _ask_again(self, name: str, alternative: str = "") -> None:
        if name not in self.errors:
            label = str(self.fields[name].label).removesuffix(_OPTIONAL_SUFFIX).lower()
            self.add_error(name, f"Enter the {label} again{alternative}.")

    @override
    def clean(self) -> dict[str, Any]:
        """Validate the values of the kind, and drop stored secrets if the origin of the address changed."""
        cleaned_data: dict[str, Any] = super().clean() or self.cleaned_data
        self._new_values = channel_setup.merge_values(
            self._kind,
            {field.key: cleaned_data.get(field.input.name, "") for field in self._kind.fields},
            self._stored_secrets,
            self._previous_origin,
            allow_private=bool(cleaned_data.get("allow_private")),
            can_allow_private=not self.fields["allow_private"].disabled,
            removed_keys=[
                field.key for field in self._kind.fields if cleaned_data.get(_removal_name_of(field))
            ],
        )
        cleaned_data["allow_private"] = self._new_values.allow_private
        for field in self._kind.fields:
            if problem := self._new_values.problems.get(field.key):
                self.add_error(field.input.name, problem)
        return cleaned_data

    @override
    def save(self, commit: bool = True) -> Channel:
        """Save the channel, with its secrets sealed."""
        self.instance.kind = self._kind.slug
        channel_setup.write_values(self.instance, self._kind, self._new_values)
        channel: Channel = super().save(commit)
        return channel


def _removal_name_of(field: ChannelField) -> str:
    """Return the name of the checkbox that removes a stored secret."""
    return f"remove_{field.input.name}"


def _create_input(field: ChannelField) -> forms.CharField:
    label, help_text = field.label or field.input.label, f"{field.help[:1].upper()}{field.help[1:]}."
    if not field.is_required and not field.is_advanced:
        label = f"{label}{_OPTIONAL_SUFFIX}"
    if not field.input.is_hidden:
        return forms.CharField(required=False, label=label, help_text=help_text)
    widget = forms.PasswordInput(attrs={"autocomplete": "new-password"})
    return forms.CharField(required=False, label=label, help_text=help_text, widget=widget)


def _free_name_of(kind: ChannelKind) -> str:
    """Return a name that no channel has: that of the kind, with a number if there is one already."""
    base_name = kind.label.partition(" (")[0]
    names = set(Channel.objects.values_list("name", flat=True))
    candidates = (base_name, *(f"{base_name} {number}" for number in range(2, len(names) + 3)))
    return next(name for name in candidates if name not in names)
