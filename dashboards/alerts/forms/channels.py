"""Form of notification channels."""

from __future__ import annotations

from typing import Any

from django import forms
from typing_extensions import override

from dashboards.alerts.forms.shared import build_unique_name_messages
from dashboards.shared.owners import OwnedForm
from dashboards.shared.pages import sentence_of
from fleet.alerts.channels import SendError
from fleet.alerts.channels.kind import ChannelInput
from fleet.alerts.channels.registry import CHANNEL_INPUTS, CHANNEL_KINDS
from fleet.alerts.digest import DigestPeriod
from fleet.models.alerting import Channel
from fleet.models.sealed_secrets import UnsealError, seal, unseal


class ChannelForm(OwnedForm):
    """Form of a notification channel. A secret that is left empty keeps its stored value."""

    kind = forms.ChoiceField(choices=[(slug, slug) for slug in CHANNEL_KINDS])
    digest = forms.ChoiceField(
        choices=[("", "never"), *((period.value, period.value) for period in DigestPeriod)],
        required=False,
        initial=DigestPeriod.WEEKLY.value,
        label="Digest",
        help_text="Summary of incidents, including severity info. Sent at 08:00 UTC; weekly digests on Mondays.",
    )
    per_minute = forms.IntegerField(
        min_value=1, max_value=1000, initial=10, label="Rate limit (notifications per minute)"
    )

    class Meta:
        model = Channel
        fields = (
            "name", "cluster", "kind", "enabled", "send_resolved", "digest", "per_minute", "allow_private",
        )  # fmt: skip
        labels = {"allow_private": "Allow private addresses", "send_resolved": "Send resolved notifications"}
        error_messages = build_unique_name_messages("channel")
        help_texts = {
            "allow_private": "Requires the permission to manage access: notifications could reach internal services. "
            "If a user without that permission changes the host or port, this setting is turned off."
        }

    def __init__(self, *args: Any, can_allow_private: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        row = self.instance
        self._stored_secrets = _unseal_or_empty(row.secrets)
        self.fields |= {
            channel_input.name: _create_channel_field(channel_input) for channel_input in CHANNEL_INPUTS
        }
        # Validating the form writes the new kind into the instance.
        self._previous_kind, self._previous_origin = row.kind, ""
        if row.kind in CHANNEL_KINDS:
            self._previous_origin = CHANNEL_KINDS[row.kind].origin_of(row.config | self._stored_secrets)
            for field in CHANNEL_KINDS[row.kind].fields:
                form_field = self.fields[field.input.name]
                form_field.initial = None if field.is_secret else row.config.get(field.key)
                value_text = "" if field.input.is_hidden else "the full value "
                if field.is_secret and field.key in self._stored_secrets:
                    form_field.widget.attrs["placeholder"] = f"stored; type {value_text}to replace"
        self.fields["allow_private"].disabled = not can_allow_private
        names = (channel_input.name for channel_input in CHANNEL_INPUTS)
        self.order_fields(["name", "cluster", "kind", *names, "enabled", "send_resolved", "digest"])

    @override
    def clean(self) -> dict[str, Any]:
        """Validate the values of the kind, and drop stored secrets if the origin of the address changed."""
        cleaned_data: dict[str, Any] = super().clean() or self.cleaned_data
        kind = CHANNEL_KINDS.get(cleaned_data.get("kind", ""))
        if kind is None:
            return cleaned_data
        entered_values = {field.key: cleaned_data.get(field.input.name, "") for field in kind.fields}
        is_same_kind = kind.slug == self._previous_kind
        stored_secrets = self._stored_secrets if is_same_kind else {}
        self._field_values = {
            key: entered_text or stored_secrets.get(key, "") for key, entered_text in entered_values.items()
        }
        origin = kind.origin_of(self._field_values)
        if origin and not (is_same_kind and origin == self._previous_origin):
            self._field_values = entered_values
            if self.fields["allow_private"].disabled:
                cleaned_data["allow_private"] = False
        for field in kind.fields:
            if field.is_required and not self._field_values[field.key]:
                self.add_error(field.input.name, f"Required for channels of kind {kind.slug}.")
            try:
                if entered_values[field.key]:
                    field.check(entered_values[field.key])
            except SendError as error:
                self.add_error(field.input.name, sentence_of(error))
        if not kind.is_read_by_people:
            # Nobody reads notifications of this kind: a digest would be an alert that never resolves.
            cleaned_data["digest"] = ""
        return cleaned_data

    @override
    def save(self, commit: bool = True) -> Channel:
        """Save the channel, with its secrets sealed."""
        self.instance.config, secrets = CHANNEL_KINDS[self.cleaned_data["kind"]].split_secrets(
            self._field_values
        )
        self.instance.secrets = seal(secrets) if secrets else ""
        channel: Channel = super().save(commit)
        return channel


def _create_channel_field(channel_input: ChannelInput) -> forms.CharField:
    """Return an input whose help text lists what each kind of channel expects."""
    fields_by_kind = [
        (kind.slug, field)
        for kind in CHANNEL_KINDS.values()
        for field in kind.fields
        if field.input == channel_input
    ]
    text = " ".join(f"For {slug}: {field.help}." for slug, field in fields_by_kind)
    if not channel_input.is_hidden:
        return forms.CharField(required=False, label=channel_input.label, help_text=text)
    text = f"{text} Changing the host or port of the address deletes the stored secret."
    widget = forms.PasswordInput(attrs={"autocomplete": "new-password"})
    return forms.CharField(required=False, label=channel_input.label, help_text=text, widget=widget)


def _unseal_or_empty(secrets: str) -> dict[str, str]:
    try:
        return unseal(secrets)
    except UnsealError:
        return {}
