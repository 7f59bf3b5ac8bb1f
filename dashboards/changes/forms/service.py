"""The form that takes an instance out of service, or brings it back."""

from __future__ import annotations

from typing import Any

from django import forms

from fleet.protocol.destination.instance_status import LONGEST_REASON, is_valid_reason
from fleet.vocabulary.campaign_presets import DEFAULT_PRESET, PRESETS_BY_SLUG


class ServiceForm(forms.Form):
    """The reason, whether and how fast agents move, and confirmations where they are needed."""

    move_agents = forms.ChoiceField(choices=[("yes", "yes"), ("no", "no")], required=False)
    preset = forms.ChoiceField(
        choices=[(slug, slug) for slug in PRESETS_BY_SLUG], required=False, initial=DEFAULT_PRESET.slug
    )
    sure = forms.BooleanField(label="Drain although no other instance of this kind accepts connections")
    confirmation = forms.CharField(required=False, max_length=200)
    reason = forms.CharField(min_length=3, max_length=LONGEST_REASON)

    def __init__(
        self, *args: Any, is_last_of_kind: bool = False, expected_name: str = "", **kwargs: Any
    ) -> None:
        """`expected_name`: the name that confirms a campaign; empty: none is needed."""
        super().__init__(*args, **kwargs)
        self._expected_name = expected_name
        if not is_last_of_kind:
            del self.fields["sure"]

    @property
    def moves_agents(self) -> bool:
        """Whether a campaign moves the agents."""
        return bool(self.cleaned_data.get("move_agents") == "yes")

    def clean_reason(self) -> str:
        """Return the reason. Raises ValidationError for characters that cannot be shown."""
        reason = str(self.cleaned_data["reason"])
        if not is_valid_reason(reason):
            raise forms.ValidationError("Use printable characters only.")
        return reason

    def clean_confirmation(self) -> str:
        """Return the name that was typed. Raises ValidationError when a campaign needs another one."""
        typed_name = str(self.cleaned_data["confirmation"]).strip()
        if self.moves_agents and typed_name != self._expected_name:
            raise forms.ValidationError(f"Type the name of the cluster: {self._expected_name}.")
        return typed_name
