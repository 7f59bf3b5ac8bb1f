"""Forms that retire or reinstate agents, and that add them to agent sets."""

from __future__ import annotations

from typing import Any

from django import forms

from fleet.changes.operations.retirements import MAX_REASON_LENGTH, problem_of


class RetireForm(forms.Form):
    """The reason and, for an agent that is alive, an explicit confirmation."""

    reason = forms.CharField(
        max_length=MAX_REASON_LENGTH,
        help_text="Required, at least 3 characters. Shown on the agent page and in the audit log.",
        widget=forms.TextInput(attrs={"autofocus": True, "autocomplete": "off"}),
    )
    sure = forms.BooleanField(label="Retire although alive")

    def __init__(self, *args: Any, is_alive: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not is_alive:
            del self.fields["sure"]

    def clean_reason(self) -> str:
        """Return the reason. Refuse one that is too short, too long or not printable."""
        reason = str(self.cleaned_data["reason"])
        if problem := problem_of(reason):
            raise forms.ValidationError(problem)
        return reason


class AgentSetMembersForm(forms.Form):
    """The name of an agent set, which may be new."""

    agent_set = forms.SlugField(
        label="Agent set",
        max_length=64,
        help_text="A name that does not exist yet creates the set.",
        widget=forms.TextInput(attrs={"autofocus": True, "autocomplete": "off", "list": "agent-sets"}),
    )
